"""What concerns the agent alone in accepting bundles: its problems, its files, and the host's secret.

What it accepts when: test_trust_over_time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from ap_agent.agent.agent import Agent
from ap_agent.agent.fetch import Client
from ap_agent.common.errors import StoreError
from ap_agent.common.log import get_logger
from ap_agent.common.settings import Settings
from ap_agent.document.signatures import Keyring
from ap_agent.document.signed_text import Signed, Version
from ap_agent.document.trust import Trust, trust_now
from tests import agent_service as svc
from tests.agent_bundles import HOST_ID, KEY, OTHER_KEY, SECRET, SERVICE_KEYS, SigningKey, bundle_bytes, entry
from tests.agent_service import Handler, Service
from tests.trust_hosts import NOW, THIRD_KEY, AgentHost


def bundle(version: str, limits: int, **options: Any) -> bytes:
    return bundle_bytes({"1": entry(500)}, version=version, limits_version=limits, **options)


@pytest.fixture
def host(settings: Settings) -> AgentHost:
    return AgentHost(settings)


@pytest.mark.parametrize(("days", "words"), [(31, None), (30, "expires at"), (1, "expires at"), (-1, "expired at")])
def test_last_key_near_its_end_is_a_warning(settings: Settings, days: int, words: str | None) -> None:
    key = SigningKey(1, not_after=NOW + timedelta(days=days))
    host = AgentHost(replace(settings, service_keys=(key.public,)))

    assert host.codes == ([] if words is None else ["key_expires_soon"])
    assert words is None or words in host.problems[0].message
    host.settings = replace(settings, service_keys=(key.public, OTHER_KEY.public))
    host.start()
    assert host.codes == []


def test_no_single_bit_of_what_is_trusted_can_turn_unnoticed(host: AgentHost) -> None:
    """A flipped bit can leave well-formed JSON: another enrolled key, or a list of keys under another name."""
    host.offered("1.18", 9, signers=[KEY, OTHER_KEY], revoked=[THIRD_KEY.key_id])
    store = host.agent.configuration.store
    data = store.trust_file.read_bytes()
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 7
        store.trust_file.write_bytes(damaged)
        with pytest.raises(StoreError, match="cannot be used"):
            store.load_trust()


# --- the secret -----------------------------------------------------------------------------------------------------


def only_for(secret: str, data: bytes) -> svc.Answer:
    def answer(handler: Handler) -> None:
        if handler.request_seen.credentials != f"{HOST_ID}:{secret}":
            return svc.status(401)(handler)
        return svc.tarball(data)(handler)

    return answer


def test_new_secret_comes_with_the_bundle_and_the_enrolled_one_remains(settings: Settings, service: Service) -> None:
    settings = replace(settings, url=service.url)
    agent = Agent(settings, Client(settings), get_logger())
    agent.configuration.load()

    service.answers["/config"] = only_for(SECRET, bundle("1.18", 9, host_secret="second"))
    assert agent.pull().contact == "new"
    service.answers["/config"] = only_for("second", bundle("1.18", 10, host_secret="second"))
    assert agent.pull().contact == "new"
    assert [one.credentials.partition(":")[2] for one in service.asked("/config")] == [SECRET, "second"]

    again = Agent(settings, Client(settings), get_logger())
    again.configuration.load()
    assert again.pull().contact == "unchanged"  # with the stored bundle's
    assert service.asked("/config")[-1].credentials == f"{HOST_ID}:second"
    service.answers["/config"] = only_for(SECRET, bundle("1.18", 11, host_secret=SECRET))  # enrolled anew meanwhile
    assert again.pull().contact == "new"
    assert [one.credentials.partition(":")[2] for one in service.asked("/config")][-2:] == ["second", SECRET]


def test_secret_of_an_unbelieved_bundle_is_never_used(settings: Settings, service: Service) -> None:
    settings = replace(settings, url=service.url)
    agent = Agent(settings, Client(settings), get_logger())
    service.answers["/config"] = svc.tarball(bundle("1.18", 9, host_secret="planted", signers=[OTHER_KEY]))
    agent.pull()
    agent.pull()

    assert {one.credentials for one in service.seen} == {f"{HOST_ID}:{SECRET}"}


ANNOUNCED = Signed(HOST_ID, Version(1, 18, 7), 1, {}, "", (OTHER_KEY.public,), frozenset())


@dataclass(frozen=True)
class Document:
    """The accepted one. It announces OTHER_KEY."""

    order: Version
    host_id: str = HOST_ID
    signed: Signed | None = ANNOUNCED


ENROLLED = Settings(host_id=HOST_ID, host_secret=SECRET, url="https://service.example", service_keys=SERVICE_KEYS)
STORED = Trust(HOST_ID, (KEY.key_id,), Keyring.of([KEY.public], [THIRD_KEY.key_id]), Version(1, 18, 7))


@pytest.mark.parametrize(
    ("url", "stored", "order", "trusted", "newest"),
    [
        (ENROLLED.url, None, Version(1, 18, 7), {KEY, OTHER_KEY}, Version(1, 18, 7)),
        (ENROLLED.url, STORED, Version(1, 18, 7), {KEY, OTHER_KEY}, Version(1, 18, 7)),
        (ENROLLED.url, STORED, Version(1, 17, 9), {KEY}, Version(1, 18, 9)),
        (ENROLLED.url, STORED, Version(1, 19, 7), {OTHER_KEY}, Version(1, 19, 7)),
        (ENROLLED.url, replace(STORED, enrolled=()), Version(1, 19, 7), {KEY}, Version(1, 19, 7)),
        (ENROLLED.url, STORED, None, {KEY}, Version(1, 18, 7)),
        (None, STORED, Version(1, 19, 7), {KEY}, Version(1, 19, 7)),
        (None, STORED, None, {KEY}, Version(1, 18, 7)),
    ],
)
def test_which_keys_count_and_what_is_the_newest(
    url: str | None, stored: Trust | None, order: Version | None, trusted: set[SigningKey], newest: Version
) -> None:
    accepted = Document(order) if order is not None else None
    found = trust_now(replace(ENROLLED, url=url), stored, accepted)

    assert (set(found.keyring.keys), found.newest) == ({one.key_id for one in trusted}, newest)
    assert found.keyring.revoked == (stored.keyring.revoked if stored is not None else frozenset())


def test_a_document_that_nobody_verified_revokes_no_key() -> None:
    unverified = Document(Version(1, 19, 7), signed=replace(ANNOUNCED, revoked=frozenset([KEY.key_id])))
    assert set(trust_now(ENROLLED, replace(STORED, enrolled=()), unverified).keyring.keys) == {KEY.key_id}
