"""Traffic of Links: ingestion, storage, and reports (docs/adr/0015). An extension.

ingest    a batch of an agent -> samples, exactly once        (counting: counters -> differences; packing: one row)
rollup    samples -> 5-minute and daily sums, and retention       (months: 95th percentiles)
series    one Link, for plots and files (formats)
report    attachment points and ASes, for bills
live      rates of open pages, only in the cache

Offers  panels of a Link, lines of ASes, the cockpit's traffic, documents `usage` and `live` of the host API
Needs   the core. Without it agents keep what they counted, as with a service that is away.
"""
