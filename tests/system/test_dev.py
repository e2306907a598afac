"""`dev` chooses a Python, and packaging/fresh says what it lacks, before anything is installed or made."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
# A Python whose version is $VERSION; it makes an environment without asking anybody, and keeps what it was asked.
PYTHON = """#!/bin/sh
echo "$*" >>"$ASKED"
case $1 in
    -c) exec {real} -c "import sys
sys.version_info = tuple(map(int, '$VERSION'.split('.')))
sys.base_prefix = '/usr'
$2" ;;
    -m) [ "$2" != venv ] || {{
            mkdir -p .venv/bin && cp "$0" .venv/bin/python
            echo "version = $VERSION" >.venv/pyvenv.cfg
        }} ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    shutil.copy(REPOSITORY / "dev", tmp_path)
    shutil.copytree(REPOSITORY / "requirements", tmp_path / "requirements")
    python = tmp_path / "python"
    python.write_text(PYTHON.format(real=sys.executable))
    python.chmod(0o755)
    return tmp_path


def setup(checkout: Path, version: str, command_of_dev: str = "setup") -> subprocess.CompletedProcess[str]:
    (checkout / "asked").unlink(missing_ok=True)
    environment = {**os.environ, "SCIONLAB_PYTHON": str(checkout / "python"), "VERSION": version}
    environment["ASKED"] = str(checkout / "asked")
    command = [checkout / "dev", command_of_dev]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("version", ["3.10.13", "3.15.0", "2.7.18"])
def test_a_python_outside_of_the_range_is_refused_in_one_sentence(checkout: Path, version: str) -> None:
    done = setup(checkout, version)
    assert done.returncode == 1
    assert done.stderr == (
        f"dev: {checkout}/python is Python {version}; Python 3.11 to 3.14 is needed: set SCIONLAB_PYTHON to one\n"
    )
    assert not (checkout / ".venv").exists()
    assert "-m" not in (checkout / "asked").read_text().split()


def test_an_environment_of_another_python_is_made_again_and_one_of_the_same_is_kept(checkout: Path) -> None:
    setup(checkout, "3.11.2")
    (checkout / ".venv/of-the-first").touch()

    kept = setup(checkout, "3.11.2")
    assert "making a Python environment" not in kept.stderr
    assert (checkout / ".venv/of-the-first").exists()

    made = setup(checkout, "3.13.5")
    assert "making a Python environment" in made.stderr
    assert not (checkout / ".venv/of-the-first").exists()
