"""Limits along paths, path metadata, sums of several Links. An extension.

Is      pages and REST about a pasted SCION path (`scion_path`, without Django) and about all Links of an AS
Offers  the settings `publishes_limits` and `path_metadata` of an attachment point (`limits.ap_settings`)
Needs   the core; shows traffic and last tests where others offer them (`limits.measured`); no models
"""
