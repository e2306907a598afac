"""The systemd units are well-formed, take away what docs/agent.md says that they do, and stand in the right order."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ap_agent.common.credentials import DEFAULT_CREDENTIALS, SYSTEMD_NAME
from ap_agent.common.settings import Settings
from ap_agent.routes.trial import confirmed_path

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "packaging" / "systemd"
AGENT, LIMITER = UNITS / "scionlab-bw-agent.service", UNITS / "scionlab-bw-limiter.service"
ROUTES = UNITS / "scionlab-bw-routes.service"

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")

# What stays of their exposure, and why.
BOTH = {
    "PrivateNetwork": "the service, or the NICs to limit, are on the host's network",
    "RootDirectoryOrRootImage": "Python and the kernel's modules are the host's",
    "DeviceAllow": "ProtectClock itself allows reading the clock device",
    "RestrictAddressFamilies_AF_UNIX": "it tells systemd that it is ready",
}
STAYS = {
    AGENT: BOTH
    | {
        "RestrictAddressFamilies_AF_INET_INET6": "it asks the service",
        "IPAddressDeny": "the service may have any address",
    },
    LIMITER: BOTH
    | {
        "AmbientCapabilities": "it is started without root and gets these two",
        "CapabilityBoundingSet_CAP_NET_ADMIN": "changing tc is the work",
        "CapabilityBoundingSet_CAP_BPF": "and so is loading the program",
        "SystemCallFilter_privileged": "bpf(2) counts as privileged",
        "RestrictAddressFamilies_AF_NETLINK": "tc is netlink",
        "PrivateUsers": "in a user namespace of its own its capabilities are none over the host's network",
    },
    ROUTES: BOTH
    | {
        "UserOrDynamicUser": "uplinks.toml, and who may write what is set at boot, are root's",
        "CapabilityBoundingSet_CAP_NET_ADMIN": "changing routes is the work",
        "RestrictAddressFamilies_AF_NETLINK": "routes are netlink",
        "PrivateUsers": "as of the limiter",
        "ProcSubset": "it reads the id of this boot",
    },
}


def found(unit: Path) -> dict[str, str]:
    return dict(re.findall(r"^(\w+)=(.*)$", unit.read_text(encoding="utf-8"), flags=re.MULTILINE))


def analyze(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *arguments],
        cwd=folder,
        env={"SYSTEMD_UNIT_PATH": f"{folder}:", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "SYSTEMD_COLORS": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


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


@needs_systemd
@pytest.mark.parametrize("unit", [AGENT.name, LIMITER.name, ROUTES.name, "scion-border-router@br-1.service"])
def test_unit_is_accepted_by_systemd_without_a_word(units: Path, unit: str) -> None:
    done = analyze(units, "verify", "--man=no", f"./{unit}")

    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs_systemd
@pytest.mark.parametrize(("unit", "tenths"), [(AGENT, 13), (LIMITER, 13), (ROUTES, 14)])
def test_exposure_is_the_lowest_that_works(units: Path, unit: Path, tenths: int) -> None:
    done = analyze(units, "security", "--offline=true", f"--threshold={tenths}", "--json=short", f"./{unit.name}")

    assert done.returncode == 0, done.stdout
    exposed = {row["json_field"] for row in json.loads(done.stdout) if row["exposure"]}
    assert exposed == STAYS[unit].keys()


@pytest.mark.parametrize("unit", [AGENT, LIMITER])
def test_the_credentials_that_are_loaded_are_those_that_enrolment_writes(unit: Path) -> None:
    text = unit.read_text()
    assert f"LoadCredential={SYSTEMD_NAME}:{DEFAULT_CREDENTIALS}\n" in text
    assert f"SetCredential={SYSTEMD_NAME}:{{}}\n" in text


def test_the_limiter_has_two_capabilities_and_no_network_and_the_agent_the_other_way_round() -> None:
    limiter, agent = found(LIMITER), found(AGENT)
    assert limiter["AmbientCapabilities"] == limiter["CapabilityBoundingSet"] == "CAP_NET_ADMIN CAP_BPF"
    assert limiter["RestrictAddressFamilies"] == "AF_NETLINK AF_UNIX"
    assert ("AmbientCapabilities" in agent, agent["CapabilityBoundingSet"]) == (False, "")
    assert agent["RestrictAddressFamilies"] == "AF_INET AF_INET6 AF_UNIX"
    for unit in (limiter, agent):
        assert (unit["NoNewPrivileges"], unit["RestrictSUIDSGID"]) == ("yes", "yes")


def test_two_users_share_a_group_and_neither_writes_into_the_others_folders() -> None:
    limiter, agent = found(LIMITER), found(AGENT)
    assert (limiter["User"], limiter["Group"]) == ("scionlab-bw-limiter", "scionlab-bw")
    assert (agent["User"], agent["Group"]) == ("scionlab-bw", "scionlab-bw")
    assert (agent["StateDirectoryMode"], limiter["StateDirectoryMode"]) == ("0750", "0700")
    defaults = Settings()
    for unit, state, run in (
        (agent, defaults.state_dir, defaults.run_dir),
        (limiter, defaults.limiter_state_dir, defaults.limiter_run_dir),
    ):
        assert state == Path("/var/lib") / unit["StateDirectory"]
        assert run == Path("/run") / unit["RuntimeDirectory"]
    assert limiter["BindPaths"] == str(defaults.maps_dir)
    assert f"d {defaults.maps_dir} 0700 scionlab-bw-limiter scionlab-bw -" in (UNITS / "tmpfiles.conf").read_text()


def test_limits_stand_before_the_router_and_wait_neither_for_the_network_nor_for_the_agent() -> None:
    text, unit = LIMITER.read_text(), found(LIMITER)
    assert "network-online" not in text
    assert "scionlab-bw-agent.service" not in unit["After"]
    assert (unit["Before"], unit["Type"]) == ("scionlab.target", "notify")
    drop_in = (UNITS / "scion-border-router@.service.d" / "50-scionlab-bw.conf").read_text()
    assert "After=scionlab-bw-limiter.service\n" in drop_in


def test_routes_at_boot_are_the_operators_choice_and_those_that_were_confirmed() -> None:
    unit = found(ROUTES)
    confirmed = confirmed_path(Settings().routes_dir)
    assert unit["ConditionPathExists"] == str(confirmed)
    assert confirmed.parent == Path("/var/lib") / unit["StateDirectory"]
    assert unit["ExecStart"].endswith(" -m ap_agent routes apply --boot")
    assert (unit["CapabilityBoundingSet"], "ExecStop" in unit) == ("CAP_NET_ADMIN", False)
    rules = (ROOT / "packaging/debian/rules").read_text(encoding="utf-8")
    assert "--name=scionlab-bw-routes --no-enable --no-start" in rules
