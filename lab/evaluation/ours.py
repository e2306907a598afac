"""Our limiter in a bed: the engine that the limiter's process runs, told which links there are.

It runs as a process in the attachment point's namespace, with maps of its own. How a document comes to it (download,
signature, hand-over) is not measured here: `./dev bench save` and the demo do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bandwidth_config import FROM_USER_KEY, TESTS_KEY, TO_USER_KEY
from contract.link_info import LinkInfo, check_link_info
from lab.bench.engines import Cycle, DirectionCounters, Engine
from lab.evaluation.limiters import Link
from measuring.netns import Namespace


class OurLimiter:
    """The limiter of one attachment point. Its limits stay in the kernel when it is closed."""

    def __init__(self, ap: Namespace) -> None:
        """Raises `RuntimeError` where it does not start."""
        self._engine = Engine(ap)

    def enforce(self, links: Iterable[Link], *, four_keys: bool = False) -> Cycle:
        """These links and no others; returns when the kernel has them. Raises `RuntimeError` when it does not."""
        return self._engine.enforce(link_infos(links, four_keys=four_keys))

    def counters(self) -> Mapping[tuple[int, str], DirectionCounters]:
        """By interface id and direction (`to_user`, `from_user`)."""
        return self._engine.counters()

    def close(self) -> None:
        self._engine.close()


def link_infos(links: Iterable[Link], *, four_keys: bool = False) -> Mapping[int, LinkInfo]:
    """As the service would write them. With `four_keys` the entries are those of the thesis: matched by their address
    alone, whatever the protocol."""
    return check_link_info({str(one.interface_id): _entry(one, four_keys=four_keys) for one in links})


def _entry(link: Link, *, four_keys: bool) -> dict[str, object]:
    entry: dict[str, object] = {
        "AS_ID": link.interface_id,
        "IsUserAS": True,
        "Bandwidth": link.limits.lowest_kbit,
        "IP-Address": link.remote[0],
    }
    if not four_keys:
        (local, local_port), (_, port) = link.local, link.remote
        entry |= {"Port": port, "Local-IP": local, "Local-Port": local_port, "VPN": False}
    if link.tests:
        entry[TESTS_KEY] = [one.statement() for one in link.tests]
    if not link.limits.is_symmetric:
        entry |= {TO_USER_KEY: link.limits.to_user_kbit, FROM_USER_KEY: link.limits.from_user_kbit}
    return entry
