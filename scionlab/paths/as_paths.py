"""Combined capacity of a user AS's Links: limits, their sum, and shared bottlenecks.

Computed from rows; nothing is probed. A figure is the maximum of several Links together: other users' traffic at the
same attachment point, and the AS's own connection, are unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import gcd
from typing import Annotated, Final, Literal, NamedTuple, TypeVar

from bandwidth_config import Limits, format_kbit
from scionlab.enforcement.status import LinkStatus, link_status
from scionlab.limits.measured import LastTest, UsagePoint, last_tests, usage_of_links
from scionlab.testbed import selectors
from scionlab.testbed.models import AttachmentPoint, UserAS

LOOKED_BACK: Final = timedelta(hours=1)
MAX_WEIGHT: Final = 50
BottleneckKind = Literal["attachment_point", "address"]
_Key = TypeVar("_Key")
NOTHING: Final = Limits(0, 0)


@dataclass(frozen=True)
class PathLine:
    """One active Link. `weights` are its shares of a transfer over all Links; `published_kbit` is its number in SCION's
    path metadata, None if not published."""

    status: LinkStatus
    attachment_point: AttachmentPoint
    weights: Limits
    used: UsagePoint | None
    last_test: LastTest | None
    published_kbit: int | None


class Bottleneck(NamedTuple):
    """One or more Links that together carry at most `most`; None: unknown."""

    kind: BottleneckKind
    link_ids: list[int]
    most: Limits | None
    text: Annotated[str, "For people."]


@dataclass(frozen=True)
class PathsReport:
    """`total` is the sum of the limits, `most` the same after shared bottlenecks."""

    lines: list[PathLine]
    bottlenecks: list[Bottleneck] = field(default_factory=list)
    total: Limits = NOTHING
    most: Limits = NOTHING

    @property
    def text(self) -> str:
        if not self.lines:
            return "This AS has no active link."
        several = f"The {len(self.lines)} active links together carry"
        return f"{'The active link carries' if len(self.lines) == 1 else several} at most {_both(self.most)}."


def paths_report(user_as: UserAS, *, now: datetime) -> PathsReport:
    """Report on the active, limited Links; five SQL statements for any number of Links."""
    found = [(link_status(link, now=now), link.attachment_point) for link in selectors.links_of(user_as) if link.active]
    limited = [(status, ap) for status, ap in found if ap is not None]
    ids = [status.link.pk for status, _ in limited]
    used, tests = usage_of_links(set(ids), begins_at=now - LOOKED_BACK), last_tests(ids, now=now)
    weights = [weights_of([getattr(status.wanted, name) for status, _ in limited]) for name in Limits._fields]
    lines = [
        PathLine(
            status, ap, Limits(*both), used.get(status.link.pk), tests.get(status.link.pk), status.link.published_kbit
        )
        for (status, ap), both in zip(limited, zip(*weights, strict=True), strict=True)
    ]
    return _report(lines)


def weights_of(limits_kbit: Sequence[int]) -> list[int]:
    """Shares in proportion to the limits: the smallest integers, at most `MAX_WEIGHT`. A blocked Link has 0, any other
    at least 1."""
    highest = max(limits_kbit, default=0)
    divisor = gcd(*limits_kbit) or 1
    if highest > MAX_WEIGHT * divisor:
        limits_kbit = [max(1, round(MAX_WEIGHT * one / highest)) if one else 0 for one in limits_kbit]
        divisor = gcd(*limits_kbit) or 1
    return [one // divisor for one in limits_kbit]


def _report(lines: list[PathLine]) -> PathsReport:
    bottlenecks, most = [], NOTHING
    for ap, several in _grouped((one.attachment_point, one) for one in lines):
        at_ap, bottleneck = _at_attachment_point(ap, several)
        most = _sum([most, at_ap])
        bottlenecks += [] if bottleneck is None else [bottleneck]
    own = [(one.status.link.interface_b, one) for one in lines]
    for address, several in _grouped((end.public_ip, one) for end, one in own if end.vpn_client_id is None):
        if len({one.attachment_point for one in several}) > 1:
            places = ", ".join(one.attachment_point.AS.isd_as for one in several)
            text = f"Your ends of the links to {places} have the same address, {address}: they share its connection."
            bottlenecks.append(Bottleneck("address", _ids(several), None, text))
    return PathsReport(lines, bottlenecks, _sum(one.status.wanted for one in lines), most)


def _at_attachment_point(ap: AttachmentPoint, lines: list[PathLine]) -> tuple[Limits, Bottleneck | None]:
    """The capacity of the Links there, and the bottleneck if they share one or exceed it."""
    wanted = _sum(one.status.wanted for one in lines)
    caps = {"uplink": ap.uplink_kbit, "total of all links": ap.total_kbit}
    tight = {name: kbit for name, kbit in caps.items() if kbit is not None and kbit < max(wanted)}
    most = Limits(*(min([one, *tight.values()]) for one in wanted))
    if len(lines) == 1 and not tight:
        return most, None
    where = ap.AS.isd_as
    opening = f"The link to {where} carries" if len(lines) == 1 else f"The {len(lines)} links to {where} together carry"
    text = f"{opening} at most {_both(most)}"
    reasons = " and ".join(f"its {name} is {format_kbit(kbit)}" for name, kbit in tight.items())
    text += f": {reasons}, shared with the links of other ASes." if reasons else "."
    return most, Bottleneck("attachment_point", _ids(lines), most, text)


def _grouped(pairs: Iterable[tuple[_Key, PathLine]]) -> list[tuple[_Key, list[PathLine]]]:
    found: dict[_Key, list[PathLine]] = {}
    for key, one in pairs:
        found.setdefault(key, []).append(one)
    return list(found.items())


def _sum(several: Iterable[Limits]) -> Limits:
    rows = list(several)
    return Limits(sum(one.to_user_kbit for one in rows), sum(one.from_user_kbit for one in rows))


def _ids(lines: Sequence[PathLine]) -> list[int]:
    return [one.status.link.pk for one in lines]


def _both(limits: Limits) -> str:
    if limits.is_symmetric:
        return f"{format_kbit(limits.to_user_kbit)} in each direction"
    return f"{format_kbit(limits.to_user_kbit)} to the AS and {format_kbit(limits.from_user_kbit)} from it"
