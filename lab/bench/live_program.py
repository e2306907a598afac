"""The agent's part of a look, in a process of its own: from the limiter's file to a service that speaks TLS.

    python -m lab.bench.live_program AGENT_TOML URL CA_FILE

Runs one session (`ap_agent.agent.live`) for the limiter with these settings, until the service says that nobody looks
any more.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from ap_agent.agent.fetch import Client
from ap_agent.agent.live import session
from ap_agent.common.settings import settings_without_enrolment
from lab.bench.suites.document import HOST_ID


def main(config: Path, url: str, ca_file: Path) -> int:
    settings = replace(
        settings_without_enrolment(config, {}), url=url, host_id=HOST_ID, host_secret="0" * 32, ca_file=ca_file
    )
    session(Client(settings), settings, (1,))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])))
