"""Limits, defaults, temporary limits, exceptions, changes of a default with preview and undo; the page of a Link.

Is      what a user may set and what an administrator allows, for `Link` and `TimedLimit` of testbed; exceptions and
        previews are its own rows
Offers  `update.link_set_bandwidth`, `timed_limit`, `defaults.fan_out`, `maximum`, `exceptions`
        For apps above: `pages.panels.LINK_PANELS` and `pages.change_lines.DRAWN` (page of a Link),
        `ap_settings.AP_SETTINGS`
Needs   enforcement and what is below it
"""
