"""Stores test results: an attachment point uploads samples in pieces until it marks the last one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db import transaction

from scionlab.linktests.models import LinkTest, TestResult
from scionlab.platform.clock import database_now
from scionlab.platform.retry import retried

MAX_SAMPLES = 1300  # twice the longest test: a restarted agent may repeat samples


class SideSample(NamedTuple):
    """One direction at one moment (docs/api.md)."""

    segment: str
    rate_kbit: int
    passed_bytes: int
    passed_packets: int
    dropped_bytes: int
    dropped_packets: int
    lost_packets: int


class Sample(NamedTuple):
    at_ms: int
    clock_ms: int
    in_force: bool
    to_user: SideSample
    from_user: SideSample


@dataclass(frozen=True)
class Upload:
    """A piece of one result; `is_final`: the last one. `report`: counts of a sending end (`station.report`), None if
    not in this piece."""

    test_id: str
    agent_version: str
    is_final: bool
    samples: Sequence[Sample]
    report: Mapping[str, Any] | None = None


@retried
@transaction.atomic
def result_store(*, host_id: int, upload: Upload, now: datetime | None = None) -> bool:
    """Add new samples; return whether anything was stored. Tests that are final, unknown, or of another host are
    ignored. Stored samples are kept."""
    tests = LinkTest.objects.filter(test_id=upload.test_id, link__interface_a__host=host_id)
    test = tests.select_for_update(of=("self",), no_key=True).first()
    if test is None:
        return False
    row = TestResult.objects.filter(test=test, side=TestResult.Side.AP).first() or TestResult(test=test)
    if row.is_final:
        return False
    known: dict[int, Any] = {one[0]: one for one in row.samples}
    for one in upload.samples:
        if len(known) < MAX_SAMPLES:
            known.setdefault(one.at_ms, [one.at_ms, one.clock_ms, one.in_force, list(one.to_user), list(one.from_user)])
    row.samples = [known[at_ms] for at_ms in sorted(known)]
    if test.sends and row.report is None:
        row.report = upload.report
    row.is_final, row.agent_version = upload.is_final, upload.agent_version
    row.received_at = now or database_now()
    row.save()
    return True


@retried
@transaction.atomic
def user_report_store(*, test_id: int, report: Mapping[str, Any], now: datetime | None = None) -> bool:
    """Store the report of the user's end; return whether it is the first. A second one is ignored. `test_id` is the
    primary key."""
    LinkTest.objects.select_for_update(of=("self",), no_key=True).get(pk=test_id)
    values = {"report": report, "received_at": now or database_now(), "is_final": True}
    _, is_first = TestResult.objects.get_or_create(test_id=test_id, side=TestResult.Side.USER, defaults=values)
    return is_first
