"""User ASes, their Links and limits: at once, for a time, in bulk, and the defaults that are the maximum."""
