"""A host with the agent installed, for tests of its command lines: real files, a fake kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ap_agent import __main__ as agent_cli
from ap_agent.agent.store import Store
from ap_agent.commands import legacy_cli
from ap_agent.document.bundle import read_bundle
from tests.agent_bundles import HOST_ID, PINNED, SECRET, bundle_bytes, entry
from tests.agent_engine import FakeEngine
from tests.agent_service import Service

ROOT = Path(__file__).resolve().parents[1]
LINKS = {"1": entry(500), "2": entry(0, "2001:db8::7"), "9": entry(10, "192.0.2.99", is_user_as=False)}
V7 = bundle_bytes(LINKS)


class Host:
    """A host with the agent installed: folders, configuration, a fake kernel, and what a command printed."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.state, self.run_dir = folder / "state", folder / "run"
        self.config = folder / "agent.toml"
        self.configure()
        self.engine = FakeEngine()
        self.environment: dict[str, str] = {}
        self.out = self.err = ""
        self._capsys = capsys

    def configure(self, text: str = "") -> None:
        self.config.write_text(f'state_dir = "{self.state}"\nrun_dir = "{self.run_dir}"\n{text}')
        self.config.chmod(0o640)

    def use(self, service: Service) -> None:
        self.configure(
            f'url = "{service.url}"\nhost_id = "{HOST_ID}"\nhost_secret = "{SECRET}"\nread_timeout_s = 5\n{PINNED}'
        )

    def link_info(self, document: Any = LINKS, name: str = "link_info.json") -> Path:
        path = self.folder / name
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path

    def store(self, data: bytes = V7) -> None:
        Store(self.state).save(read_bundle(data, host_id=HOST_ID))

    def agent(self, *arguments: str | Path) -> int:
        return self._ended(agent_cli.main, [*map(str, arguments), "--config", str(self.config)])

    def limiter(self, *arguments: str | Path) -> int:
        return self._ended(legacy_cli.main, ["--config", str(self.config), *map(str, arguments)])

    def _ended(self, main: Any, arguments: list[str]) -> int:
        try:
            code = main(arguments, self.environment, self.engine)
        except SystemExit as exc:  # argparse
            code = exc.code
        captured = self._capsys.readouterr()
        self.out, self.err = captured.out, captured.err
        assert SECRET not in self.out + self.err
        return int(code)
