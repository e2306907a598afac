"""An app is added by its own folder and the list of installed apps alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SERVERS = ("DATABASE_URL", "REDIS_URL", "PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST")


def test_an_app_adds_its_row_its_panel_its_field_and_its_admin() -> None:
    options = ["--ds=tests.note.settings", "-p", "no:cacheprovider", "-q", "-n", "0"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "tests/note/check.py"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name not in SERVERS},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "1 passed" in done.stdout
