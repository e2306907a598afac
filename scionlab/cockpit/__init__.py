"""The administrators' cockpit: states and problems, map, history, setup. Staff only.

Is      pages that show what the apps below offer; no models
Offers  nothing: an app adds to it through `testbed.cockpit.OFFERS`
Needs   the core; no extension
"""
