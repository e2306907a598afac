"""Two limiters of one network namespace, whatever their folders: the second one refuses and changes nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest

from ap_agent.common.errors import NotPermittedError
from ap_agent.dataplane.claim import Claim
from tests.agent_bundles import entry
from tests.kernel.engine_bed import U1, USER_PORT, EngineBed, link, wanted
from tests.kernel.limiter_host import LimiterHost, host

__all__ = ["host"]  # the fixture
pytestmark = pytest.mark.kernel
NOBODY = 65534


def run_beside(host: LimiterHost, command: str) -> tuple[int, str]:
    """The limiter's command line with folders of its own: a container, or a checkout that somebody left."""
    folder = host.folder / "other"
    folder.mkdir(exist_ok=True)
    config = folder / "agent.toml"
    config.write_text("".join(f'{key} = "{folder / key}"\n' for key in ("limiter_run_dir", "limiter_state_dir")))
    with config.open("a") as file:
        file.write(f'maps_dir = "{folder / "maps"}"\nstate_dir = "{folder}"\nallow_unsigned = true\n')
        file.write('url = "https://service.example"\nhost_id = "beside"\nhost_secret = "secret"\n')
    config.chmod(0o600)
    links = folder / "link_info.json"
    links.write_text('{"9": {"AS_ID": 9, "IsUserAS": true, "Bandwidth": 7000, "IP-Address": "192.0.2.11"}}')
    inside = ["ip", "netns", "exec", host.bed.ap.name, sys.executable, "-m", "ap_agent.commands.limiter_cli"]
    arguments = ["--link-info", str(links)] if command == "once" else []
    done = subprocess.run(
        [*inside, command, "--config", str(config), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


def test_a_second_limiter_with_other_folders_refuses_and_names_the_first(host: LimiterHost) -> None:
    host.hand({"7": entry(500, U1, USER_PORT)})
    host.start()
    assert host.process is not None
    host.until(lambda state: state.is_ok and 7 in state.links)
    before = host.bed.snapshot()
    for command in ("once", "reset"):
        code, said = run_beside(host, command)
        assert code == 4
        assert re.search(rf"Another limiter manages the network of this host: process {host.process.pid} \(", said)
        assert "tests.run_limiter" in said
    assert host.bed.snapshot() == before
    assert host.bed.received_kbit(to_user=True, kbit=8000) == pytest.approx(500, abs=220)

    host.end(signal.SIGKILL)
    assert run_beside(host, "once")[0] == 0  # what a killed one had is free


def test_no_other_user_can_make_the_claim(bed: EngineBed) -> None:
    """Otherwise any local user could keep the limiter from starting."""

    def as_nobody() -> int:
        child = os.fork()
        if child == 0:
            os.setuid(NOBODY)
            try:
                Claim().take()
            except NotPermittedError:
                os._exit(0)
            os._exit(1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert bed.ap.call(as_nobody) == 0
    assert bed.enforce(wanted(link(7, 500))).is_ok
