"""From the service to the limiter and back: whatever goes wrong, the last good configuration stays handed over."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ap_agent.agent.agent import Agent
from ap_agent.agent.fetch import Client
from ap_agent.common.log import get_logger
from ap_agent.common.settings import Settings
from bandwidth_config import LINK_INFO_PATH
from tests import agent_service as svc
from tests.agent_bundles import HOST_ID, OTHER_KEY, SECRET, SERVICE_KEYS, bundle_bytes, entry, files_of
from tests.agent_limiter import FakeLimiter
from tests.agent_service import Answer, Service, like_the_service, reply, status

V7_LINKS = {"1": entry(500), "2": entry(1000, "192.0.2.12"), "9": entry(10, "192.0.2.99", is_user_as=False)}
V7 = bundle_bytes(V7_LINKS)
V8 = bundle_bytes({"1": entry(900), "3": entry(0, "2001:db8::7")}, version="1.19", limits_version=8)


@pytest.fixture
def service() -> Iterator[Service]:
    with svc.service() as running:
        running.answers["/config"] = like_the_service(V7, "1.18", "7")
        yield running


@pytest.fixture
def settings(service: Service, tmp_path: Path) -> Settings:
    return Settings(
        url=service.url,
        host_id=HOST_ID,
        host_secret=SECRET,
        service_keys=SERVICE_KEYS,
        read_timeout_s=1.0,
        state_dir=tmp_path / "state",
        run_dir=tmp_path / "run",
        limiter_run_dir=tmp_path / "limiter",
    )


@pytest.fixture
def limiter(settings: Settings) -> FakeLimiter:
    return FakeLimiter(settings, lambda: datetime.now(UTC))


@pytest.fixture
def agent(settings: Settings, limiter: FakeLimiter) -> Iterator[Agent]:
    client = Client(settings)
    made = Agent(settings, client, get_logger())
    made.test_limiter = limiter  # type: ignore[attr-defined]
    yield made
    client.close()


def cycle(agent: Agent) -> str:
    """Ask, let the limiter work, tell."""
    contact = agent.pull().contact
    agent.test_limiter.work()  # type: ignore[attr-defined]
    agent.limiter.read()
    agent.send_receipt(even_if_old=False)
    return contact


def codes(agent: Agent) -> list[str]:
    return [problem.code for problem in agent.problems]


def test_first_cycle_enforces_stores_and_tells(agent: Agent, limiter: FakeLimiter, service: Service) -> None:
    agent.configuration.load()

    assert cycle(agent) == "new"

    assert limiter.limits == {1: 500, 2: 1000}
    stored = agent.configuration.store.load(host_id=HOST_ID)
    assert stored is not None
    assert stored.version == "1.18"
    (receipt,) = service.receipts()
    assert (receipt["version"], receipt["limits_version"], receipt["writes"]) == ("1.18", 7, 2)
    assert receipt["problems"] == []


def test_second_cycle_asks_with_both_versions_and_writes_nothing(
    agent: Agent, limiter: FakeLimiter, service: Service
) -> None:
    cycle(agent)

    assert cycle(agent) == "unchanged"

    digest = hashlib.sha256(files_of(V7_LINKS)[LINK_INFO_PATH]).hexdigest()
    assert service.asked("/config")[1].query == {"version": "1.18", "limits": "7", "digest": digest}
    assert len(limiter.states) == 1
    assert limiter.limits == {1: 500, 2: 1000}


# What the service answers after a good start, and the code of the problem: one of each. The answers are
# test_agent_fetch's, the tarballs test_agent_bundle's.
TROUBLES: dict[str, tuple[Answer, str]] = {
    "401": (status(401), "auth_refused"),
    "503": (status(503), "service_unreachable"),
    "204": (status(204), "no_as"),
    "not gzip": (svc.tarball(b"hello"), "bundle_invalid"),
    "no link_info": (svc.tarball(bundle_bytes({"1": entry(-5)})), "bundle_invalid"),
    "unsigned": (svc.tarball(bundle_bytes(version="1.20", is_signed=False)), "not_signed"),
    "another key": (svc.tarball(bundle_bytes(version="1.20", signers=[OTHER_KEY])), "unknown_key"),
    "older": (svc.tarball(bundle_bytes(version="1.17")), "version_older"),
}


@pytest.mark.parametrize("case", TROUBLES)
def test_trouble_leaves_the_last_good_state_is_reported_and_passes(
    agent: Agent, limiter: FakeLimiter, service: Service, case: str
) -> None:
    cycle(agent)
    answer, code = TROUBLES[case]
    service.answers["/config"] = answer

    cycle(agent)

    assert limiter.limits == {1: 500, 2: 1000}
    assert codes(agent) == [code]
    receipt = service.receipts()[-1]
    assert (receipt["version"], receipt["limits_version"]) == ("1.18", 7)
    assert [one["code"] for one in receipt["problems"]] == [code]
    assert {key: one["state"] for key, one in receipt["links"].items()} == {"1": "enforced", "2": "enforced"}
    assert SECRET not in service.asked("/enforcement")[-1].body.decode()
    service.answers["/config"] = like_the_service(V8, "1.19", "8")  # it is well again
    cycle(agent)
    assert limiter.limits == {1: 900, 3: 0}
    assert codes(agent) == []
    assert service.receipts()[-1]["problems"] == []


def test_damaged_store_is_a_problem_until_the_service_gave_another(
    agent: Agent, limiter: FakeLimiter, settings: Settings, service: Service
) -> None:
    cycle(agent)
    agent.configuration.store.bundle_file.write_bytes(b"{}")
    client = Client(settings)
    again = Agent(settings, client, get_logger())
    again.test_limiter = limiter  # type: ignore[attr-defined]
    again.configuration.load()

    assert codes(again)[0] == "state_unusable"
    assert again.configuration.bundle is None
    assert cycle(again) == "new"  # asked without a version, so the service sent it
    assert codes(again) == []
    assert service.asked("/config")[-1].query == {}
    client.close()


# --- receipts ---------------------------------------------------------------------------------------------------------


def test_receipt_is_sent_when_there_is_news_and_not_otherwise(
    agent: Agent, limiter: FakeLimiter, service: Service
) -> None:
    cycle(agent)
    assert len(service.receipts()) == 1
    limiter.write(limiter.kernel)  # newer counters
    cycle(agent)
    cycle(agent)
    assert len(service.receipts()) == 1
    limiter.kernel = {}  # somebody deleted them, and the limiter puts them back
    cycle(agent)
    assert len(service.receipts()) == 2
    assert service.receipts()[-1]["writes"] == 2
    limiter.refused = frozenset({2})
    limiter.kernel.pop(2)
    cycle(agent)
    assert len(service.receipts()) == 3
    assert {key: one["state"] for key, one in service.receipts()[-1]["links"].items()} == {
        "1": "enforced",
        "2": "error",
    }
    agent.send_receipt()
    assert len(service.receipts()) == 4


@pytest.mark.parametrize("answer", [status(500), status(400), status(401), svc.never(), svc.garbage()])
def test_failing_receipt_disturbs_nothing_and_is_sent_again(
    agent: Agent, limiter: FakeLimiter, service: Service, answer: Answer
) -> None:
    service.answers["/enforcement"] = answer
    cycle(agent)

    assert limiter.limits == {1: 500, 2: 1000}
    assert codes(agent) == ["receipt_failed"]
    service.answers["/enforcement"] = svc.stored()
    cycle(agent)
    assert codes(agent) == []
    assert service.receipts()[-1]["problems"] == []  # that sending failed is old news when it is read
    count = len(service.receipts())
    cycle(agent)
    assert len(service.receipts()) == count


def test_configuration_is_confirmed_only_when_asked_for(
    agent: Agent, limiter: FakeLimiter, settings: Settings, service: Service
) -> None:
    cycle(agent)
    assert service.asked("/deployed_config_version") == []

    service.answers["/deployed_config_version"] = status(200)
    client = Client(settings)
    agent.use(replace(settings, confirm_config=True), client)
    service.answers["/config"] = like_the_service(V8, "1.19", "8")
    cycle(agent)
    cycle(agent)
    agent.send_receipt(even_if_old=True)

    assert [one.body for one in service.asked("/deployed_config_version")] == [b"version=1.19"]
    client.close()


# --- what a receipt proves --------------------------------------------------------------------------------------------


def answered(**said: bool) -> Answer:
    return reply(200, json.dumps({"stored": True, **said}).encode(), Content_Type="application/json")


def manifest_in(data: bytes) -> dict[str, Any]:
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(data))) as archive:
        member = archive.extractfile("scionlab-config.json")
        assert member is not None
        found: dict[str, Any] = json.loads(member.read())
    return found


def test_receipt_names_its_content_its_run_and_its_number(
    agent: Agent, settings: Settings, limiter: FakeLimiter, service: Service
) -> None:
    agent.send_receipt(even_if_old=True)
    cycle(agent)
    agent.send_receipt(even_if_old=True)

    first, second, third = service.receipts()
    assert first["limits_digest"] is None
    assert second["limits_digest"] == hashlib.sha256(files_of(V7_LINKS)[LINK_INFO_PATH]).hexdigest()
    assert first["run"] == second["run"] == third["run"]
    assert len(bytes.fromhex(first["run"])) == 16
    assert 1 == first["number"] < second["number"] < third["number"]
    other = Agent(settings, Client(settings), get_logger())
    other.send_receipt(even_if_old=True)
    assert (service.receipts()[-1]["run"] != first["run"], service.receipts()[-1]["number"]) == (True, 1)


def test_evidence_is_sent_at_once_when_it_is_wanted_and_only_then(agent: Agent, service: Service) -> None:
    asked = []

    def wants_until_it_has(handler: svc.Handler) -> None:
        has_evidence = "evidence" in json.loads(handler.request_seen.body)
        asked.append(has_evidence)
        answered(evidence_wanted=not has_evidence)(handler)

    service.answers["/enforcement"] = wants_until_it_has
    cycle(agent)
    agent.send_receipt(even_if_old=True)

    assert asked == [False, True, False, True]
    manifest = manifest_in(V7)
    evidence = {"signed": manifest["signed"], "signatures": manifest["signatures"]}
    assert [one.get("evidence") for one in service.receipts()] == [None, evidence, None, evidence]
