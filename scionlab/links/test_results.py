"""Results of tests: what an attachment point measured, taken in pieces until it says that it is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db import transaction
from django.utils import timezone

from scionlab.models import LinkTest, TestResult
from scionlab.platform.retry import retried

MAX_SAMPLES = 1300  # of the longest test, twice: an agent that was started again may repeat itself


class SideSample(NamedTuple):
    """One direction at one moment, as docs/api.md has it."""

    segment: str
    rate_kbit: int
    passed_bytes: int
    passed_packets: int
    dropped_bytes: int
    dropped_packets: int


class Sample(NamedTuple):
    at_ms: int
    clock_ms: int
    in_force: bool
    to_user: SideSample
    from_user: SideSample


@dataclass(frozen=True)
class Upload:
    """A piece of one result; `is_final`: the last one."""

    test_id: str
    agent_version: str
    is_final: bool
    samples: Sequence[Sample]


@retried
@transaction.atomic
def result_store(*, host_id: int, upload: Upload, now: datetime | None = None) -> bool:
    """Add what is new of the samples; whether anything was stored. Nothing of a test that is final, unknown, or of
    another host. Samples that are there stay as they are."""
    tests = LinkTest.objects.filter(test_id=upload.test_id, link__interface_a__host=host_id)
    test = tests.select_for_update(of=("self",), no_key=True).first()
    if test is None:
        return False
    row = TestResult.objects.filter(test=test).first() or TestResult(test=test)
    if row.is_final:
        return False
    known: dict[int, Any] = {one[0]: one for one in row.samples}
    for one in upload.samples:
        if len(known) < MAX_SAMPLES:
            known.setdefault(one.at_ms, [one.at_ms, one.clock_ms, one.in_force, list(one.to_user), list(one.from_user)])
    row.samples = [known[at_ms] for at_ms in sorted(known)]
    row.is_final, row.agent_version = upload.is_final, upload.agent_version
    row.received_at = now or timezone.now()
    row.save()
    return True
