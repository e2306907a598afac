"""`./dev demo --scion`, with a short overload."""

from __future__ import annotations

import subprocess
import sys

import pytest

from measuring.netns import REPOSITORY, available

pytestmark = [pytest.mark.kernel, pytest.mark.alone, pytest.mark.timeout(300)]


@pytest.mark.usefixtures("scion_programs")
def test_ases_of_the_form_run_real_scion_and_nothing_of_it_restarts() -> None:
    if (reason := available()) is not None:
        pytest.skip(reason)
    command = [sys.executable, "-m", "lab.demo", "--scion", "--no-wait", "--seconds", "5"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All 13 checks held." in done.stdout
