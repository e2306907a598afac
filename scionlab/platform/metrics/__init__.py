"""What Prometheus reads at /metrics (docs/operations.md lists every name).

    names     every counter and histogram that is counted as things happen
    shared    the files in which all processes of a machine count together
    requests  counts Django's answers
    work      counts Celery's tasks

The page itself, and the figures that are read from the database when somebody asks: `operations.metrics`.
"""
