"""The systemd units of the service without containers: well-formed, and as docker-compose.yml runs the same parts."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.agent.test_units import ROOT, analyze, found, needs_systemd

UNITS = ROOT / "packaging" / "service"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
OF_PART = {
    "web": "scionlab-service-web@.service",
    "worker": "scionlab-service-worker@.service",
    "beat": "scionlab-service-beat.service",
}
INSTANCES = ["scionlab-service-web@8001", "scionlab-service-worker@1", "scionlab-service-beat"]
each_part = pytest.mark.parametrize("part", OF_PART)


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """As on a host that has the service in /opt/scionlab."""
    folder = tmp_path / "units"
    shutil.copytree(UNITS, folder)
    for unit in folder.glob("*.service"):
        unit.write_text(re.sub(r"/opt/scionlab/.venv/bin/\w+", shutil.which("true") or "", unit.read_text()))
    return folder


@needs_systemd
@pytest.mark.parametrize("unit", INSTANCES)
def test_unit_is_accepted_by_systemd_without_a_word_and_takes_away_what_it_can(units: Path, unit: str) -> None:
    done = analyze(units, "verify", "--man=no", f"./{unit}.service")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    done = analyze(units, "security", "--offline=true", "--threshold=20", "--no-pager", f"./{unit}.service")
    assert done.returncode == 0, done.stdout


@each_part
def test_a_unit_starts_what_the_compose_file_starts(part: str) -> None:
    program, *arguments = shlex.split(found(UNITS / OF_PART[part])["ExecStart"])
    assert program == f"/opt/scionlab/.venv/bin/{Path(program).name}"
    wanted = COMPOSE[part]["command"].replace("0.0.0.0:8000", "127.0.0.1:%i")
    assert shlex.join([Path(program).name, *arguments]).startswith(wanted)


def test_the_example_has_what_production_requires() -> None:
    text = (UNITS / "service.env.example").read_text(encoding="utf-8")
    names = {name.removesuffix("_FILE") for name in re.findall(r"^([A-Z_]+)=", text, flags=re.MULTILINE)}
    required = {"SECRET_KEY", "SIGNING_SECRET", "DATABASE_URL", "REDIS_URL", "ALLOWED_HOSTS", "SITE_URL"}
    assert required | {"DJANGO_SETTINGS_MODULE", "TRUSTED_PROXIES", "CACHE_URL"} <= names
    assert names <= {"POSTGRES_PASSWORD", "STATIC_ROOT", *COMPOSE["web"]["environment"], *required, "METRICS_TOKEN"}


def test_the_example_counts_the_connections_of_what_the_guide_enables() -> None:
    text = (UNITS / "service.env.example").read_text(encoding="utf-8")
    guide = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    assert "scionlab-service-web@800{1,2,3} scionlab-service-worker@{1,2}" in guide
    assert {"WEB_REPLICAS=3", "TASK_PROCESSES=4", "DATABASE_POOL=6"} <= set(text.splitlines())
