"""The program that limits links (limiter.bpf.c), its maps as Python sees them, and the numbers that it is given.

Nothing here knows a configuration, a device or a qdisc. The agent does not use it yet: it is the first part of the
engine that takes the place of `ap_agent.whole`, the hash tables and the tree on the network card (docs/adr/0028).
"""
