"""`tell`: one receipt of what the limiter said last, within seconds or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ap_agent.agent import agent as agent_module
from ap_agent.agent.agent import send_last_receipt
from ap_agent.agent.bundle import read_bundle
from ap_agent.agent.fetch import make_client
from ap_agent.agent.store import Store
from ap_agent.common.log import get_logger
from ap_agent.common.settings import Settings
from tests import agent_service as svc
from tests.agent_bundles import HOST_ID, SECRET, SERVICE_KEYS, bundle_bytes
from tests.agent_limiter import FakeLimiter, limiter_state
from tests.agent_service import Service


@pytest.fixture
def service() -> Iterator[Service]:
    with svc.service() as running:
        yield running


@pytest.fixture
def settings(service: Service, tmp_path: Path) -> Settings:
    folders = {name: tmp_path / name for name in ("state_dir", "run_dir", "limiter_run_dir")}
    return Settings(url=service.url, host_id=HOST_ID, host_secret=SECRET, service_keys=SERVICE_KEYS, **folders)


def told(settings: Settings) -> str | None:
    return send_last_receipt(settings, make_client, get_logger())


def test_nothing_on_the_disk_changes_and_the_secret_of_the_bundle_counts(
    settings: Settings, service: Service, tmp_path: Path
) -> None:
    Store(settings.state_dir).save(read_bundle(bundle_bytes(host_secret="n3w"), host_id=HOST_ID))
    FakeLimiter(settings, lambda: datetime.now(UTC)).write({})
    before = {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")}

    assert told(settings) is None
    assert {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert service.asked("/enforcement")[0].credentials == f"{HOST_ID}:n3w"


def test_nobody_waits_longer_than_some_seconds(
    settings: Settings, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "SEND_WITHIN_S", 0.3)
    service.answers["/enforcement"] = svc.never()
    assert told(settings) == "No answer within 0.3 s."


def test_state_that_is_told_is_the_limiters(settings: Settings, service: Service) -> None:
    state = limiter_state(is_observe_only=True)
    limiter = FakeLimiter(settings, lambda: datetime.now(UTC))
    limiter.changes = {"order": state.order, "limits_digest": state.limits_digest, "is_observe_only": True}
    limiter.write({})

    assert told(settings) is None
    (receipt,) = service.receipts()
    assert (receipt["version"], receipt["limits_version"], receipt["observe_only"]) == ("1.18", 7, True)
    assert receipt["problems"] == []
