"""What Prometheus reads at /metrics (docs/operations.md lists every name).

    ledger    counters of all processes together: kept in memory, handed over to Redis every few seconds
    names     every counter and histogram that is counted as things happen
    requests  counts Django's answers
    work      counts Celery's tasks

The page itself, and the figures that are read from the database when somebody asks: `operations.metrics`.

With several web processes, replicas and workers whoever answers must know of all: so the sums are in Redis and not in
files that only the processes of one machine share (docs/adr/0017).
"""
