"""Ingests batches of agents: each counter is compared with what is already counted.

A constant number of SQL statements for any number of links. docs/adr/0015 has the decisions, docs/api.md the contract.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, NamedTuple

from django.db import transaction
from django.db.models import QuerySet
from msgspec import structs

from scionlab.enforcement.counters import KEPT, counts_of
from scionlab.enforcement.directions import DIRECTIONS, DirectionName
from scionlab.enforcement.models import HostReceipt
from scionlab.platform.clock import database_now
from scionlab.platform.notation.isd_as import format_isd_as
from scionlab.platform.retry import retried
from scionlab.testbed import selectors
from scionlab.testbed.models import Host, Link
from scionlab.usage.batch import Batch, DirectionSamples, Sample
from scionlab.usage.counting import Known, count
from scionlab.usage.models import UsageBatch, UsageCounter, UsageSamples, UsageSeries
from scionlab.usage.packing import pack
from scionlab.usage.rows import MAX_STORED
from scionlab.usage.totals import DAY_MS, Interval, of_ms, to_ms

logger = logging.getLogger(__name__)

# An agent's clock is trusted within these bounds. A batch that ends outside of them is shifted to end at its arrival:
# its bytes are counted now, and its rates stay. Agents keep samples for 2 days (docs/agent.md).
AHEAD_MS: Final = 5 * 60_000
BEHIND_MS: Final = 3 * DAY_MS


@dataclass(frozen=True)
class Stored:
    """`stored` is false for a known batch; `ignored_links` have no Link in its configuration."""

    stored: bool
    ignored_links: list[int] = field(default_factory=list)


class End(NamedTuple):
    link_id: int
    attachment_point_id: int
    ap_isd_as: str
    isd_as: str
    owner_email: str
    wanted_config_version: int


@retried
def usage_store(*, host_id: int, batch: Batch, now: datetime | None = None) -> Stored:
    """Count the batch once. One transaction; the host's series are locked in the order of their keys."""
    received_at = now or database_now()
    batch = _believable(batch, to_ms(received_at), host_id)
    with transaction.atomic():
        row, is_new = UsageBatch.objects.get_or_create(
            host_id=host_id, key=batch.key, defaults={"received_at": received_at, "ends_at": of_ms(batch.times_ms[-1])}
        )
        if not is_new:
            return Stored(stored=False)
        series = _series(host_id, batch)
        _count(row, batch, series)
    ignored = sorted(batch.links.keys() - series.keys())
    if ignored:
        logger.info("usage.ignored host=%s version=%s.%s interface_ids=%s", host_id, *batch.version, ignored[:20])
    return Stored(stored=True, ignored_links=ignored)


# --- when -----------------------------------------------------------------------------------------------------


