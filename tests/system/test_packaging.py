"""The Debian package of agent and limiter, as far as it can be seen without building it (`packaging/check` does that):
manual pages that keep up with the programs, and units that know where they are."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from ap_agent.commands import agent_cli, limiter_cli
from multipath import MpgetError
from multipath.__main__ import INTERRUPTED
from multipath.__main__ import parser as mpget_parser
from scionlab_bw.__main__ import parser as client_parser

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = {"scionlab-bw-agent": agent_cli, "scionlab-bw-limiter": limiter_cli}
EXAMPLE = ROOT / "packaging/agent.toml.example"
RULES = (ROOT / "packaging/debian/rules").read_text(encoding="utf-8")


def manual(program: str) -> str:
    return (ROOT / f"packaging/man/{program}.8").read_text(encoding="utf-8")


@pytest.mark.parametrize(("program", "door"), PROGRAMS.items())
def test_the_manual_has_every_command_and_no_other(program: str, door: ModuleType) -> None:
    assert re.findall(r"^\.It Ic ([a-z-]+)", manual(program), flags=re.MULTILINE) == list(door.COMMANDS)


def test_the_manual_of_the_client_has_every_command_and_no_other() -> None:
    manual = (ROOT / "packaging/man/scionlab-bw.1").read_text(encoding="utf-8")
    subparsers = next(action for action in client_parser()._actions if action.dest == "command")
    assert isinstance(subparsers.choices, dict)
    said = dict.fromkeys(
        re.findall(r"^\.It Ic ([a-z-]+)", manual, flags=re.MULTILINE)
    )  # one with four forms is there four times
    assert list(said) == list(subparsers.choices)


def test_the_manual_of_mpget_has_every_option_and_exit_status_and_no_other() -> None:
    manual = (ROOT / "packaging/man/mpget.1").read_text(encoding="utf-8")
    options, _, statuses = manual.partition(".Sh EXIT STATUS")
    said = re.findall(r"^\.It Fl (?:o , )?-([a-z-]+)", options, flags=re.MULTILINE)
    actions = [action.option_strings[-1] for action in mpget_parser()._actions]
    assert sorted(f"--{one}" for one in said) == sorted({*actions} - {"--help"})
    codes = {0, INTERRUPTED, *(one.code for one in MpgetError.__subclasses__())}
    assert [int(one) for one in re.findall(r"^\.It (\d+)", statuses, flags=re.MULTILINE)] == sorted(codes)
    assert "cp -r multipath scionlab_bw station terminal.py $(CLIENT)" in RULES
    assert "packaging/man/mpget.1" in RULES


@pytest.mark.parametrize(("program", "door"), PROGRAMS.items())
def test_the_manual_has_every_option(program: str, door: ModuleType) -> None:
    parser = door.parser()
    subparsers = next(action for action in parser._actions if action.dest == "command")
    assert isinstance(subparsers.choices, dict)
    options = {
        option.lstrip("-")
        for one in (parser, *subparsers.choices.values())
        for action in one._actions
        for option in action.option_strings
        if option.startswith("--")
    } - {"help"}
    assert {option for option in options if f"Fl -{option}" not in manual(program)} == set()


def test_the_page_of_agent_toml_has_every_key_with_its_words() -> None:
    command = [sys.executable, str(ROOT / "packaging/man/agent_toml.py"), str(EXAMPLE)]
    page = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    keys = re.findall(r"^#?([a-z_]+) = ", EXAMPLE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(keys) > 20
    assert re.findall(r"^\.It Li ([a-z_]+) = ", page, flags=re.MULTILINE) == keys
    assert "Reject a larger configuration" in page


def test_the_package_depends_on_every_library_of_the_agent_and_on_no_minor_python() -> None:
    """Debian's own libraries serve, so that an upgrade of Debian finds nothing that would have to be removed."""
    control = (ROOT / "packaging/debian/control").read_text(encoding="utf-8")
    fields = re.findall(r"^(Architecture|Depends): (.*)$", control, flags=re.MULTILINE)
    assert [value for name, value in fields if name == "Architecture"] == ["all", "all"]
    agent, _client = (set(value.split(", ")) for name, value in fields if name == "Depends")
    libraries = re.findall(r"^[a-z0-9-]+", (ROOT / "requirements/agent.in").read_text(), flags=re.MULTILINE)
    depended = {one.partition(" ")[0] for one in agent}
    assert {f"python3-{name}" for name in libraries} <= depended
    assert [one for one in agent if one.startswith("python3 ")] == ["python3 (>= 3.11~)"]
    assert {"libbpf1"} <= depended
    assert "<<" not in control
    assert "pip" not in RULES


@pytest.mark.parametrize("name", ["scionlab-bw", "scionlab-bw-agent", "scionlab-bw-limiter", "scionlab_bw_limiter"])
def test_a_command_of_a_fresh_clone_says_what_to_run(tmp_path: Path, name: str) -> None:
    clone = tmp_path / "clone"
    for part in (
        "ap_agent/commands/legacy_cli.py",
        "bandwidth_config.py",
        "scionlab_bw/__main__.py",
        f"packaging/bin/{name}",
    ):
        (clone / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / part, clone / part)
    done = subprocess.run(
        [clone / "packaging/bin" / name, "--help"], capture_output=True, text=True, check=False, timeout=60
    )
    words = f"{name}: this checkout has no Python environment yet; run {clone.resolve()}/dev setup\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", words)
