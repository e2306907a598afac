"""The agent's systemd units are well-formed, and take away what `docs/reliability.md` says that they do."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ap_agent.common.credentials import DEFAULT_CREDENTIALS, SYSTEMD_NAME

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "packaging" / "systemd"
AGENT = UNITS / "scionlab-bw-agent.service"

pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="units: systemd is not installed")


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


# What stays of its exposure, and why.
STAYS = {
    "AmbientCapabilities": "it is started without root and gets that one",
    "CapabilityBoundingSet_CAP_NET_ADMIN": "changing tc is the work",
    "RestrictAddressFamilies_AF_NETLINK": "tc is netlink",
    "PrivateNetwork": "the NICs to limit are the host's",
    "PrivateUsers": "in a user namespace of its own CAP_NET_ADMIN is none over the host's network",
    "RootDirectoryOrRootImage": "Python and the kernel's modules are the host's",
    "DeviceAllow": "ProtectClock itself allows reading the clock device",
    "RestrictAddressFamilies_AF_INET_INET6": "it asks the service",
    "RestrictAddressFamilies_AF_UNIX": "it tells systemd that it is ready",
    "IPAddressDeny": "the service may have any address",
}


def test_exposure_is_the_lowest_that_works() -> None:
    """At most 1.5: --threshold counts in tenths. systemd 252 says 2.2 of the same unit without the list of calls."""
    done = analyze("security", "--offline=true", "--threshold=15", "--json=short", AGENT)
    assert done.returncode == 0, done.stdout
    exposed = {row["json_field"] for row in json.loads(done.stdout) if row["exposure"]}
    assert exposed == STAYS.keys()


def test_systemd_understands_every_line() -> None:
    said = analyze("verify", "--man=no", AGENT).stderr
    assert [line for line in said.splitlines() if "is not executable" not in line] == []


def test_the_credentials_that_are_loaded_are_those_that_enrolment_writes() -> None:
    text = AGENT.read_text()
    assert f"LoadCredential={SYSTEMD_NAME}:{DEFAULT_CREDENTIALS}\n" in text
    assert f"SetCredential={SYSTEMD_NAME}:{{}}\n" in text


def test_one_capability_and_no_other_way_up() -> None:
    found = dict(re.findall(r"^(\w+)=(.*)$", AGENT.read_text(), flags=re.MULTILINE))
    assert found["AmbientCapabilities"] == found["CapabilityBoundingSet"] == "CAP_NET_ADMIN"
    assert (found["User"], found["NoNewPrivileges"], found["RestrictSUIDSGID"]) == ("scionlab-bw", "yes", "yes")