def _believable(batch: Batch, received_at_ms: int, host_id: int) -> Batch:
    earliest, latest = received_at_ms - BEHIND_MS, received_at_ms + AHEAD_MS
    ends_at_ms = batch.times_ms[-1]
    if earliest <= batch.times_ms[0] and ends_at_ms <= latest:
        return batch
    shift_ms = 0
    if not earliest <= ends_at_ms <= latest:
        shift_ms = received_at_ms - ends_at_ms
        logger.warning("usage.clock host=%s off_s=%d", host_id, -shift_ms // 1000)

    def moved(at_ms: int) -> int:
        return max(at_ms + shift_ms, earliest)

    links = {
        interface_id: {
            name: DirectionSamples(said.segment, [structs.replace(one, at_ms=moved(one.at_ms)) for one in said.samples])
            for name, said in directions.items()
        }
        for interface_id, directions in batch.links.items()
    }
    return replace(batch, times_ms=[moved(at_ms) for at_ms in batch.times_ms], links=links)


# --- series ---------------------------------------------------------------------------------------------------


def _series(host_id: int, batch: Batch) -> dict[int, UsageSeries]:
    """The locked series of the batch's interface ids in its configuration; created if missing. None while the host
    enforces a foreign document: its interface ids may belong to other Links."""
    generation, config_version = batch.version
    hosts = Host.objects.filter(pk=host_id).exclude(receipt__content=HostReceipt.Content.FOREIGN)
    newest = hosts.values_list("config_version", flat=True).first()
    if newest is None or generation != selectors.generation() or config_version > newest:
        return {}
    ends = ends_of(host_id)
    chosen = _locked(host_id, batch, ends)
    missing = {
        interface_id: end
        for interface_id, end in ends.items()
        if interface_id in batch.links
        and (interface_id not in chosen or chosen[interface_id].link_id != end.link_id)
        # In an older configuration the interface id may have belonged to a deleted Link.
        and end.wanted_config_version <= config_version
    }
    if missing:  # Links that the importer made, or from before this app was installed
        rows = [new_series(host_id, *one, one[1].wanted_config_version, config_version) for one in missing.items()]
        UsageSeries.objects.bulk_create(rows, ignore_conflicts=True)  # another batch may create them now
        chosen = _locked(host_id, batch, ends)
    _keep_up(chosen, ends, config_version)
    return chosen


def _locked(host_id: int, batch: Batch, ends: Mapping[int, End]) -> dict[int, UsageSeries]:
    """That of the Link with the interface id; otherwise, while the configuration contained it, that of a Link that
    ended meanwhile: its last traffic is billed, too."""
    version = batch.version[1]
    rows = (
        UsageSeries.objects.select_for_update(no_key=True)
        .filter(host_id=host_id, interface_id__in=list(batch.links), first_config_version__lte=version)
        .order_by("pk")
    )
    return {row.interface_id: row for row in rows if _has(ends, row) or version <= row.last_config_version}


def _has(ends: Mapping[int, End], row: UsageSeries) -> bool:
    """Whether the interface id is this Link's now."""
    end = ends.get(row.interface_id)
    return end is not None and end.link_id == row.link_id


def _keep_up(chosen: Mapping[int, UsageSeries], ends: Mapping[int, End], config_version: int) -> None:
    """Update to the newest configuration with the Link, and its owner's current address."""
    changed = []
    for interface_id, row in chosen.items():
        owner = ends[interface_id].owner_email if _has(ends, row) else row.owner_email
        if row.last_config_version < config_version or row.owner_email != owner:
            row.last_config_version = max(row.last_config_version, config_version)
            row.owner_email = owner
            changed.append(row)
    if changed:
        UsageSeries.objects.bulk_update(changed, ["last_config_version", "owner_email"], batch_size=1000)


def new_series(host_id: int, interface_id: int, end: End, first: int, last: int) -> UsageSeries:
    """Not saved. `first` and `last`: H of the host's configurations with the Link."""
    return UsageSeries(
        link_id=end.link_id,
        host_id=host_id,
        attachment_point_id=end.attachment_point_id,
        interface_id=interface_id,
        ap_isd_as=end.ap_isd_as,
        isd_as=end.isd_as,
        owner_email=end.owner_email,
        first_config_version=first,
        last_config_version=last,
    )


def ends_of(host_id: int, links: QuerySet[Link] | None = None) -> dict[int, End]:
    """The Links that this host limits, or those of them in `links`, by interface id. As plain values: thousands of
    objects with relations are slow."""
    found = Link.objects.all() if links is None else links
    rows = found.filter(
        type=Link.Type.PROVIDER,
        interface_a__host_id=host_id,
        interface_a__AS__attachment_point__isnull=False,
        interface_b__AS__useras__isnull=False,
    ).values_list(
        "interface_a__interface_id",
        "pk",
        "interface_a__AS__attachment_point__pk",
        "interface_a__AS__isd__isd_id",
        "interface_a__AS__as_id",
        "interface_b__AS__isd__isd_id",
        "interface_b__AS__as_id",
        "interface_b__AS__useras__owner__email",
        "wanted_config_version",
    )
    return {
        row[0]: End(row[1], row[2], format_isd_as(row[3], row[4]), format_isd_as(row[5], row[6]), row[7], row[8])
        for row in rows
    }


# --- how much -------------------------------------------------------------------------------------------------

_Key = tuple[int, str, str]


def _count(row: UsageBatch, batch: Batch, series: Mapping[int, UsageSeries]) -> None:
    counters = _counters(batch, series)
    changed: list[UsageCounter] = []
    samples: list[UsageSamples] = []
    for interface_id, one in series.items():
        found: dict[DirectionName, Sequence[Interval]] = {}
        for name, said in batch.links[interface_id].items():
            key = (one.pk, name, said.segment)
            found[name], counter = _direction(key, said.samples, counters.get(key))
            changed += [counter] if counter is not None else []
        rows = pack(*(found.get(name, ()) for name in DIRECTIONS))
        samples += [
            UsageSamples(batch=row, series=one, begins_at=of_ms(at_ms), packed=packed) for at_ms, packed in rows
        ]
    UsageSamples.objects.bulk_create(samples)
    UsageCounter.objects.bulk_create(
        changed,
        update_conflicts=True,
        unique_fields=["series", "direction", "segment"],
        update_fields=["at", *KEPT, "kbit", "limit_kbit", "backlog_bytes"],
    )


def _counters(batch: Batch, series: Mapping[int, UsageSeries]) -> dict[_Key, UsageCounter]:
    segments = {said.segment for directions in batch.links.values() for said in directions.values()}
    rows = UsageCounter.objects.filter(series__in=[one.pk for one in series.values()], segment__in=segments)
    return {(row.series_id, row.direction, row.segment): row for row in rows}


def _direction(
    key: _Key, samples: Sequence[Sample], counter: UsageCounter | None
) -> tuple[list[Interval], UsageCounter | None]:
    """What is new, and how far the segment is then counted; None if nothing is new."""
    known = None if counter is None else Known(*counts_of(counter), at_ms=to_ms(counter.at))
    counted = count(samples, known)
    if counted.restarts:
        logger.warning("usage.counter_went_back series=%s direction=%s segment=%s times=%s", *key, counted.restarts)
    if not counted.intervals or counted.known is None:
        return [], None
    last = counted.intervals[-1]
    return counted.intervals, UsageCounter(
        series_id=key[0],
        direction=key[1],
        segment=key[2],
        at=of_ms(counted.known.at_ms),
        **dict(zip(KEPT, counts_of(counted.known), strict=True)),
        kbit=None if last.kbit is None else min(last.kbit, MAX_STORED),
        limit_kbit=last.limit_kbit,
        backlog_bytes=last.backlog_bytes,
    )
