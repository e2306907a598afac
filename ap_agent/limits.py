"""What a link may carry in each direction. Pure.

link_info.json has one number for both; the engine asks here, so that only `limits_of` has to change when it has two.
"""

from __future__ import annotations

from typing import NamedTuple

from ap_agent.model import NIC_MAJOR
from bandwidth_config import LinkInfo


class Limits(NamedTuple):
    """In kbit/s; 0 blocks that direction, and only that."""

    to_user_kbit: int
    from_user_kbit: int

    def kbit(self, major: int) -> int:
        """On the tree of that major: an interface's limits what goes to the user AS, the IFB's what comes from it."""
        return self.to_user_kbit if major == NIC_MAJOR else self.from_user_kbit


def limits_of(link: LinkInfo) -> Limits:
    return Limits(to_user_kbit=link.bandwidth_kbit, from_user_kbit=link.bandwidth_kbit)
