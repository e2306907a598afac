"""docs/agent.md and the units keep up with the code: every problem, command, option and exit code stands there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ap_agent.__main__ import _COMMANDS
from ap_agent.agent.health import AGENT_CODES
from ap_agent.agent.problems import CODES, PASSING_CODES
from ap_agent.commands import commands

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "agent.md").read_text(encoding="utf-8")
UNITS = ROOT / "packaging" / "systemd"


def codes_in_the_source() -> set[str]:
    """The first argument of everything that makes a problem."""
    found: set[str] = set()
    for path in (ROOT / "ap_agent").rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        found |= set(re.findall(r'(?:Problem|_found|_NoPlaceError)\(\s*"([a-z_]+)"', source))
    return found


def test_every_problem_has_a_line_on_what_to_do() -> None:
    codes = codes_in_the_source() | {code for _, code in CODES} | PASSING_CODES | AGENT_CODES
    assert {"no_as", "foreign_root", "internal_error", "auth_refused", "no_route"} <= codes

    missing = sorted(code for code in codes if f"`{code}`" not in TEXT)
    assert missing == []


def test_every_exit_code_is_in_the_table() -> None:
    rows = re.findall(r"^\| (\d) \|", TEXT, flags=re.MULTILINE)

    assert rows == [
        str(code)
        for code in (
            commands.OK,
            commands.NOT_DONE,
            commands.USAGE,
            commands.NOT_PERMITTED,
            commands.LOCKED,
            commands.NOTHING_NEW,
        )
    ]


@pytest.mark.parametrize("command", _COMMANDS)
def test_every_command_is_in_the_table(command: str) -> None:
    assert re.search(rf"^\| `{command}[ `]", TEXT, flags=re.MULTILINE)


# --- the units --------------------------------------------------------------------------------------------------------

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """Our units as on a host that has SCION's, with an interpreter that exists."""
    shutil.copytree(UNITS, tmp_path / "units")
    for unit in (tmp_path / "units").glob("*.service"):
        unit.write_text(unit.read_text().replace("/opt/scionlab-bw-agent/bin/python", shutil.which("python3") or ""))
    stand_in = "[Unit]\nDescription=stand-in\n[Service]\nExecStart=/bin/true\n"
    (tmp_path / "units" / "scion-border-router@.service").write_text(stand_in)
    wants = "[Unit]\nDescription=stand-in\nWants=scion-border-router@br-1.service\n"
    (tmp_path / "units" / "scionlab.target").write_text(wants)
    return tmp_path / "units"


def analyze(units: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *arguments],
        cwd=units,
        env={"SYSTEMD_UNIT_PATH": f"{units}:", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "SYSTEMD_COLORS": "0"},
        capture_output=True,
        text=True,
        check=False,
    )


@needs_systemd
@pytest.mark.parametrize(
    "unit",
    [
        "scionlab-bw-agent.service",
        "scion-border-router@br-1.service",
    ],
)
def test_unit_is_accepted_by_systemd_without_a_word(units: Path, unit: str) -> None:
    done = analyze(units, "verify", "--man=no", f"./{unit}")

    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs_systemd
def test_verification_would_notice_a_misspelt_key(units: Path) -> None:
    unit = units / "scionlab-bw-agent.service"
    unit.write_text(unit.read_text().replace("ProtectSystem=", "ProtectSysten="))

    assert "ProtectSysten" in analyze(units, "verify", "--man=no", "./scionlab-bw-agent.service").stderr


@needs_systemd
def test_unit_gives_one_capability_and_little_else(units: Path) -> None:
    done = analyze(units, "security", "--offline=true", "--threshold=25", "./scionlab-bw-agent.service")

    assert done.returncode == 0, done.stdout
    text = (units / "scionlab-bw-agent.service").read_text()
    assert re.findall(r"^(?:Ambient|Capability).*=(.*)$", text, flags=re.MULTILINE) == ["CAP_NET_ADMIN"] * 2


def test_limits_stand_before_the_router_and_do_not_wait_for_the_network() -> None:
    text = (UNITS / "scionlab-bw-agent.service").read_text()
    assert "network-online" not in text
    assert "Before=scionlab.target" in text
    assert "Type=notify" in text
    drop_in = (UNITS / "scion-border-router@.service.d" / "50-scionlab-bw.conf").read_text()
    assert "After=scionlab-bw-agent.service\n" in drop_in
