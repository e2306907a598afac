"""What went through the Links: taking it in from agents, keeping it, and telling it (docs/adr/0015).

ingest    a batch of an agent -> samples, exactly once        (counting: counters -> differences; packing: one row)
rollup    samples -> 5-minute and daily sums, and what is old goes       (months: 95th percentiles)
series    of one Link, for plots and files (formats)
report    of attachment points and ASes, for bills
"""
