"""The real service and what the real agent believes: enrolment, rotation, revocation, a restored backup."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from ap_agent.agent.agent import send_last_receipt
from ap_agent.agent.bundle import Bundle, accept_bundle
from ap_agent.agent.enrol import enrol, parse_token
from ap_agent.agent.fetch import make_client
from ap_agent.agent.settings import load_settings
from ap_agent.common.errors import AgentError, TrustError
from ap_agent.common.log import get_logger
from ap_agent.common.settings import Settings
from ap_agent.document.state import write_state
from ap_agent.document.trust import Trust, trust_now
from bandwidth_config import LINK_INFO_PATH
from config_tar import MANIFEST_NAME
from scionlab.delivery.enrolment import enrolment_token_create
from scionlab.delivery.models import SigningKey
from scionlab.delivery.signing import signing_key_revoke, signing_key_rotate
from scionlab.enforcement.generation import generation_raise
from scionlab.enforcement.models import HostReceipt
from scionlab.limits.update import link_set_bandwidth
from scionlab.platform.notation.isd_as import parse_as_id
from scionlab.testbed import selectors
from scionlab.testbed.host import host_rotate_secret
from scionlab.testbed.models import Host, Link
from tests.agent_limiter import limiter_state
from tests.delivery.test_host_api import basic, poll
from tests.enforcement.test_receipt import document, post
from tests.factories import AttachmentPointFactory, UserFactory, attach, spec

pytestmark = pytest.mark.django_db
empties_the_database = pytest.mark.skipif(
    connection.vendor != "postgresql", reason="needs PostgreSQL: SQLite's TRUNCATE asks the triggers of the audit"
)

START = {"allow_plain_http": True}


@pytest.fixture
def link(db: None) -> Link:
    ap = AttachmentPointFactory(AS__as_id=parse_as_id("ffaa:0:1107"), host__public_ipv4="192.0.2.1")
    user_as = attach(UserFactory(email="owner@example.org"), spec(ap))
    return Link.objects.get(interface_b__AS=user_as.pk)


class Agent:
    """The agent of the Link's attachment point: its settings, and what it has taken so far."""

    def __init__(self, host: Host, settings: Settings) -> None:
        self.host, self.settings = host, settings
        self.trust: Trust = trust_now(settings, None, None)
        self.bundle: Bundle | None = None

    def offered(self) -> bytes:
        """What the service answers to the version that is installed, asked with the secret that the agent has."""
        have, secret = "", self.settings.host_secret
        if self.bundle is not None:
            have = f"?version={self.bundle.version}&limits={self.bundle.limits_version}"
            secret = self.bundle.host_secret
        answer = poll(self.host, have, headers=basic(self.host.uid, str(secret)))
        assert answer.status_code == 200
        return answer.content

    def take(self) -> Bundle:
        """Raises `TrustError`."""
        self.bundle = accept_bundle(self.offered(), self.settings, self.trust, lambda: None, timezone.now())
        self.trust = self.trust.after(self.bundle)
        return self.bundle

    def proves(self, *, with_evidence: bool = False) -> Any:
        """The answer to its receipt about what it has taken."""
        assert self.bundle is not None
        manifest = json.loads(self.bundle.members[MANIFEST_NAME])
        evidence = {"evidence": {name: manifest[name] for name in ("signed", "signatures")}} if with_evidence else {}
        body = document(
            self.host,
            {},
            version=self.bundle.version,
            limits_version=self.bundle.limits_version,
            limits_digest=manifest["sha256"][LINK_INFO_PATH],
            observed_at=timezone.now().isoformat(),
            **evidence,
        )
        return json.loads(post(self.host, body).content)

    def refuses(self) -> str:
        """The code with which it refuses what the service offers."""
        with pytest.raises(TrustError) as refused:
            self.take()
        return refused.value.code


@pytest.fixture
def agent(link: Link) -> Agent:
    """Enrolled, with the service's one key pinned."""
    signing_key_rotate(actor=None)
    key = SigningKey.objects.get()
    pinned = load_settings(None, {"SCIONLAB_BW_SERVICE_KEYS": service_keys(key), **by_hand(link.interface_a.host)})
    return Agent(link.interface_a.host, pinned)


def service_keys(key: SigningKey) -> str:
    return f"{key.public_key} {key.not_after:%Y-%m-%dT%H:%M:%SZ}"


def by_hand(host: Host) -> dict[str, str]:
    return {
        "SCIONLAB_BW_URL": "http://127.0.0.1:8000",
        "SCIONLAB_BW_HOST_ID": host.uid,
        "SCIONLAB_BW_HOST_SECRET": host.secret,
    }


# --- enrolment ----------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_agent_enrols_at_the_real_service_and_believes_its_first_bundle(
    link: Link, live_server: Any, settings: Any, tmp_path: Path
) -> None:
    settings.SITE_URL = live_server.url
    host = link.interface_a.host
    file = tmp_path / "credentials.json"
    token = parse_token(enrolment_token_create(host_id=host.pk, actor=None).text)
    enrolled = enrol(live_server.url, token, Settings(**START), file, replaces=False)
    assert (enrolled.credentials.host_id, enrolled.credentials.url) == (host.uid, live_server.url)
    assert host.secret in file.read_text()
    with pytest.raises(AgentError, match="rejects the token"):
        enrol(live_server.url, token, Settings(**START), tmp_path / "second.json", replaces=False)
    read = load_settings(None, {"SCIONLAB_BW_CREDENTIALS_FILE": str(file)})
    bundle = Agent(host, read).take()
    assert {link.bandwidth_kbit for link in bundle.links.values() if link.is_user_as} == {1000}


