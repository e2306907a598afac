"""What this service knows about the links of pasted SCION paths. Nothing is stored or guessed.

Figures are visible to those who may see the Link's own page: its owner and administrators. Of another user's Link only
what SCION makes public is shown: that an active one exists, and the limit published in path metadata. An inactive Link
of another user is not shown at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Literal, NamedTuple

from django.db.models import Q

from bandwidth_config import format_kbit
from scionlab.accounts.models import User
from scionlab.enforcement.directions import DirectionName
from scionlab.enforcement.status import LinkStatus, link_status
from scionlab.limits.measured import DirectionUsage, LastTest, UsagePoint, last_tests, usage_of_links
from scionlab.paths.scion_path import Path, PathInterface, PathLink, Probe, parse_paths, parse_traceroute
from scionlab.platform.field_errors import FieldRuleError, at_field
from scionlab.testbed.models import Link
from scionlab.testbed.selectors import with_relations

LOOKED_BACK: Final = timedelta(hours=1)

# shown: with figures; published: another user's, with the published limit; withheld: another user's, without.
Kind = Literal["shown", "published", "withheld", "not_limited", "registered_otherwise", "unknown"]
_WORDS: Final[dict[Kind, str]] = {
    "shown": "",
    "published": "Another user's link. Its attachment point publishes this limit, the lower of the two directions.",
    "withheld": "Another user's link. It is limited, and its limit is not public.",
    "not_limited": "This service does not limit this link.",
    "registered_otherwise": "One of the interfaces belongs to another link in this service.",
    "unknown": "Not registered in this service.",
}
_NOT_KNOWN: Final[dict[Kind, tuple[str, str]]] = {  # singular and plural
    "shown": ("1 limit that is not confirmed", "{} limits that are not confirmed"),
    "withheld": ("1 limit of another user", "{} limits of other users"),
    "not_limited": ("the capacity of 1 link without a limit", "the capacity of {} links without a limit"),
    "registered_otherwise": ("1 link that is registered otherwise", "{} links that are registered otherwise"),
    "unknown": ("1 link that is not registered", "{} links that are not registered"),
}


class RoundTrips(NamedTuple):
    """Round trip times to both interfaces of a link [ms]; None if unknown."""

    leaves: float | None = None
    enters: float | None = None


NOT_TRACED: Final = RoundTrips()


@dataclass(frozen=True)
class LinkView:
    """One link of a path, in the direction of travel. `status` (and `direction`) only if the reader may see it;
    `enforced_kbit` is confirmed from the kernel."""

    ends: PathLink
    kind: Kind
    direction: DirectionName | None = None
    status: LinkStatus | None = None
    limit_kbit: int | None = None
    enforced_kbit: int | None = None
    used: DirectionUsage | None = None
    last_test: LastTest | None = None
    rtts_ms: RoundTrips = NOT_TRACED
    is_narrowest: bool = False

    @property
    def known_kbit(self) -> int | None:
        return self.limit_kbit if self.kind == "published" else self.enforced_kbit

    @property
    def text(self) -> str:
        return _WORDS[self.kind] if self.status is None else self.status.text


@dataclass(frozen=True)
class PathView:
    links: list[LinkView]

    @property
    def hops(self) -> list[str]:
        return [self.links[0].ends.leaves.isd_as, *(one.ends.enters.isd_as for one in self.links)]

    @property
    def is_traced(self) -> bool:
        return any(rtt is not None for one in self.links for rtt in one.rtts_ms)

    @property
    def narrowest_kbit(self) -> int | None:
        return next((one.known_kbit for one in self.links if one.is_narrowest), None)

    @property
    def text(self) -> str:
        """The narrowest known limit, and what is unknown."""
        missing = [one.kind for one in self.links if one.known_kbit is None]
        counts = {kind: missing.count(kind) for kind in _NOT_KNOWN}
        parts = [_NOT_KNOWN[kind][n > 1].format(n) for kind, n in counts.items() if n]
        return f"{self._known} Not known: {', '.join(parts)}." if parts else self._known

    @property
    def _known(self) -> str:
        narrowest = [one for one in self.links if one.is_narrowest]
        if not narrowest:
            return "No limit on this path is known to be in force."
        one = narrowest[0]
        where = f"from {one.ends.leaves.isd_as} to {one.ends.enters.isd_as}"
        where = where if len(narrowest) == 1 else f"on {len(narrowest)} links"
        blocked = ", which blocks the path" if one.known_kbit == 0 else ""
        return f"The narrowest known limit is {format_kbit(one.known_kbit or 0)} {where}{blocked}."


def path_views(paths_text: str, traceroute_text: str, *, reader: User, now: datetime) -> list[PathView]:
    """Look up all links; at most six SQL statements. Raises `FieldRuleError` at `paths` or `traceroute`: those of
    `paths.scion_path`, and `traceroute_elsewhere`."""
    with at_field("paths"):
        paths = parse_paths(paths_text)
    with at_field("traceroute"):
        probes = parse_traceroute(traceroute_text) if traceroute_text.strip() else []
    traced = [_is_along(probes, path) for path in paths]
    if not any(traced):
        raise FieldRuleError(
            "traceroute_elsewhere",
            "The traceroute is along none of these paths. Run scion traceroute with the --sequence of one of them.",
            "traceroute",
        )
    known = _looked_up(paths, reader, now)
    keys = {one.status.link.pk for one in known.values() if one.status is not None}
    used, tests = usage_of_links(keys, begins_at=now - LOOKED_BACK), last_tests(keys, now=now)
    known = {
        end: one if one.status is None else replace(one, last_test=tests.get(one.status.link.pk))
        for end, one in known.items()
    }
    return [
        _path_view([known[one] for one in path], used, probes if is_traced else [])
        for path, is_traced in zip(paths, traced, strict=True)
    ]


def _is_along(probes: Sequence[Probe], path: Path) -> bool:
    """A round trip belongs to one path: other paths may reach an interface differently."""
    interfaces = [end for one in path for end in one]
    along = zip(probes, interfaces, strict=False)
    return len(probes) <= len(interfaces) and all(probe.at in {None, end} for probe, end in along)


def _looked_up(paths: Sequence[Path], reader: User, now: datetime) -> dict[PathLink, LinkView]:
    wanted = {one for path in paths for one in path}
    there = _ends_there({end for one in wanted for end in one}, reader)
    keys = {one: there[one.leaves][0] for one in wanted if there.get(one.leaves, (0, None))[1] == one.enters}
    links = with_relations(Link.objects.filter(pk__in=set(keys.values()))).in_bulk()
    found: dict[PathLink, LinkView] = {}
    for one in wanted:
        link = links.get(keys.get(one, 0))
        if link is None:
            is_elsewhere = one.leaves in there or one.enters in there
            found[one] = LinkView(one, "registered_otherwise" if is_elsewhere else "unknown")
        else:
            found[one] = _link_view(one, link, reader, now)
    return found


def _ends_there(ends: set[PathInterface], reader: User) -> dict[PathInterface, tuple[int, PathInterface]]:
    """Interfaces with a Link that the reader may know of: its key and its other end."""
    may_know = Q() if reader.is_staff else Q(active=True) | Q(interface_b__AS__useras__owner=reader)
    ids = {"AS__as_id__in": {end.as_id for end in ends}, "interface_id__in": {end.interface_id for end in ends}}
    a, b = (Q(**{f"interface_{side}__{name}": values for name, values in ids.items()}) for side in "ab")
    columns = [
        f"interface_{side}__{name}" for side in "ab" for name in ("AS__isd__isd_id", "AS__as_id", "interface_id")
    ]
    found: dict[PathInterface, tuple[int, PathInterface]] = {}
    for key, *row in Link.objects.filter(may_know, a | b).order_by().values_list("pk", *columns):
        here, there = PathInterface(*row[:3]), PathInterface(*row[3:])
        found |= {here: (key, there), there: (key, here)}
    return {end: found[end] for end in ends & found.keys()}


def _link_view(ends: PathLink, link: Link, reader: User, now: datetime) -> LinkView:
    if not link.is_limited:
        return LinkView(ends, "not_limited")
    if not reader.is_staff and link.interface_b.AS.useras.owner_id != reader.pk:
        published_kbit = link.published_kbit
        return LinkView(ends, "withheld" if published_kbit is None else "published", limit_kbit=published_kbit)
    status = link_status(link, now=now)
    leaves, a = ends.leaves, link.interface_a
    is_to_user = (leaves.isd, leaves.as_id, leaves.interface_id) == (a.AS.isd.isd_id, a.AS.as_id, a.interface_id)
    direction: DirectionName = "to_user" if is_to_user else "from_user"
    enforced_kbit = None if status.enforced is None else getattr(status.enforced, f"{direction}_kbit")
    limit_kbit: int = getattr(status.wanted, f"{direction}_kbit")
    return LinkView(ends, "shown", direction, status, limit_kbit, enforced_kbit)


def _path_view(links: Sequence[LinkView], used: Mapping[int, UsagePoint], probes: Sequence[Probe]) -> PathView:
    known = [one.known_kbit for one in links if one.known_kbit is not None]
    rtts = [one.rtt_ms for one in probes] + [None] * (2 * len(links) - len(probes))
    views = []
    for i, one in enumerate(links):
        point = used.get(one.status.link.pk) if one.status is not None else None
        views.append(
            replace(
                one,
                used=None if point is None or one.direction is None else getattr(point, one.direction),
                rtts_ms=RoundTrips(rtts[2 * i], rtts[2 * i + 1]),
                is_narrowest=one.known_kbit is not None and one.known_kbit == min(known),
            )
        )
    return PathView(views)
