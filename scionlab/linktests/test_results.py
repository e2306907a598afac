"""Stores test results: an attachment point uploads samples in pieces until it marks the last one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from scionlab.linktests.models import LinkTest, TestResult
from scionlab.platform.clock import database_now
from scionlab.platform.retry import retried

MAX_SAMPLES = 1300  # twice the longest test: a restarted agent may repeat samples


@dataclass(frozen=True)
class Upload:
    """A piece of one result; `is_final`: the last one. `samples` are rows as `TestResult` stores them. `report`: counts
    of a sending end (`station.report`), None if not in this piece."""

    test_id: str
    is_final: bool
    samples: Sequence[Sequence[Any]]
    report: Mapping[str, Any] | None = None


@retried
@transaction.atomic
def result_store(*, host_id: int, upload: Upload) -> bool:
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
            known.setdefault(one[0], one)
    row.samples = [known[at_ms] for at_ms in sorted(known)]
    if test.sends and row.report is None:
        row.report = upload.report
    row.is_final, row.received_at = upload.is_final, database_now()
    row.save()
    return True


@retried
@transaction.atomic
def user_report_store(*, test_id: int, report: Mapping[str, Any]) -> bool:
    """Store the report of the user's end; return whether it is the first. A second one is ignored. `test_id` is the
    primary key."""
    LinkTest.objects.select_for_update(of=("self",), no_key=True).get(pk=test_id)
    values = {"report": report, "received_at": database_now(), "is_final": True}
    _, is_first = TestResult.objects.get_or_create(test_id=test_id, side=TestResult.Side.USER, defaults=values)
    return is_first
