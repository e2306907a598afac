"""What the service itself finds wrong with the reports of a host: two agents, contradictions, another address."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError
from django.test import Client
from django.utils import timezone

from scionlab.accounts.models import User
from scionlab.enforcement.agents import agent_of
from scionlab.enforcement.models import HostReceipt, LinkEnforcement
from scionlab.enforcement.receipt import receipt_store
from scionlab.enforcement.receipt_format import parse_receipt
from scionlab.enforcement.status import link_status
from scionlab.testbed import selectors
from scionlab.testbed.host import host_rotate_secret, host_set_addresses
from scionlab.testbed.models import Host, Link
from tests.enforcement.test_receipt import direction, document, link_entry, post
from tests.support.polling import credentials

pytestmark = pytest.mark.django_db

T0 = datetime(2026, 11, 21, 6, 0, 0, tzinfo=UTC)
LIVING, DEAD = "a" * 32, "b" * 32
FAILED = link_entry(1000, state="error", problem="No.", to_user=None, from_user=None)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def say(host: Host, when_s: float, *, run: str, number: int, address: str | None = None, **values: Any) -> bool:
    """Whether it was stored."""
    said = {"1": link_entry(1000)} if "links" not in values else values.pop("links")
    body = document(host, said, observed_at=at(when_s).isoformat(), run=run, number=number, **values)
    receipt = parse_receipt(json.dumps(body).encode())
    return receipt_store(host_id=host.pk, receipt=receipt, now=at(when_s), address=address).stored


def judged(link: Link, when_s: float) -> tuple[str, str]:
    found = link_status(selectors.with_relations(Link.objects.all()).get(pk=link.pk), now=at(when_s))
    return found.word, found.text


def problems(host: Host, when_s: float) -> dict[str, str]:
    found = agent_of(Host.objects.select_related("receipt", "AS__isd").get(pk=host.pk), "it", now=at(when_s))
    return {one.code: one.message for one in found.problems}


# --- two agents -----------------------------------------------------------------------------------------------------


def test_late_receipt_of_a_superseded_run_never_replaces_what_its_successor_said(host: Host, link: Link) -> None:
    assert say(host, 0, run=LIVING, number=7)
    assert say(host, 10, run=DEAD, number=1, links={"1": FAILED})
    assert not say(host, 11, run=LIVING, number=8)
    assert not say(host, 12, run=LIVING, number=6)
    assert judged(link, 13)[0] == "Failed"
    assert problems(host, 13) == {}, "it was in transit"


def test_superseded_run_that_comes_back_is_a_second_agent_and_nothing_counts(host: Host, link: Link) -> None:
    say(host, 0, run=LIVING, number=7, address="203.0.113.7")
    say(host, 10, run=DEAD, number=1, address="203.0.113.8")
    assert judged(link, 11)[0] == "Enforced"
    assert not say(host, 71, run=LIVING, number=8, address="203.0.113.7")
    assert problems(host, 72)["two_agents"] == (
        "A second agent reports with the credentials of this host from 203.0.113.7; the newest one from 203.0.113.8."
    )
    word, text = judged(link, 72)
    assert word == "Failed"
    assert "two agents report with the credentials of this host" in text

    for when_s in (130, 190, 86_400):
        say(host, when_s, run=DEAD, number=when_s, address="203.0.113.8")
    assert judged(link, 86_401)[0] == "Failed", "nobody knows which one is left"


def test_other_credentials_end_the_doubt(host: Host, link: Link, staff: User) -> None:
    for when_s, run in ((0, LIVING), (10, DEAD), (71, LIVING)):
        say(host, when_s, run=run, number=when_s + 1)
    host_rotate_secret(host_id=host.pk, actor=staff, keep_previous=False)
    assert say(host, 100, run=LIVING, number=99)
    assert "two_agents" not in problems(host, 101)


def test_many_restarts_are_no_second_agent(host: Host, link: Link) -> None:
    assert all(say(host, n, run=f"{n:032x}", number=1) for n in range(30))
    assert problems(host, 31) == {}
    assert len(HostReceipt.objects.get(host=host).former_runs) == 10


# --- contradictions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"devices": []}, "it names no device on which it classifies packets"),
        ({"observe_only": True, "devices": ["eth0"]}, "it only observes"),
    ],
)
def test_receipt_that_contradicts_itself_is_not_enforced(values: Any, why: str, host: Host, link: Link) -> None:
    assert say(host, 0, run=LIVING, number=1, devices=["eth0"], observe_only=False)
    assert judged(link, 1)[0] == "Enforced"
    assert say(host, 2, run=LIVING, number=2, **values)
    assert problems(host, 3)["contradiction"] == f"It reports 1 enforced link, although {why}."
    word, text = judged(link, 3)
    assert (word, "contradicts itself" in text) == ("Failed", True)

    assert say(host, 4, run=LIVING, number=3, devices=["eth0"], observe_only=False)
    assert judged(link, 5)[0] == "Enforced"


def test_host_that_limits_nothing_may_have_no_device(host: Host, link: Link) -> None:
    observed = link_entry(1000, state="observed")
    assert say(host, 0, run=LIVING, number=1, devices=[], links={"1": FAILED})
    assert problems(host, 1) == {}
    assert say(host, 2, run=LIVING, number=2, devices=["eth0"], observe_only=True, links={"1": observed})
    assert problems(host, 3) == {}


# --- from where -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "is_remarked"),
    [
        ("192.0.2.1", False),
        ("192.0.2.99", True),
        ("2001:db8::1", False),
        ("2001:db8::99", True),
        ("10.1.2.3", False),
        ("127.0.0.1", False),
        ("fe80::1", False),
    ],
)
def test_report_from_another_address_is_remarked_on(address: str, is_remarked: bool, host: Host, link: Link) -> None:
    say(host, 0, run=LIVING, number=1, address=address)
    assert ("other_address" in problems(host, 1)) == is_remarked
    word, text = judged(link, 1)
    assert word == "Enforced"
    assert ("reports from an address that is not its own" in text) == is_remarked


def test_host_behind_nat_reports_from_elsewhere(host: Host, link: Link, staff: User) -> None:
    say(host, 0, run=LIVING, number=1, address="192.0.2.99")
    addresses = {name: getattr(host, name) for name in ("public_ipv4", "public_ipv6", "bind_ip")}
    host_set_addresses(host_id=host.pk, actor=staff, **addresses, reports_from_elsewhere=True)
    assert problems(host, 1) == {}


def test_address_of_the_request_is_stored(host: Host, link: Link) -> None:
    body = document(host, {"1": link_entry(1000)}, observed_at=timezone.now().isoformat())
    url = f"/api/v4/host/{host.uid}/enforcement"
    answer = Client(REMOTE_ADDR="192.0.2.99").post(
        url, json.dumps(body), content_type="application/json", headers=credentials(host)
    )
    assert answer.status_code == 200
    assert HostReceipt.objects.get(host=host).address == "192.0.2.99"


# --- refused ----------------------------------------------------------------------------------------------------


def test_page_says_why_there_is_no_report(host: Host, link: Link) -> None:
    """A host whose clock is of another decade."""
    say(host, 0, run=LIVING, number=1)
    body = document(host, {"1": link_entry(1000)}, observed_at="1980-01-01T00:00:00Z")
    assert post(host, body).status_code == 400
    word, text = judged(link, 400)
    assert word == "No report"
    assert "its reports are refused (observed_at: Send a time in ISO 8601 with its zone, from" in text
    assert 'Not "1980-01-01T00:00:00Z".' in text
    say(host, 401, run=LIVING, number=2)
    assert HostReceipt.objects.get(host=host).refusal == ""


def test_counter_out_of_its_range_is_refused_with_value_and_bound(host: Host, link: Link) -> None:
    said = direction(1000) | {"bytes": 2**63}
    body = document(host, {"1": link_entry(1000, to_user=said)})
    answer = post(host, body)
    assert answer.status_code == 400
    (told,) = json.loads(answer.content)["fields"]["links.1.to_user.bytes"]
    assert told["message"] == "Send an integer from 0 to 9223372036854775807 here. Not 9223372036854775808."
    assert not LinkEnforcement.objects.exists()


@pytest.mark.parametrize(("model", "column"), [(HostReceipt, "observed_at"), (LinkEnforcement, "since")])
@pytest.mark.parametrize("year", [1969, 3000, 9999])
def test_database_refuses_a_time_that_pages_cannot_show(
    model: Any, column: str, year: int, host: Host, link: Link
) -> None:
    say(host, 0, run=LIVING, number=1)
    assert model.objects.count() == 1
    with pytest.raises(IntegrityError, match=f"{column}_readable"):
        model.objects.update(**{column: datetime(year, 6, 1, tzinfo=UTC)})
