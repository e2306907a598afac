"""The first engine as it landed (commit 90d5377), from git: it prepares hosts that are upgraded afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from measuring.netns import REPOSITORY, Namespace

COMMIT = "90d5377"
PARTS = ("ap_agent", "bandwidth_config.py", "config_tar.py")


class FirstEngine:
    """Its command line, run as an operator would have; state and settings are below `folder`."""

    def __init__(self, code: Path, folder: Path) -> None:
        self._python = ("env", f"--chdir={code}", sys.executable)  # which imports from there first
        self._folder = folder

    def enforce(self, host: Namespace, links: dict[str, dict[str, Any]], **settings: object) -> None:
        """`once --link-info`; raises `LabError` unless every link is enforced."""
        values = {"state_dir": f"{self._folder}/old-state", "run_dir": f"{self._folder}/old-run", **settings}
        config = self._folder / "old.toml"
        config.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))
        config.chmod(0o640)
        link_info = self._folder / "old.json"
        link_info.write_text(json.dumps(links))
        command = ["once", "--link-info", str(link_info), "--config", str(config)]
        host.run(*self._python, "-m", "ap_agent", *command)

    def marks(self, host: Namespace, dev: str) -> dict[int, int]:
        """What the first engine calls the lives of the links' classes on this device: 31 bits each."""
        script = (
            "import json; from ap_agent.usage.reading import Layouts, UsageReader, decode; "
            f"(one,) = UsageReader().read([{dev!r}]); "
            "print(json.dumps({link: each.mark for link, each in decode(one.pieces, one.major, Layouts()).items()}))"
        )
        found = json.loads(host.run(*self._python, "-c", script))
        return {int(link): mark for link, mark in found.items()}


def is_there() -> bool:
    """Whether this clone has the commit: a shallow one has not."""
    asked = ["git", "cat-file", "-e", f"{COMMIT}^{{commit}}"]
    return subprocess.run(asked, cwd=REPOSITORY, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="session")
def landed_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of the first engine."""
    done = subprocess.run(["git", "archive", COMMIT, *PARTS], cwd=REPOSITORY, capture_output=True, check=True)
    folder: Path = tmp_path_factory.mktemp("first-engine")
    subprocess.run(["tar", "-x", "-C", folder], input=done.stdout, check=True)
    return folder


@pytest.fixture
def first_engine(landed_code: Path, tmp_path: Path) -> FirstEngine:
    return FirstEngine(landed_code, tmp_path)
