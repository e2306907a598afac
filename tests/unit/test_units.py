"""The agent's systemd units are well-formed, and take away what `docs/reliability.md` says that they do."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ap_agent.credentials import DEFAULT_CREDENTIALS, SYSTEMD_NAME

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "packaging" / "systemd"
AGENT, LIMIT = UNITS / "scionlab-bw-agent.service", UNITS / "scionlab-bw-limit.service"

pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="units: systemd is not installed")


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


# What stays of each unit's exposure, and why.
OF_BOTH = {
    "AmbientCapabilities": "it is started without root and gets that one",
    "CapabilityBoundingSet_CAP_NET_ADMIN": "changing tc is the work",
    "RestrictAddressFamilies_AF_NETLINK": "tc is netlink",
    "PrivateNetwork": "the NICs to limit are the host's",
    "PrivateUsers": "in a user namespace of its own CAP_NET_ADMIN is none over the host's network",
    "RootDirectoryOrRootImage": "Python and the kernel's modules are the host's",
    "DeviceAllow": "ProtectClock itself allows reading the clock device",
}
OF_THE_AGENT = {
    "RestrictAddressFamilies_AF_INET_INET6": "it asks the service",
    "RestrictAddressFamilies_AF_UNIX": "it tells systemd that it is ready",
    "IPAddressDeny": "the service may have any address",
}


@pytest.mark.parametrize(("unit", "stays", "limit"), [(AGENT, OF_BOTH | OF_THE_AGENT, 15), (LIMIT, OF_BOTH, 11)])
def test_exposure_is_the_lowest_that_works(unit: Path, stays: dict[str, str], limit: int) -> None:
    """`limit` is in tenths, as --threshold counts; systemd 252 says 2.2 of the same units without the list."""
    done = analyze("security", "--offline=true", f"--threshold={limit}", "--json=short", unit)
    assert done.returncode == 0, done.stdout
    exposed = {row["json_field"] for row in json.loads(done.stdout) if row["exposure"]}
    assert exposed == stays.keys()


@pytest.mark.parametrize(
    "unit", sorted(UNITS.glob("*.service")) + sorted(UNITS.glob("*.path")), ids=lambda one: one.name
)
def test_systemd_understands_every_line(unit: Path) -> None:
    said = analyze("verify", "--man=no", unit).stderr
    assert [line for line in said.splitlines() if "is not executable" not in line] == []


def test_the_credentials_that_are_loaded_are_those_that_enrolment_writes() -> None:
    text = AGENT.read_text()
    assert f"LoadCredential={SYSTEMD_NAME}:{DEFAULT_CREDENTIALS}\n" in text
    assert f"SetCredential={SYSTEMD_NAME}:{{}}\n" in text
    assert "credential" not in LIMIT.read_text().lower()  # it asks nobody


@pytest.mark.parametrize("unit", [AGENT, LIMIT], ids=lambda one: one.name)
def test_one_capability_and_no_other_way_up(unit: Path) -> None:
    found = dict(re.findall(r"^(\w+)=(.*)$", unit.read_text(), flags=re.MULTILINE))
    assert found["AmbientCapabilities"] == found["CapabilityBoundingSet"] == "CAP_NET_ADMIN"
    assert (found["User"], found["NoNewPrivileges"], found["RestrictSUIDSGID"]) == ("scionlab-bw", "yes", "yes")
