"""Compares a receipt with the previous one, so that only differences cost anything.

Many receipts have the same digest as the previous one; then no Link is read and no row written (docs/performance.md).
Otherwise the rows are compared, and only Links with more than changed counters are read with their relations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Final, NamedTuple

from django.db.models import Q

from scionlab.enforcement.counters import COUNTERS
from scionlab.enforcement.directions import DIRECTIONS
from scionlab.enforcement.facts import IS_TIMED, covers, is_about, shows_wanted
from scionlab.enforcement.models import HostReceipt, LinkEnforcement
from scionlab.enforcement.receipt_format import LinkReceipt, Receipt
from scionlab.testbed import selectors
from scionlab.testbed.models import Link, TimedLimit

FORMAT: Final = "1"  # raise it when stored columns change: all links are then stored again
# State of the kernel and counters, by column name.
_DEVICES: Final = ("dev", "rate_kbit")
_STATED: Final = (
    *("kbit", "to_user_kbit", "from_user_kbit", "state", "problem"),
    *(f"{side}_{name}" for side in DIRECTIONS for name in _DEVICES),
)
_COUNTED: Final = tuple(f"{side}_{name}" for side in DIRECTIONS for name in COUNTERS)
_stated_of, _counted_of = attrgetter(*_STATED), attrgetter(*_COUNTED)
_WRITTEN: Final = [one.name for one in LinkEnforcement._meta.concrete_fields if one.name not in {"id", "link"}]


def mark_of(links_digest: str) -> str:
    """Derive the stored value from `Receipt.links_digest`."""
    return hashlib.sha256(f"{FORMAT}|{links_digest}".encode()).hexdigest()


@dataclass
class ReceiptChanges:
    """`links` are those with possibly more than changed counters, with their rows now and before; `written` are all
    rows to store, `silent` the Links whose row is to be removed. `is_plain`: the receipt covers only our Links, each as
    configured."""

    links: list[Link] = field(default_factory=list)
    rows: dict[int, LinkEnforcement] = field(default_factory=dict)
    old: Mapping[int, LinkEnforcement] = field(default_factory=dict)
    written: list[LinkEnforcement] = field(default_factory=list)
    silent: set[int] = field(default_factory=set)
    unknown: list[int] = field(default_factory=list)
    is_plain: bool = False

    def keep_only(self, link_ids: set[int]) -> None:
        self.rows = {pk: row for pk, row in self.rows.items() if pk in link_ids}
        self.written = [row for row in self.written if row.link_id in link_ids]

    def store(self) -> None:
        if self.silent:
            LinkEnforcement.objects.filter(link_id__in=self.silent).delete()
        if self.written:
            LinkEnforcement.objects.bulk_create(
                self.written, update_conflicts=True, unique_fields=["link"], update_fields=_WRITTEN, batch_size=1000
            )


def repeats(receipt: Receipt, former: HostReceipt, content: HostReceipt.Content) -> bool:
    """Whether the receipt repeats the previous one about the same configuration, which was and is the host's newest:
    then no Link has changed. `former` comes with its host."""
    known = (former.generation, former.config_version, former.limits_version)
    return (
        receipt.versions == known == (former.generation, former.host.config_version, former.host.limits_version)
        and content == former.content
        and not receipt.is_limiter_silent
        and former.links_digest == mark_of(receipt.links_digest)
    )


def same_again(host_id: int) -> ReceiptChanges:
    """The result for a receipt that `repeats`: steps of timed limits may have passed, for which mails are due."""
    timed = TimedLimit.objects.filter(link__interface_a__host=host_id, cancelled_at=None, retired_at=None)
    keys = set(timed.values_list("link", flat=True))
    if not keys:
        return ReceiptChanges(is_plain=True)
    rows = {row.link_id: row for row in LinkEnforcement.objects.filter(link__in=keys)}
    links = list(selectors.limited_links(host_id, Q(pk__in=rows)).values())
    return ReceiptChanges(links=links, rows=rows, old=rows, is_plain=True)


def all_news(host_id: int) -> ReceiptChanges:
    """All Links with a stored row, for the first receipt that counts after one of which nothing did."""
    rows = {row.link_id: row for row in LinkEnforcement.objects.filter(link__interface_a__host=host_id)}
    return ReceiptChanges(links=list(selectors.limited_links(host_id, Q(pk__in=rows)).values()), rows=rows)


def compare(
    host_id: int, receipt: Receipt, *, is_ours: bool, received_at: datetime, former_at: datetime
) -> ReceiptChanges:
    """Compare. `is_ours`: the receipt is about a current document of this service; otherwise it does not count."""
    ours = {one.interface_id: one for one in _ours(host_id)}
    old = {row.link_id: row for row in LinkEnforcement.objects.filter(link__interface_a__host=host_id)}
    unknown = sorted(receipt.links.keys() - ours.keys())
    spoken_of = {
        interface_id: one
        for interface_id, one in ours.items()
        if is_ours and interface_id in receipt.links and one.is_known_by(receipt)
    }
    is_plain = len(spoken_of) == len(receipt.links) and not receipt.is_limiter_silent
    found = ReceiptChanges(old=old, unknown=unknown, is_plain=is_plain)
    changed = set()
    for interface_id, one in spoken_of.items():
        row, before = _row(one.pk, receipt, receipt.links[interface_id], received_at), old.get(one.pk)
        found.rows[one.pk] = row
        if before is None or _stated_of(row) != _stated_of(before) or one.covered_by(row) != one.covered_by(before):
            found.written.append(row)
            changed.add(one.pk)
        else:
            row.since = before.since
            if _counted_of(row) != _counted_of(before):
                found.written.append(row)
            if one.is_timed:
                changed.add(one.pk)
    if changed:
        found.links = list(selectors.limited_links(host_id, Q(pk__in=changed)).values())
    for link in found.links:
        row, before = found.rows[link.pk], old.get(link.pk)
        if before is not None and _is_as_before(link, row, before, received_at=received_at, former_at=former_at):
            row.since = before.since
    if receipt.is_limiter_silent:  # stays unknown: nothing counts as in force until the next receipt
        found.keep_only({pk for pk, row in found.rows.items() if pk in old and row.since == old[pk].since})
        found.links = []  # it confirms nothing
    found.silent = old.keys() - found.rows.keys()
    return found


class _Ours(NamedTuple):
    """The columns of a Link that a receipt is compared with: its wanted limits and the versions of its host."""

    interface_id: int
    pk: int
    wanted_config_version: int
    wanted_limits_version: int
    config_version: int
    limits_version: int
    is_timed: bool

    def is_known_by(self, receipt: Receipt) -> bool:
        """Whether the receipt's configuration contains the Link as it is now, whatever its bandwidth there. In an older
        one the interface id may belong to a deleted Link with another user's counters; one from the future (after a
        restored backup) is not ours."""
        return receipt.version is not None and self.wanted_config_version <= receipt.version[1] <= self.config_version

    def covered_by(self, row: LinkEnforcement) -> bool:
        """Whether a row of the current generation covers it."""
        wanted = (self.wanted_config_version, self.wanted_limits_version)
        newest = (self.config_version, self.limits_version)
        return covers(row, wanted=wanted, newest=newest, generation=row.generation or 0)


def _ours(host_id: int) -> list[_Ours]:
    """Read the Links; one statement, tens of microseconds each."""
    links = Link.objects.filter(selectors.USER_LINKS, interface_a__host_id=host_id)
    near = "interface_a__"
    columns = (f"{near}interface_id", "pk", "wanted_config_version", "wanted_limits_version")
    host = (f"{near}host__config_version", f"{near}host__limits_version")
    return [_Ours(*row) for row in links.values_list(*columns, *host, IS_TIMED)]


def _row(link_id: int, receipt: Receipt, said: LinkReceipt, received_at: datetime) -> LinkEnforcement:
    row = LinkEnforcement(
        link_id=link_id,
        kbit=said.limits.lowest_kbit,
        to_user_kbit=said.limits.to_user_kbit,
        from_user_kbit=said.limits.from_user_kbit,
        state=said.state,
        problem=said.problem or "",
        since=received_at,
        received_at=received_at,
        generation=receipt.version[0] if receipt.version else None,
        config_version=receipt.version[1] if receipt.version else None,
        limits_version=receipt.limits_version,
    )
    for side in DIRECTIONS:
        direction = getattr(said, side)
        if direction is not None:
            for name in (*_DEVICES, *COUNTERS):
                setattr(row, f"{side}_{name}", getattr(direction, name))
    return row


def _is_as_before(
    link: Link, row: LinkEnforcement, old: LinkEnforcement, *, received_at: datetime, former_at: datetime
) -> bool:
    """Whether the kernel has the same for the Link as it is now; a change of the Link restarts the time."""
    if (row.state, is_about(link, row)) != (old.state, is_about(link, old)):
        return False
    if row.state == LinkEnforcement.State.OBSERVED:
        return True
    if row.state != LinkEnforcement.State.ENFORCED:
        return row.wanted == old.wanted
    if (row.wanted, row.in_kernel) == (old.wanted, old.in_kernel):
        return True
    # Different numbers, because a timed limit began, stepped or ended in between: as wanted all the time.
    return shows_wanted(link, row, at=received_at) and shows_wanted(link, old, at=former_at)
