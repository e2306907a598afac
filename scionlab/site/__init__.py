"""The whole: the registry of tasks, URLs of the APIs, front page, search, log-in, metrics, retention.

Is      what needs every app of the core; the URLs of extensions are added by `extensions`
Offers  nothing
Needs   every app of the core
"""
