"""`./dev demo --scion`, with a short overload."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from measuring.iproute import available
from measuring.netns import REPOSITORY

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(600)]


@pytest.mark.usefixtures("scion_programs")
def test_ases_of_the_form_run_real_scion_and_nothing_of_it_restarts(tmp_path: Path) -> None:
    if (reason := available()) is not None:
        pytest.skip(reason)
    command = [sys.executable, "-m", "lab.demo", "--scion", "--no-wait", "--seconds", "5"]
    told = tmp_path / "demo.log"
    try:
        with told.open("w") as log:
            done = subprocess.run(
                command, cwd=REPOSITORY, stdout=log, stderr=subprocess.STDOUT, timeout=580, check=False
            )
    finally:
        print(told.read_text())
    assert done.returncode == 0
    assert "All 16 checks passed." in told.read_text()
