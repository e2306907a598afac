"""docker-compose.yml runs the same kind of servers as the tests do."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.servers import POSTGRES_OPTIONS, REDIS_OPTIONS
from scionlab import gunicorn
from scionlab.delivery.polls import worker
from scionlab.delivery.polls.application import OTHER_FILES
from scionlab.settings import base

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    return loaded


def test_production_shape_has_every_part_with_a_health_check(services: dict[str, Any]) -> None:
    assert {"postgres", "redis", "cache", "nginx", "web", "worker", "beat"} <= services.keys()
    without = [name for name, service in services.items() if "healthcheck" not in service]
    assert without == ["migrate"]  # it ends by itself


def test_postgres_runs_with_the_options_of_the_tests(services: dict[str, Any]) -> None:
    command = services["postgres"]["command"].replace('"', "")
    assert [option for option in POSTGRES_OPTIONS if f"-c {option}" not in command] == []


@pytest.mark.parametrize(("part", "bound"), [("redis", ["512mb", "noeviction"]), ("cache", ["256mb", "allkeys-lru"])])
def test_redis_runs_with_the_options_of_the_tests_and_only_the_cache_evicts(
    services: dict[str, Any], part: str, bound: list[str]
) -> None:
    command = services[part]["command"].replace('""', "")
    options = [option for option in REDIS_OPTIONS if option]
    assert command.split() == ["redis-server", *options, "--maxmemory", bound[0], "--maxmemory-policy", bound[1]]
    assert services["web"]["environment"]["REDIS_URL"] == "redis://redis:6379/0"
    assert services["web"]["environment"]["CACHE_URL"] == "redis://cache:6379/0"


def test_connections_are_counted_for_the_processes_that_run(services: dict[str, Any]) -> None:
    """85 in docs/operations.md: 2 * (3 web tiers * 2 processes * 6 + 4 processes of workers) + 5."""
    said, worker = services["web"]["environment"], services["worker"]
    children = int(worker["command"].rpartition("--concurrency ")[2])
    assert said["TASK_PROCESSES"] == f"${{TASK_PROCESSES:-{worker['deploy']['replicas'] * children}}}"
    assert said["WEB_REPLICAS"] == f"${{WEB_REPLICAS:-{services['web']['deploy']['replicas']}}}"
    assert "or 85 with three web tiers" in (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    assert (children, said["DATABASE_POOL"], base.WEB_WORKERS) == (2, "${DATABASE_POOL:-6}", 2)


@pytest.mark.parametrize("part", ["web", "worker", "beat", "migrate"])
def test_our_containers_write_nowhere_and_may_nothing(services: dict[str, Any], part: str) -> None:
    service = services[part]
    assert (service["read_only"], service["cap_drop"], service["tmpfs"]) == (True, ["ALL"], ["/tmp"])  # noqa: S108  of a container
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "cap_add" not in service
    static = ["static:/srv/nginx/static"] if part == "migrate" else []
    assert service["volumes"] == ["var:/var/lib/scionlab", *static]


@pytest.mark.parametrize("part", ["web", "worker", "beat", "migrate", "postgres"])
def test_secrets_come_as_files_and_never_as_values(part: str) -> None:
    loaded = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    service = loaded["services"][part]
    files = {name: value for name, value in service["environment"].items() if name.endswith("_FILE")}
    assert {f"/run/secrets/{name}" for name in service["secrets"]} == set(files.values())
    assert {loaded["secrets"][name]["file"] for name in service["secrets"]} <= {
        f"./secrets/{name.removesuffix('_FILE').lower()}" for name in files
    }
    secret = re.compile("SECRET|PASSWORD|TOKEN")
    assert [n for n in service["environment"] if secret.search(n) and n not in {*files, "SECRET_GRACE_HOURS"}] == [
        name for name in service["environment"] if name == "API_THROTTLE_TOKEN"
    ]


@pytest.mark.parametrize("part", ["web", "worker", "beat", "migrate"])
def test_every_setting_of_the_documentation_reaches_the_containers(services: dict[str, Any], part: str) -> None:
    """What stands in .env alone is for compose itself; a container gets what is listed."""
    rows = [line for line in (ROOT / "docs/operations.md").read_text().splitlines() if line.startswith("| `")]
    documented = {name for row in rows for name in re.findall(r"`([A-Z_]+)`", row.split("|")[1])}
    assert len(documented) > 15
    reach = {name.removesuffix("_FILE") for name in services[part]["environment"]}
    assert documented - reach == set()


def test_the_web_tier_may_hold_the_polls_that_it_is_to_hold_and_has_the_time_to_end_them(
    services: dict[str, Any],
) -> None:
    web = services["web"]
    assert "--config python:scionlab.gunicorn" in web["command"]
    assert web["ulimits"]["nofile"] > base.POLL_PLACES + OTHER_FILES
    assert int(web["stop_grace_period"].removesuffix("s")) > gunicorn.graceful_timeout > worker.GRACE_S


def test_only_nginx_is_published_so_the_web_tier_has_as_many_replicas_as_one_likes(services: dict[str, Any]) -> None:
    assert {name: service["ports"] for name, service in services.items() if "ports" in service} == {
        "nginx": ["${HTTP_PORT:-80}:80", "${HTTPS_PORT:-443}:443"]
    }
    assert "container_name" not in services["web"]


@pytest.mark.parametrize("part", ["postgres", "redis", "cache"])
def test_images_of_others_may_become_their_user_and_nothing_else(services: dict[str, Any], part: str) -> None:
    service = services[part]
    assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
    assert set(service["cap_add"]) == {"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"}
    assert "ports" not in service


def test_the_image_does_not_run_as_root() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    users = [line for line in lines if line.startswith("USER ")]
    assert users == ["USER scionlab"]
    assert [line for line in lines[lines.index(users[0]) :] if line.startswith(("RUN", "COPY", "ADD"))] == []


def test_nginx_writes_nowhere_and_may_bind_its_ports_and_become_nobody(services: dict[str, Any]) -> None:
    service = services["nginx"]
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert set(service["cap_add"]) == {"CHOWN", "NET_BIND_SERVICE", "SETGID", "SETUID"}
    assert all(volume.endswith(":ro") for volume in service["volumes"])
