"""Metrics for Prometheus at /metrics (each has a help text).

    names     counters and histograms
    shared    the files that the processes of a machine share
    requests  counts Django's responses
    work      counts Celery's tasks

`site.metrics` has the page, and figures that are read from the database on demand.
"""
