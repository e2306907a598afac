"""A host with both programs installed, for tests of their command lines: real files, a fake kernel."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ap_agent.agent.bundle import read_bundle
from ap_agent.agent.store import Store
from ap_agent.commands import agent_cli, legacy_cli, limiter_cli
from ap_agent.document.handover import write_document
from tests.agent_bundles import HOST_ID, PINNED, SECRET, bundle_bytes, entry
from tests.agent_service import Service
from tests.limiter_documents import handed
from tests.limiter_engine import FakeEngine

ROOT = Path(__file__).resolve().parents[1]
LINKS = {"1": entry(500), "2": entry(0, "2001:db8::7"), "9": entry(10, "192.0.2.99", is_user_as=False)}
V7 = bundle_bytes(LINKS)


class Host:
    """Folders, configuration, a fake kernel, and what a command printed."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.state, self.run_dir = folder / "state", folder / "run"
        self.limiter_state, self.limiter_run = folder / "lstate", folder / "lrun"
        self.config = folder / "agent.toml"
        self.configure()
        self.engine = FakeEngine()
        self.environment: dict[str, str] = {}
        self.out = self.err = ""
        self._capsys = capsys

    def configure(self, text: str = "") -> None:
        self.config.write_text(
            f'state_dir = "{self.state}"\nrun_dir = "{self.run_dir}"\nlimiter_state_dir = "{self.limiter_state}"\n'
            f'limiter_run_dir = "{self.limiter_run}"\nmaps_dir = "{self.folder}/maps"\n{text}'
        )
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

    def hand_over(self, links: Any = LINKS, **options: Any) -> None:
        self.state.mkdir(mode=0o750, exist_ok=True)
        write_document(self.state / "document.json", handed(links, **options))

    def agent(self, *arguments: str | Path) -> int:
        return self._ended(lambda: agent_cli.main(self._with_config(arguments), self.environment))

    def limiter(self, *arguments: str | Path) -> int:
        return self._ended(lambda: limiter_cli.main(self._with_config(arguments), self.environment, self.engine))  # type: ignore[arg-type]  # a fake

    def thesis(self, *arguments: str | Path) -> int:
        return self._ended(lambda: legacy_cli.main(self._with_config(arguments), self.environment, self.engine))  # type: ignore[arg-type]  # a fake

    def _with_config(self, arguments: tuple[str | Path, ...]) -> list[str]:
        return [*map(str, arguments), "--config", str(self.config)]

    def _ended(self, main: Callable[[], int]) -> int:
        try:
            code = main()
        except SystemExit as exc:  # argparse
            code = int(exc.code or 0)
        captured = self._capsys.readouterr()
        self.out, self.err = (text.replace("\N{NO-BREAK SPACE}", " ") for text in captured)
        assert SECRET not in self.out + self.err
        return code
