"""Traffic of Links: ingestion, storage, and reports (docs/adr/0015).

ingest    a batch of an agent -> samples, exactly once        (counting: counters -> differences; packing: one row)
rollup    samples -> 5-minute and daily sums, and retention       (months: 95th percentiles)
series    one Link, for plots and files (formats)
report    attachment points and ASes, for bills
"""
