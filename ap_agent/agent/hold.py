"""Holds back a configuration that lacks most of the limited links: although signed, it may be a mistake of the service,
and accepting it would remove the limits of the missing links (ADR 0004). Pure, except for `uptime`.

A hold lasts ten minutes. Meanwhile the agent polls without a version, and accepts the configuration at the end if the
service still offers fewer than half of the links, or immediately when the operator runs `accept`. It is stored in the
state directory (`store`, held.json), so that a restart of the agent neither shortens nor repeats it; a reboot may
restart it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from ap_agent.agent.bundle import Bundle
from ap_agent.common.errors import TrustError

HOLD_S = 600
_FEW = 10  # up to this number all may disappear at once: an operator may remove some by hand


def uptime() -> int:
    """Whole seconds since boot, including sleep: independent of the wall clock."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME))


@dataclass(frozen=True)
class Hold:
    """`offered` (G.H) lacks `missing` of the `limited` links of the configuration in force (`Bundle.name`), and the
    service has offered such a one since `since_s` (`uptime`)."""

    in_force: str
    offered: str
    missing: int
    limited: int
    since_s: int

    def left_s(self, now_s: int) -> int:
        """Remaining time [s]; 0 at the end. Restarts after a reboot, when `uptime` is below `since_s`."""
        return max(0, HOLD_S - (now_s - self.since_s))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def error(self) -> TrustError:
        return TrustError(
            f"The service offers configuration {self.offered}, which lacks {self.missing} of the {self.limited} "
            f"limited links in force. The limits stay. If this is intended, run `scionlab-bw-agent accept`; the "
            f"agent accepts it anyway when the service has offered it for {HOLD_S // 60} min.",
            code="links_vanished",
        )


def hold_of(document: object) -> Hold:
    """Inverse of `Hold.to_json`. Raises `ValueError`."""
    kinds = {"in_force": str, "offered": str, "missing": int, "limited": int, "since_s": int}
    if not isinstance(document, dict) or {key: type(value) for key, value in document.items()} != kinds:
        raise ValueError("it is not a hold")
    return Hold(**document)


def missing_links(in_force: Bundle, offered: Bundle) -> tuple[int, int]:
    """Number of limited links in force that the other one does not limit, and of those in force."""
    before = {number for number, link in in_force.links.items() if link.is_user_as}
    after = {number for number, link in offered.links.items() if link.is_user_as}
    return len(before - after), len(before)


def hold_for(
    in_force: Bundle | None, offered: Bundle, former: Hold | None, now_s: int, *, is_accepted: Callable[[], bool]
) -> Hold | None:
    """The hold for `offered`; None if it may be accepted. `former` is the hold at the time of the poll; `is_accepted`:
    the operator accepted this configuration."""
    if in_force is None:
        return None
    missing, limited = missing_links(in_force, offered)
    if limited <= _FEW or 2 * missing <= limited or is_accepted():
        return None
    if former is None or former.in_force != in_force.name or former.since_s > now_s:
        return Hold(in_force.name, offered.version, missing, limited, now_s)
    if former.left_s(now_s) == 0:
        return None
    return replace(former, offered=offered.version, missing=missing, limited=limited)
