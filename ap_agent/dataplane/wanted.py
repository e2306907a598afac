"""What the kernel should have, as values. Who makes one knows documents; who carries it out knows netlink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ap_agent.dataplane.program import Key


class LimitedLink(NamedTuple):
    """Limits are kbit/s, 0 blocks. `keys` say which packets are its; no two links have the same one.

    An observed link is measured and never refused anything. A tuple: each document compares thousands of them.
    """

    interface_id: int
    keys: tuple[Key, ...]
    to_user_kbit: int
    from_user_kbit: int
    is_observed: bool = False


@dataclass(frozen=True)
class Wanted:
    """Without any link nothing of ours is left on the host. `unmatched_kbit` limits everything that no link has, in
    each direction. `interfaces`: only packets of these are looked at; empty means those of every lowest device."""

    links: Mapping[int, LimitedLink] = field(default_factory=dict)
    unmatched_kbit: int | None = None
    interfaces: tuple[str, ...] = ()
