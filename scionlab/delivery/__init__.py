"""What a host fetches and how: configurations, signed tarballs, enrolment, the host API, the long poll.

Is      signing keys and issued documents; the ASGI application in which polls wait (`polls`); coexistence with another
        service's files (`installed`)
Offers  `render.config_for`, `issued.is_issued`, `enrolment`, `host_api.documents` for documents of agents
        For apps above: `files.FILES` (more files of a host)
Needs   testbed and what is below it
"""