def test_the_last_receipt_of_a_host_is_stored_by_the_real_service(
    link: Link, live_server: Any, settings: Any, tmp_path: Path
) -> None:
    settings.SITE_URL = live_server.url
    host = link.interface_a.host
    file = tmp_path / "credentials.json"
    token = parse_token(enrolment_token_create(host_id=host.pk, actor=None).text)
    enrol(live_server.url, token, Settings(**START), file, replaces=False)
    folders = {f"SCIONLAB_BW_{name}": str(tmp_path / name) for name in ("STATE_DIR", "LIMITER_RUN_DIR")}
    read = load_settings(None, {"SCIONLAB_BW_CREDENTIALS_FILE": str(file), **folders})
    removed = limiter_state({}, order=None, limits_digest=None, reset_reason="The package was removed.")
    read.limiter_run_dir.mkdir()
    write_state(read.limiter_run_dir, removed)

    assert send_last_receipt(read, make_client, get_logger()) is None
    receipt = HostReceipt.objects.get(host=host)
    assert receipt.problems == [{"code": "limits_removed", "subject": "agent", "message": "The package was removed."}]


# --- keys ---------------------------------------------------------------------------------------------------


def test_agent_follows_rotations_though_it_was_away_for_some(agent: Agent) -> None:
    agent.take()
    signing_key_rotate(actor=None)
    agent.take()
    first = SigningKey.objects.order_by("pk")[0]
    for _ in range(2):
        signing_key_rotate(actor=None)
    signing_key_revoke(key_id=first.key_id, actor=None)
    agent.take()
    assert set(agent.trust.keyring.keys) == set(
        SigningKey.objects.filter(revoked_at=None).values_list("key_id", flat=True)
    )
    assert agent.trust.keyring.revoked == {first.key_id}


def test_agent_that_missed_every_key_must_be_enrolled_again(agent: Agent) -> None:
    agent.take()
    signing_key_rotate(actor=None)
    first = SigningKey.objects.order_by("pk")[0]
    signing_key_revoke(key_id=first.key_id, actor=None)
    assert agent.refuses() == "unknown_key"


def test_agent_never_believes_a_key_again_that_was_revoked(agent: Agent) -> None:
    signing_key_rotate(actor=None)
    agent.take()
    first, second = SigningKey.objects.order_by("pk")
    signing_key_revoke(key_id=second.key_id, actor=None)
    agent.take()
    SigningKey.objects.filter(pk=second.pk).update(revoked_at=None)  # a restored backup
    SigningKey.objects.filter(pk=first.pk).update(not_after=timezone.now() - timedelta(days=1))
    link_set_bandwidth(link_id=Link.objects.get().pk, bandwidth_kbit=400, actor=UserFactory())
    assert agent.refuses() == "key_revoked"


def test_rotated_secret_reaches_the_agent_in_a_bundle_that_it_believes(agent: Agent) -> None:
    agent.take()
    former = agent.host.secret
    host_rotate_secret(host_id=agent.host.pk, actor=UserFactory())
    bundle = agent.take()
    assert bundle.host_secret == Host.objects.get(pk=agent.host.pk).secret != former


# --- a restored backup --------------------------------------------------------------------------------------


def limit_of(bundle: Bundle) -> int:
    (link,) = [one for one in bundle.links.values() if one.is_user_as]
    return link.bandwidth_kbit


@empties_the_database
@pytest.mark.django_db(transaction=True)
def test_restored_backup_is_refused_until_the_generation_is_raised(agent: Agent, link: Link, tmp_path: Path) -> None:
    owner = UserFactory()
    backup = tmp_path / "yesterday.json"
    assert limit_of(agent.take()) == 1000
    call_command("dumpdata", "--exclude=contenttypes", "--exclude=auth.permission", output=str(backup), verbosity=0)

    for kbit in (900, 800, 700):
        link_set_bandwidth(link_id=link.pk, bandwidth_kbit=kbit, actor=owner)
    assert limit_of(agent.take()) == 700
    had = agent.bundle

    call_command("flush", interactive=False, verbosity=0)
    call_command("loaddata", str(backup), verbosity=0)
    assert agent.refuses() == "version_older"
    assert agent.bundle is had, "what was enforced stays"
    assert agent.proves() == {"stored": True, "evidence_wanted": True}
    assert not selectors.hosts_ahead().exists(), "numbers alone are evidence of nothing"
    assert agent.proves(with_evidence=True) == {"stored": True}
    assert [host.uid for host in selectors.hosts_ahead()] == [agent.host.uid]

    # What is changed before that is kept here and refused there.
    for kbit in (600, 500):
        link_set_bandwidth(link_id=link.pk, bandwidth_kbit=kbit, actor=owner)
    assert agent.refuses() == "version_older"

    raised = generation_raise()
    assert (raised.new, raised.ahead) == (2, 1)
    bundle = agent.take()
    assert (bundle.version.split(".")[0], limit_of(bundle)) == ("2", 500)
    assert not selectors.hosts_ahead().exists()
