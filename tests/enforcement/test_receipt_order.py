"""Which receipt is the newest, and which document it is about (docs/api.md, docs/adr/0023)."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from scionlab.delivery.render import config_for
from scionlab.enforcement.generation import generation_raise
from scionlab.enforcement.models import HostReceipt, LinkEnforcement
from scionlab.enforcement.receipt import Stored, receipt_refused, receipt_store
from scionlab.enforcement.receipt_format import parse_receipt
from scionlab.linktests.models import LinkTest
from scionlab.platform.metrics.names import SAVE_TO_KERNEL
from scionlab.testbed.models import Host, Link
from tests.cases import table
from tests.enforcement.test_receipt import document, link_entry

pytestmark = pytest.mark.django_db

T0 = datetime(2026, 11, 21, 6, 0, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
RUN, OTHER_RUN = "a" * 32, "b" * 32


def send(host: Host, *, received_at: datetime, observed_at: datetime | None = None, **values: Any) -> Stored:
    links = values.pop("links", {"1": link_entry(1000)})
    body = document(host, links, observed_at=(observed_at or received_at).isoformat(), **values)
    return receipt_store(host_id=host.pk, receipt=parse_receipt(json.dumps(body).encode()), now=received_at)


def heard() -> datetime:
    return HostReceipt.objects.get().received_at


def test_receipt_that_comes_again_renews_nothing(host: Host) -> None:
    """A proxy, or a thief of the credentials, sends what an agent without count said once, for ever."""
    assert send(host, received_at=T0).stored
    assert not send(host, observed_at=T0, received_at=T0 + 60 * SECOND).stored
    assert heard() == LinkEnforcement.objects.get().received_at == T0


@table(("number", "is_stored"), [(1, False), (2, False), (3, True), (2**63 - 1, True)])
def test_number_decides_within_a_run_and_no_clock(host: Host, number: int, is_stored: bool) -> None:
    assert send(host, received_at=T0, run=RUN, number=2).stored
    later, said = T0 + 60 * SECOND, {"1": link_entry(1000), "77": link_entry(5)}
    stored = send(host, received_at=later, observed_at=T0 + SECOND, run=RUN, number=number, links=said)
    assert stored == Stored(stored=is_stored, unknown_links=[77] if is_stored else [])
    assert heard() == (later if is_stored else T0)


def test_clock_that_steps_back_does_not_silence_an_agent_that_counts(host: Host) -> None:
    assert send(host, received_at=T0, run=RUN, number=1).stored
    assert send(host, received_at=T0 + SECOND, observed_at=T0 - timedelta(days=9), run=RUN, number=2).stored
    receipt = HostReceipt.objects.get()
    assert (receipt.run, receipt.number, receipt.received_at) == (RUN, 2, T0 + SECOND)
    assert receipt.observed_at == T0 - timedelta(days=9)


def test_another_start_of_the_agent_begins_to_count_anew(host: Host) -> None:
    assert send(host, received_at=T0, run=RUN, number=900).stored
    assert send(host, received_at=T0 + SECOND, observed_at=T0 - SECOND, run=OTHER_RUN, number=1).stored


def test_agent_that_counts_follows_one_that_did_not_and_the_reverse(host: Host) -> None:
    assert send(host, received_at=T0).stored
    assert send(host, received_at=T0 + SECOND, observed_at=T0 - SECOND, run=RUN, number=1).stored
    assert not send(host, received_at=T0 + 2 * SECOND, observed_at=T0 - SECOND).stored
    assert send(host, received_at=T0 + 3 * SECOND, observed_at=T0).stored
    receipt = HostReceipt.objects.get()
    assert (receipt.run, receipt.number) == ("", None)


@table(("said", "kept"), [(0, 0), (-1500, -1500), (None, None), (10**13, 2**31 - 1), (-(10**13), -(2**31) + 1)])
def test_skew_of_the_clock_is_kept_within_its_column(host: Host, said: int | None, kept: int | None) -> None:
    send(host, received_at=T0, clock_skew_ms=said)
    assert HostReceipt.objects.get().clock_skew_ms == kept


# --- content ------------------------------------------------------------------------------------------------


def test_receipt_of_our_document_is_proven(host: Host, link: Link) -> None:
    digest = config_for(host).limits_digest
    assert send(host, received_at=T0, limits_digest=digest) == Stored(stored=True)
    receipt = HostReceipt.objects.get()
    assert (receipt.content, receipt.limits_digest) == ("proven", digest)
    assert LinkEnforcement.objects.get().link == link


def test_receipt_of_another_document_counts_for_nothing(host: Host) -> None:
    digest = config_for(host).limits_digest
    send(host, received_at=T0, limits_digest=digest)
    assert LinkEnforcement.objects.count() == 1
    foreign = send(host, received_at=T0 + SECOND, limits_digest="f" * 64)
    assert foreign == Stored(stored=True, evidence_wanted=True)
    receipt = HostReceipt.objects.get()
    assert (receipt.content, receipt.limits_digest) == ("foreign", "f" * 64)
    assert not LinkEnforcement.objects.exists()


def test_our_document_of_another_version_or_host_is_not_what_the_receipt_names(host: Host, host_b: Host) -> None:
    former = config_for(host).limits_digest
    Host.objects.filter(pk=host.pk).update(limits_version=host.limits_version + 1)
    assert send(host, received_at=T0, limits_digest=former).evidence_wanted is False, "the same bytes, rendered anew"
    assert send(host, received_at=T0 + SECOND, limits_digest=config_for(host_b).limits_digest).evidence_wanted
    assert HostReceipt.objects.get().content == "foreign"


def test_agent_too_old_for_a_digest_is_judged_by_counters(host: Host) -> None:
    assert send(host, received_at=T0) == Stored(stored=True)
    receipt = HostReceipt.objects.get()
    assert (receipt.content, receipt.limits_digest) == ("counted", "")
    assert LinkEnforcement.objects.count() == 1


def test_agent_without_a_bundle_proves_that_it_has_none(host: Host) -> None:
    named = {"version": None, "limits_version": None, "limits_digest": None}
    assert send(host, received_at=T0, links={}, **named) == Stored(stored=True)
    assert HostReceipt.objects.get().content == "proven"


def test_proven_receipt_of_an_older_generation_counts_for_nothing(host: Host) -> None:
    digest = config_for(host).limits_digest
    generation_raise()
    assert send(host, received_at=T0, limits_digest=digest) == Stored(stored=True)
    assert not LinkEnforcement.objects.exists()


def test_proof_costs_one_statement(host: Host, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    digest = config_for(host).limits_digest
    send(host, received_at=T0, limits_digest=digest)
    body = document(host, {"1": link_entry(1000)}, limits_digest=digest, run=RUN, number=1)
    receipt = parse_receipt(json.dumps(body).encode())
    # the document; savepoint, receipt locked, generation, timed limits, receipt written, savepoint released
    with django_assert_num_queries(7):
        receipt_store(host_id=host.pk, receipt=receipt, now=T0 + SECOND)


# --- tests that a receipt arms --------------------------------------------------------------------------------


SILENT = {"problems": [{"code": "limiter_silent", "subject": "limiter", "message": "no answer"}]}


@table(
    ("sender", "values", "is_armed"),
    [
        ("own", {}, True),
        ("own", SILENT, False),
        ("own", {"limits_digest": "f" * 64}, False),
        ("own", {"version": "2.1"}, False),
        ("other", {}, False),
    ],
)
def test_a_test_is_armed_by_a_working_limiter_of_its_own_host_alone(
    host: Host, host_b: Host, link: Link, sender: str, values: dict[str, Any], is_armed: bool
) -> None:
    test = LinkTest.objects.create(link=link, tool="watch", begins_at=T0, ends_at=T0 + 60 * SECOND)
    by = {"own": host, "other": host_b}[sender]
    assert send(by, received_at=T0 - SECOND, tests=[test.test_id], **values).stored
    test.refresh_from_db()
    assert test.armed_at == (T0 - SECOND if is_armed else None)


def test_the_reason_of_a_refusal_is_kept_to_its_bound(host: Host) -> None:
    assert send(host, received_at=T0).stored
    receipt_refused(host_id=host.pk, why="x" * 301)
    assert HostReceipt.objects.get().refusal == "x" * 300


def test_the_delay_of_a_save_is_measured_once(host: Host, link: Link) -> None:
    def delays() -> tuple[float, float]:
        samples = {one.name: one.value for one in next(iter(SAVE_TO_KERNEL.collect())).samples}
        return samples["scionlab_save_to_kernel_seconds_count"], samples["scionlab_save_to_kernel_seconds_sum"]

    count, total = delays()
    Link.objects.update(changed_at=T0)
    wrong = {"1": link_entry(999)}
    for seconds, links in ((7, None), (8, None), (9, wrong), (10, None)):
        said = {} if links is None else {"links": links}
        assert send(host, received_at=T0 + seconds * SECOND, run=RUN, number=seconds, **said).stored
    assert delays() == (count + 1, pytest.approx(total + 7)), "drift is no save"


def test_what_is_not_enforced_yet_is_no_delay(host: Host, link: Link) -> None:
    before = [one.value for one in next(iter(SAVE_TO_KERNEL.collect())).samples if one.name.endswith("_count")]
    assert send(host, received_at=T0, links={"1": link_entry(999)}).stored
    assert send(host, received_at=T0 + SECOND, links={}).stored
    assert [one.value for one in next(iter(SAVE_TO_KERNEL.collect())).samples if one.name.endswith("_count")] == before


def test_an_agent_that_does_not_count_has_no_run(host: Host) -> None:
    assert send(host, received_at=T0).stored
    row = HostReceipt.objects.get()
    assert (row.run, row.number, row.clock_skew_ms) == ("", None, None)
