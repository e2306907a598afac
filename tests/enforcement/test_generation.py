"""The generation: what it raises above, what it withdraws, and how administrators hear that it is time to raise it."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from bandwidth_config import RuleError
from scionlab.accounts.models import User
from scionlab.delivery.enrolment import enrolment_token_create, host_enrol
from scionlab.delivery.models import EnrolmentToken
from scionlab.enforcement.generation import generation_raise
from scionlab.enforcement.models import HostReceipt, LinkEnforcement
from scionlab.testbed import selectors
from scionlab.testbed.models import Host, Link, UserAS
from tests.cases import table
from tests.delivery.test_host_api import credentials, poll

pytestmark = pytest.mark.django_db


@pytest.fixture
def host(link: Link) -> Host:
    """The attachment point's host, at 1.18 limits 7."""
    Host.objects.filter(pk=link.interface_a.host_id).update(config_version=18, limits_version=7)
    return Host.objects.get(pk=link.interface_a.host_id)


def prove(host: Host, generation: int, config_version: int = 18, limits_version: int = 7) -> None:
    """As `delivery.evidence` notes it (test_evidence.py)."""
    noted = {"ahead_generation": generation, "ahead_config_version": config_version}
    Host.objects.filter(pk=host.pk).update(**noted, ahead_limits_version=limits_version, ahead_at=timezone.now())


def claim(host: Host, generation: int) -> None:
    """A receipt, which anybody with the host's credentials can write."""
    now = timezone.now()
    HostReceipt.objects.create(
        host=host, generation=generation, config_version=18, limits_version=7, observed_at=now, received_at=now
    )


# --- raising ------------------------------------------------------------------------------------------------


def test_generation_rises_by_one_whatever_was_claimed(host: Host, host_b: Host) -> None:
    claim(host, 4)
    poll(host_b, "?version=900.1")
    raised = generation_raise()
    assert (raised.old, raised.new, raised.ahead, raised.unproven) == (1, 2, 0, {host.uid: 4})
    assert selectors.generation() == 2


def test_generation_rises_above_what_was_proven(host: Host, host_b: Host) -> None:
    prove(host, 1, 19)
    prove(host_b, 6, 1)
    raised = generation_raise()
    assert (raised.old, raised.new, raised.ahead, raised.unproven) == (1, 7, 2, {})
    assert selectors.generation() == 7
    assert not selectors.hosts_ahead().exists()


def test_host_of_a_user_as_is_not_even_named(user_as: UserAS) -> None:
    claim(Host.objects.get(AS=user_as.pk), 900)
    assert generation_raise().unproven == {}


def test_operator_who_knows_better_may_skip_generations(host: Host) -> None:
    with pytest.raises(RuleError) as refused:
        generation_raise(to=5001)
    assert refused.value.code == "generation_unproven"
    assert refused.value.message == "No host proved that it has generation 5000. Raise to 2, or add --force."
    assert selectors.generation() == 1
    assert generation_raise(to=5001, force=True).new == 5001
    assert selectors.generation() == 5001


def test_evidence_of_a_generation_that_was_raised_above_counts_no_more(host: Host) -> None:
    prove(host, 6, 1)
    assert generation_raise(to=3).new == 3
    Host.objects.filter(pk=host.pk).update(ahead_generation=2)
    assert not selectors.hosts_ahead().exists()
    assert generation_raise().new == 4


@table("to", [0, 1, -1, 2**31])
def test_generation_that_does_not_rise_is_refused(host: Host, to: int) -> None:
    with pytest.raises(RuleError) as refused:
        generation_raise(to=to)
    assert refused.value.code == "generation_invalid"
    assert selectors.generation() == 1


def test_raise_withdraws_what_was_said_of_older_generations(host: Host, link: Link, receipt: HostReceipt) -> None:
    client = Client()
    url = f"/api/v4/host/{host.uid}/deployed_config_version"
    assert client.post(url, {"version": "1.18"}, headers=credentials(host)).status_code == 200
    prove(host, 1, 19)
    generation_raise()
    host.refresh_from_db()
    assert (host.config_version_deployed, host.delivered_config_version, host.delivered_limits_version) == (0, 0, 0)
    assert (host.ahead_generation, host.ahead_at) == (None, None)
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


# --- the command --------------------------------------------------------------------------------------------


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("raise_generation", *arguments, stdout=out)
    return out.getvalue()


def test_command_raises_and_names_what_nobody_proved(host: Host, host_b: Host) -> None:
    prove(host, 3)
    claim(host_b, 9000)
    assert "It would become 4" in run("--dry-run")
    assert selectors.generation() == 1
    said = run()
    assert "The generation was raised from 1 to 4. 3 hosts fetch" in said
    assert f"Host {host_b.uid} reports generation 9000 without proof." in said
    assert "use --to 9001 --force." in said
    for to in ("4", "9"):
        with pytest.raises(CommandError):
            run("--to", to)
    assert "to 9. " in run("--to", "9", "--force")


# --- what administrators see --------------------------------------------------------------------------------


def test_administrators_are_warned_until_the_generation_is_raised(
    door: Client, host: Host, host_b: Host, staff: User
) -> None:
    def text() -> str:
        return door.get(reverse("cockpit")).content.decode()

    assert "raise_generation" not in text()
    poll(host, "?version=900.1")
    claim(host, 900)
    assert "raise_generation" not in text()
    prove(host, 1, 19)
    Host.objects.filter(pk=host.pk).update(ahead_at=timezone.now() - timedelta(days=400))
    assert "1 host has a configuration signed by this service but unknown to this database" in text()
    generation_raise()
    assert "raise_generation" not in text()
