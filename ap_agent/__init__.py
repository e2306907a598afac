"""The agent of an attachment point: it makes the kernel's traffic control agree with link_info.json.

A functional core (`model`, `desired`, `plan`) decides over frozen values; a thin shell (`netlink`, `fetch`, `loop`)
touches the kernel and the network. The agent knows the Coordination Service only through its wire contract.
"""

__version__ = "0.1.0"
