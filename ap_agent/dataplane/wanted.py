"""The wanted state of the kernel, as values: the interface between documents and netlink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ap_agent.dataplane.program import Key


class LimitedLink(NamedTuple):
    """Limits are kbit/s, 0 blocks. `keys` match its packets; no two links share one. An observed link is measured and
    never drops. A tuple: each document compares thousands of them."""

    interface_id: int
    keys: tuple[Key, ...]
    to_user_kbit: int
    from_user_kbit: int
    is_observed: bool = False


@dataclass(frozen=True)
class Wanted:
    """Without any link nothing of ours stays on the host. `unmatched_kbit` limits unmatched traffic in each direction.
    `interfaces`: only their packets are classified; empty means every lowest device."""

    links: Mapping[int, LimitedLink] = field(default_factory=dict)
    unmatched_kbit: int | None = None
    interfaces: tuple[str, ...] = ()
