"""What most tests of the agent begin with: its settings, its time, a service, a host with both programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ap_agent.common import rights
from ap_agent.common.settings import Settings
from tests import agent_service as svc
from tests.agent_clock import Clock, settings_in
from tests.agent_host import Host


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_in(tmp_path)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def service() -> Iterator[svc.Service]:
    with svc.service() as running:
        yield running


@pytest.fixture
def host(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(rights, "require_rights", lambda *_: None)  # the fake kernel lets everybody
    return Host(tmp_path, capsys)
