"""The whole: the registry of tasks, URLs of the APIs, front page, search, log-in, metrics, retention.

Is      what needs every app of the core; `apps_urls` adds the URLs of all apps
Offers  nothing
Needs   every app of the core
"""
