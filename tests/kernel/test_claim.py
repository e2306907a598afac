"""Two limiters of one network namespace, whatever their folders: the second one refuses and changes nothing."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from ap_agent.common.errors import NotPermittedError
from ap_agent.dataplane.claim import Claim
from tests.agent_bundles import entry
from tests.kernel.engine_bed import U1, EngineBed, link, wanted
from tests.kernel.limiter_host import LimiterHost, host, run_limiter

__all__ = ["host"]  # the fixture
NOBODY = 65534


def test_a_second_limiter_with_other_folders_refuses_and_names_the_first(host: LimiterHost, tmp_path: Path) -> None:
    def run_beside(command: str) -> tuple[int, str]:
        done = run_limiter(host.bed, tmp_path, command, {"9": entry(7000, U1)}, maps_dir=tmp_path / "other")
        return done.returncode, done.stderr

    host.begin()
    assert host.process is not None
    before = host.bed.snapshot()
    for command in ("once", "reset"):
        code, said = run_beside(command)
        assert code == 4
        assert re.search(rf"Another limiter manages the network of this host: process {host.process.pid} \(", said)
        assert "ap_agent.commands.limiter_cli" in said
    assert host.bed.snapshot() == before
    assert host.bed.received_kbit(to_user=True, kbit=8000) == pytest.approx(500, abs=220)

    host.end(signal.SIGKILL)
    assert run_beside("once")[0] == 0  # what a killed one had is free


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
