"""Limits, defaults, temporary limits, exceptions, changes of a default with preview and undo; the page of a Link."""
