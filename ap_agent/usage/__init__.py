"""What each link used: the limiter's counters, sampled every ten seconds, kept on the disk until the service has them.

    state file ──sampler──▶ samples ──batch──▶ spool (SQLite) ──agent──▶ service

Counters are absolute and each has the name of its segment, so a sample that is lost costs resolution and never bytes
(docs/adr/0014). None of this takes part in enforcing.
"""
