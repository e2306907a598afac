"""The agent of an attachment point and its limiter: they keep the kernel's traffic control in line with link_info.json.

Decisions are pure functions over frozen values; netlink, HTTP and files are at the edges. The agent knows the
Coordination Service only through its wire contract.
"""

__version__ = "0.1.0"
