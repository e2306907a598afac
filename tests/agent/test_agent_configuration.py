"""From the service to the limiter and back: whatever goes wrong, the last good configuration stays handed over."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from ap_agent.agent.agent import Agent
from ap_agent.agent.fetch import Client
from ap_agent.common.log import get_logger
from ap_agent.common.settings import Settings
from bandwidth_config import LINK_INFO_PATH
from tests import agent_service as svc
from tests.agent_bundles import SECRET, bundle_bytes, entry, files_of
from tests.agent_limiter import FakeLimiter
from tests.agent_service import Answer, Service, like_the_service, status

V7_LINKS = {"1": entry(500), "2": entry(1000, "192.0.2.12"), "9": entry(10, "192.0.2.99", is_user_as=False)}
V7 = bundle_bytes(V7_LINKS)
V8 = bundle_bytes({"1": entry(900), "3": entry(0, "2001:db8::7")}, version="1.19", limits_version=8)


@pytest.fixture
def service(service: Service) -> Service:
    service.answers["/config"] = like_the_service(V7, "1.18", "7")
    return service


@pytest.fixture
def settings(service: Service, settings: Settings) -> Settings:
    return replace(settings, url=service.url, read_timeout_s=1.0)


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


# What the service answers after a good start, and the code of the problem: one of each. The answers are
# test_agent_fetch's, the tarballs test_agent_bundle's.
TROUBLES: dict[str, tuple[Answer, str]] = {
    "503": (status(503), "service_unreachable"),
    "204": (status(204), "no_as"),
    "no link_info": (svc.tarball(bundle_bytes({"1": entry(-5)})), "bundle_invalid"),
    "unsigned": (svc.tarball(bundle_bytes(version="1.20", is_signed=False)), "not_signed"),
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


@pytest.mark.parametrize("answer", [status(500), svc.never()])
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
