"""The generation: what it raises above, what it withdraws, and how administrators hear that it is time to raise it."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from bandwidth_config import RuleError
from scionlab import selectors
from scionlab.models import EnrolmentToken, Host, HostReceipt, Link, LinkEnforcement, ServiceState, User
from scionlab.services.enrolment import enrolment_token_create, host_enrol
from scionlab.services.generation import generation_raise
from tests.factories import HostFactory
from tests.web.test_host_api import credentials, poll

pytestmark = pytest.mark.django_db


@pytest.fixture
def host(link: Link) -> Host:
    """The attachment point's host, at 1.18 limits 7."""
    Host.objects.filter(pk=link.interface_a.host_id).update(config_version=18, limits_version=7)
    return Host.objects.get(pk=link.interface_a.host_id)


def ahead() -> list[Host]:
    return list(selectors.hosts_ahead(now=timezone.now()))


def claims(host: Host) -> tuple[int | None, int | None, int | None]:
    host.refresh_from_db()
    return host.ahead_generation, host.ahead_config_version, host.ahead_limits_version


def report(host: Host, generation: int, config_version: int = 18, limits_version: int = 7) -> None:
    now = timezone.now()
    HostReceipt.objects.create(
        host=host,
        generation=generation,
        config_version=config_version,
        limits_version=limits_version,
        observed_at=now,
        received_at=now,
    )


# --- hosts that have something newer ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "noted"),
    [
        ("?version=1.19", (1, 19, None)),
        ("?version=2.1", (2, 1, None)),
        ("?version=2.1&limits=1", (2, 1, 1)),
        ("?version=1.18&limits=8", (1, 18, 8)),
        ("?version=1.17&limits=8", (1, 17, 8)),
        ("?version=1.19&limits=6", (1, 19, 6)),
        ("?version=01.0019&limits=007", (1, 19, 7)),
        ("?version=1.17", None),
        ("?version=1.17&limits=7", None),
        ("?version=0.99&limits=99", None),
        ("", None),
        ("?limits=99", None),
        (f"?version={2**31}.1", None),  # no column holds it, so it is nobody's
        (f"?version=1.{'9' * 5000}", None),
    ],
)
def test_poll_from_the_future_is_answered_and_noted(host: Host, query: str, noted: Any) -> None:
    assert poll(host, query).status_code == 200
    assert claims(host) == (noted or (None, None, None))
    assert ahead() == ([host] if noted else [])


def test_poll_from_the_future_writes_once_a_minute(host: Host) -> None:
    poll(host, "?version=1.19")
    first = Host.objects.get(pk=host.pk).ahead_at
    poll(host, "?version=1.20")
    assert claims(host) == (1, 19, None)
    Host.objects.filter(pk=host.pk).update(ahead_at=timezone.now() - timedelta(seconds=61))
    poll(host, "?version=1.20")
    assert claims(host) == (1, 20, None)
    assert host.ahead_at is not None
    assert first is not None
    assert host.ahead_at > first - timedelta(seconds=60)


@pytest.mark.parametrize(
    ("version", "is_ahead"),
    [((1, 18, 7), False), ((1, 19, 7), True), ((1, 18, 8), True), ((2, 1, 1), True), ((1, 17, 6), False)],
)
def test_receipt_from_the_future_tells_the_same(host: Host, version: tuple[int, int, int], is_ahead: bool) -> None:
    report(host, *version)
    assert ahead() == ([host] if is_ahead else [])


def test_what_was_said_long_ago_is_said_no_more(host: Host) -> None:
    poll(host, "?version=1.19")
    report(host, 2)
    old = timezone.now() - timedelta(seconds=selectors.AHEAD_FOR_S + 1)
    HostReceipt.objects.update(received_at=old)
    assert ahead() == [host]
    Host.objects.filter(pk=host.pk).update(ahead_at=old)
    assert ahead() == []


# --- raising ------------------------------------------------------------------------------------------------


def test_raised_generation_is_above_whatever_was_reported(host: Host, host_b: Host) -> None:
    report(host, 4)
    poll(host_b, "?version=6.1")
    raised = generation_raise()
    assert (raised.old, raised.new, raised.ahead, raised.ignored) == (1, 7, 2, {})
    assert selectors.generation() == 7
    assert ahead() == []


