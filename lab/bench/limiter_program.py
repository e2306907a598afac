"""The limiter's process as it is deployed, for a host of the lab; its agent is whoever writes `agent/document.json`.

    python -m lab.bench.limiter_program FOLDER

Below FOLDER: `agent` (documents, unsigned), `limiter` (its own copy), `run` (its state) and `maps`, a BPF file system.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ap_agent.common.lock import Lock
from ap_agent.common.log import configure, get_logger
from ap_agent.common.settings import Settings
from ap_agent.common.systemd import Notifier
from ap_agent.dataplane.engine import Engine
from ap_agent.limiter import process

HOST_ID = "b0000000000000000000000000000001"


def settings_below(folder: Path) -> Settings:
    return Settings(
        allow_unsigned=True,
        host_id=HOST_ID,
        state_dir=folder / "agent",
        limiter_state_dir=folder / "limiter",
        limiter_run_dir=folder / "run",
        maps_dir=folder / "maps",
        log_level="warning",
    )


def main(folder: Path) -> int:
    settings = settings_below(folder)
    configure(settings.log_level, under_systemd=False)
    with Lock(settings.limiter_run_dir, "limiter", "run") as lock:
        engine = Engine(settings.maps_dir)
        process.run(settings, lambda: settings, engine, lock, logger=get_logger(), notifier=Notifier({}))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
