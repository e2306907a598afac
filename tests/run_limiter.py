"""`scionlab-bw-limiter run` with a configuration file, as its command does it; for tests that end it at any moment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ap_agent.common.lock import Lock
from ap_agent.common.log import configure, get_logger
from ap_agent.common.settings import Settings, settings_of_limiter
from ap_agent.common.systemd import Notifier
from ap_agent.dataplane.engine import Engine
from ap_agent.limiter import process


def main() -> None:
    """The first argument is the configuration file."""

    def load() -> Settings:
        return settings_of_limiter(Path(sys.argv[1]), os.environ)[0]

    settings = load()
    configure(settings.log_level, under_systemd=False)
    with Lock(settings.limiter_run_dir, "limiter", "run") as lock:
        engine = Engine(settings.maps_dir)
        process.run(settings, load, engine, lock, logger=get_logger(), notifier=Notifier(os.environ))


if __name__ == "__main__":
    main()
