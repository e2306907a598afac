"""Results of tests: what an attachment point measured, taken in pieces until it says that it is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db import transaction
from django.utils import timezone

from scionlab.models import LinkTest, TestResult
from scionlab.platform.retry import retried

MAX_SAMPLES = 1300  # of the longest test, twice: an agent that was started again may repeat itself


class SideSample(NamedTuple):
    """One direction at one moment, as docs/api.md has it. Agents of before do not tell `lost_packets`."""

    segment: str
    rate_kbit: int
    passed_bytes: int
    passed_packets: int
    dropped_bytes: int
    dropped_packets: int
    lost_packets: int = 0


class Sample(NamedTuple):
    at_ms: int
    clock_ms: int
    in_force: bool
    to_user: SideSample
    from_user: SideSample


@dataclass(frozen=True)
class Upload:
    """A piece of one result; `is_final`: the last one. `report`: what the end of a test that sends counted
    (`station.report`), None where it is not in this piece."""

    test_id: str
    agent_version: str
    is_final: bool
    samples: Sequence[Sample]
    report: Mapping[str, Any] | None = None


@retried
@transaction.atomic
def result_store(*, host_id: int, upload: Upload, now: datetime | None = None) -> bool:
    """Add what is new of the samples; whether anything was stored. Nothing of a test that is final, unknown, or of
    another host. Samples that are there stay as they are."""
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
    row.received_at = now or timezone.now()
    row.save()
    return True


@retried
@transaction.atomic
def user_report_store(*, test_id: int, report: Mapping[str, Any], now: datetime | None = None) -> bool:
    """Keep what the user's end of a test that sends counted; whether it is the first. A second one changes nothing.
    `test_id` is the primary key."""
    LinkTest.objects.select_for_update(of=("self",), no_key=True).get(pk=test_id)
    values = {"report": report, "received_at": now or timezone.now(), "is_final": True}
    _, is_first = TestResult.objects.get_or_create(test_id=test_id, side=TestResult.Side.USER, defaults=values)
    return is_first
