"""The limiter's process on an attachment point of its own; its agent is the test, which hands documents over."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ap_agent.document.handover import write_document
from ap_agent.document.state import LimiterState, read_state
from measuring.iproute import run_command
from tests.agent_bundles import HOST_ID, PINNED, entry
from tests.kernel.engine_bed import U1, USER_PORT, EngineBed
from tests.limiter_documents import handed

PATIENCE_S = 20.0


@dataclass
class LimiterHost:
    """`bed.engine` is not used: all limits are the process's."""

    bed: EngineBed
    folder: Path
    process: subprocess.Popen[str] | None = None
    settings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.state_dir.mkdir(mode=0o750)
        self.bed.maps_dir.mkdir()
        run_command(["mount", "-t", "bpf", "bpf", str(self.bed.maps_dir)])  # what the process mounted would end with it

    @property
    def state_dir(self) -> Path:
        return self.folder / "agent"

    @property
    def run_dir(self) -> Path:
        return self.folder / "run"

    def start(self) -> None:
        config = self.folder / "agent.toml"
        lines = {
            "url": '"https://service.example"',
            "host_id": f'"{HOST_ID}"',
            "host_secret": '"secret-of-this-host"',
            "state_dir": f'"{self.state_dir}"',
            "limiter_state_dir": f'"{self.folder / "limiter"}"',
            "limiter_run_dir": f'"{self.run_dir}"',
            "maps_dir": f'"{self.bed.maps_dir}"',
            "usage_interval_s": "1",
            **self.settings,
        }
        config.write_text(PINNED + "".join(f"{key} = {value}\n" for key, value in lines.items()))
        config.chmod(0o600)
        with (self.folder / "log").open("a") as log:
            command = ("ap_agent.commands.limiter_cli", "run", "--config", str(config))
            self.process = self.bed.ap.python(*command, stdout=log, stderr=log)

    def begin(self) -> LimiterState:
        """With link 7, to u1 at 500 kbit/s, which is in force."""
        self.hand({"7": entry(500, U1, USER_PORT)})
        self.start()
        return self.until(lambda state: state.is_ok and 7 in state.links)

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def hand(self, links: dict[str, Any], **options: Any) -> None:
        write_document(self.state_dir / "document.json", handed(links, **options))

    def log(self) -> str:
        return (self.folder / "log").read_text()

    @property
    def state(self) -> LimiterState | None:
        return read_state(self.run_dir)

    def until(self, holds: Callable[[LimiterState], bool], within_s: float = PATIENCE_S) -> LimiterState:
        """The first state for which it holds."""
        deadline = time.monotonic() + within_s
        while True:
            found = self.state
            if found is not None and holds(found):
                return found
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {within_s} s: {found}\n{self.log()}")
            time.sleep(0.01)

    def rates(self, device: str = "slbw0") -> list[str]:
        """What `tc` says of our classes."""
        lines = self.bed.tc("class", "show", "dev", device, check=False).splitlines()
        return sorted(line.partition(" rate ")[2].split()[0] for line in lines if " htb " in line)


def run_limiter(
    bed: EngineBed, folder: Path, command: str, links: dict[str, Any], *, maps_dir: Path, rights: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """The limiter's command line with folders of its own: a container, or a checkout that somebody left."""
    config, document = folder / "other.toml", folder / "link_info.json"
    folders = {"state_dir": folder, "limiter_run_dir": folder / "lrun", "limiter_state_dir": folder / "lstate"}
    config.write_text("".join(f'{key} = "{path}"\n' for key, path in {**folders, "maps_dir": maps_dir}.items()))
    document.write_text(json.dumps(links))
    limiter = [sys.executable, "-m", "ap_agent.commands.limiter_cli", command, "--config", str(config)]
    return subprocess.run(
        ["ip", "netns", "exec", bed.ap.name, *rights, *limiter]
        + (["--link-info", str(document)] if command == "once" else []),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def host(bed: EngineBed, tmp_path: Path) -> Iterator[LimiterHost]:
    yield from limiter_on(bed, tmp_path)


def limiter_on(bed: EngineBed, folder: Path, **settings: str) -> Iterator[LimiterHost]:
    """For a fixture; nothing of it runs afterwards."""
    made = LimiterHost(bed, folder, settings=settings)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.end(signal.SIGKILL)
