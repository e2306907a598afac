"""Infrastructure that is independent of Links: Redis, queue, retries, logs, requests, errors.

Is      clock, outbox, encrypted columns, limits of requests and log-ins, metrics, and middleware; ISD-ASes, bandwidths
        and times as text (`notation`). No models.
Offers  `retry.retried`, `queue.queue_after_commit`, `clock.database_now`, `field_errors.FieldRuleError`
        For apps above: `secrets_box.keep_encrypted`, `retention.KEPT`, `metrics.figures.MORE_FIGURES`
Needs   no app; the rules at the top of the repository
"""