@pytest.mark.parametrize(("claim", "new"), [(1001, 1002), (1002, 2), (2**31 - 1, 2)])
def test_lying_agent_cannot_use_up_the_generations(host: Host, claim: int, new: int) -> None:
    report(host, claim)
    raised = generation_raise()
    assert raised.new == new
    assert raised.ignored == ({} if claim < new else {host.uid: claim})


def test_operator_may_name_the_generation(host: Host) -> None:
    report(host, 5000)
    assert generation_raise(to=5001).ignored == {}
    assert selectors.generation() == 5001


@pytest.mark.parametrize("to", [0, 1, -1, 2**31])
def test_generation_that_does_not_rise_is_refused(host: Host, to: int) -> None:
    with pytest.raises(RuleError) as refused:
        generation_raise(to=to)
    assert refused.value.code == "generation_invalid"
    assert selectors.generation() == 1


def test_raise_withdraws_what_was_said_of_older_generations(host: Host, link: Link, receipt: HostReceipt) -> None:
    client = Client()
    url = f"/api/v4/host/{host.uid}/deployed_config_version"
    assert client.post(url, {"version": "1.18"}, headers=credentials(host)).status_code == 200
    poll(host, "?version=2.1")
    generation_raise()
    host.refresh_from_db()
    assert (host.config_version_deployed, host.delivered_config_version, host.delivered_limits_version) == (0, 0, 0)
    assert claims(host) == (None, None, None)
    assert not LinkEnforcement.objects.exists()
    # What the stock client had installed is of the old generation: its H names another configuration.
    assert client.post(url, {"version": "1.18"}, headers=credentials(host)).status_code == 304
    assert Host.objects.get(pk=host.pk).config_version_deployed == 0
    generation = selectors.generation()
    assert client.post(url, {"version": f"{generation}.18"}, headers=credentials(host)).status_code == 200
    assert Host.objects.get(pk=host.pk).config_version_deployed == 18


def test_raise_voids_tokens_whose_use_the_database_may_have_forgotten(host: Host) -> None:
    random = enrolment_token_create(host_id=host.pk, actor=None).text.split(".")[1]
    generation_raise()
    assert host_enrol(random=random, address=None) is None
    assert EnrolmentToken.objects.get().voided_at is not None


def test_every_host_gets_the_new_generation_with_its_old_counters(host: Host) -> None:
    generation_raise()
    assert poll(host, "?version=1.18&limits=7").status_code == 200
    assert poll(host, "?version=2.18&limits=7").status_code == 304


# --- the command --------------------------------------------------------------------------------------------


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("raise_generation", *arguments, stdout=out)
    return out.getvalue()


def test_command_says_what_it_did_and_what_it_did_not_believe(host: Host, host_b: Host) -> None:
    report(host, 3)
    report(host_b, 9000)
    HostFactory()
    said = run()
    assert "The generation was 1 and is 4 now. 4 hosts fetch" in said
    assert "2 of them had newer versions than this database." in said
    assert f"Host {host_b.uid} claims generation 9000, which is not believed. If it is true: --to 9001." in said


def test_dry_run_changes_nothing(host: Host) -> None:
    report(host, 3)
    before = list(Host.objects.values())
    assert "The generation stays 1. It would become 4" in run("--dry-run").replace("Dry run: the", "The")
    assert list(Host.objects.values()) == before
    assert ServiceState.objects.get().generation == 1


def test_command_refuses_a_step_back() -> None:
    with pytest.raises(CommandError, match="Generation 1 is not above 1"):
        run("--to", "1")


# --- what administrators see --------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["admin:index", "admin:scionlab_host_changelist"])
def test_administrators_are_warned_until_the_generation_is_raised(
    door: Client, host: Host, host_b: Host, staff: User, page: str
) -> None:
    def text() -> str:
        return door.get(reverse(page)).content.decode()

    assert "raise_generation" not in text()
    poll(host, "?version=1.19")
    assert "1 host has a newer configuration than this database" in text()
    poll(host_b, "?version=2.1")
    assert "2 hosts have newer configurations than this database" in text()
    generation_raise()
    assert "raise_generation" not in text()
