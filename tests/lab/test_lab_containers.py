"""packaging/lab starts both programs as their units do. Docker is not at hand where these run: they compare the files;
`packaging/check` runs `attachment-point` with the installed package."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from ap_agent.agent.settings import load_settings

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"
SCRIPT = (PACKAGING / "lab/attachment-point").read_text(encoding="utf-8")
UP = (PACKAGING / "lab/up").read_text(encoding="utf-8")
AP = yaml.safe_load((PACKAGING / "lab/compose.lab.yml").read_text(encoding="utf-8"))["services"]["ap"]
PROGRAMS = ("scionlab-bw-limiter", "scionlab-bw-agent")
OF_THE_SCRIPT = {"SETUID", "SETGID", "SETPCAP", "KILL", "DAC_OVERRIDE", "CHOWN", "FOWNER"}


def unit(program: str) -> dict[str, str]:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # systemd's keys have capitals
    parser.read(PACKAGING / f"systemd/{program}.service", encoding="utf-8")
    return dict(parser["Service"])


def capabilities(program: str) -> set[str]:
    return {one.removeprefix("CAP_") for one in unit(program)["CapabilityBoundingSet"].split()}


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_container_starts_each_program_as_its_user_with_the_rights_of_its_unit(program: str) -> None:
    started = re.search(rf"^keep_running (\S+) (\S+) {program} run &$", SCRIPT, flags=re.MULTILINE)
    assert started is not None
    user, rights = started.groups()
    assert user == unit(program)["User"]
    assert set(re.findall(r"\+(\w+)", rights)) == {one.lower() for one in capabilities(program)}
    assert f"--regid {unit(program)['Group']} --clear-groups --no-new-privs" in SCRIPT


def test_the_container_may_what_both_units_and_the_script_need_and_no_more() -> None:
    assert AP["cap_drop"] == ["ALL"]
    assert set(AP["cap_add"]) == set.union(*map(capabilities, PROGRAMS)) | OF_THE_SCRIPT
    assert AP["command"] == ["/usr/local/sbin/attachment-point"]


def test_maps_lie_on_the_file_system_that_the_host_mounts_for_the_container() -> None:
    settings = load_settings(PACKAGING / "lab/agent.toml", {})
    place = re.search(r"^MAPS=(\S+)", SCRIPT, flags=re.MULTILINE)
    assert place is not None
    assert settings.maps_dir == Path(place.group(1), "scionlab-bw")
    assert f"${{LAB_FOLDER}}/bpf:{place.group(1)}" in AP["volumes"]
    assert re.search(r'mount -t bpf -o \S+ bpf "\$work/bpf"', UP) is not None
    assert settings.ca_file == Path("/etc/scionlab-bw/ca.pem")


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose: not installed")
def test_docker_compose_reads_the_lab_over_the_file_of_production() -> None:
    words = ["docker-compose", "-f", "docker-compose.yml", "-f", "packaging/lab/compose.lab.yml", "config", "-q"]
    known = {
        "SECRET_KEY": "x",
        "SITE_URL": "https://lab.example.org",
        "ALLOWED_HOSTS": "x",
        "LAB_FOLDER": "/lab",
    }
    subprocess.run(words, cwd=PACKAGING.parent, env=os.environ | known, check=True)
