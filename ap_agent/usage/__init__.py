"""Usage of each link: the limiter's counters, sampled every ten seconds, stored on disk until uploaded.

    state file ──sampler──▶ samples ──batch──▶ spool (SQLite) ──agent──▶ service

Counters are absolute and have the name of their segment, so a lost sample costs resolution and no bytes
(docs/adr/0015). Enforcement does not depend on it.
"""
