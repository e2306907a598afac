"""The agent's metrics, as Prometheus' own parser reads them: over HTTP, and in a file."""

from __future__ import annotations

import socket
import urllib.request
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from ap_agent.agent.fetch import NotModified
from ap_agent.agent.metrics import FILE_INTERVAL_S, Exporter
from ap_agent.agent.settings import load_settings
from ap_agent.common.errors import SettingsError
from ap_agent.common.log import get_logger
from ap_agent.common.settings import Settings
from ap_agent.document.signed_text import Version
from contract.link_info import check_link_info
from lab.nginx import free_port
from tests.agent_bundles import entry
from tests.agent_clock import Clock, FakeClient, World, begun, settings_in
from tests.agent_limiter import direction, limiter_state, link_state
from tests.monitoring_files import named_metrics

LINKS = check_link_info({"1": entry(500), "2": entry(0, "192.0.2.12")})
BUSY = direction(500, 2**53 + 1, packets=900, refused=5, dropped=2, backlog=1300)
BLOCKED = direction(0, 0, refused=12)
STATE = limiter_state(
    {
        1: link_state(1, to_user=BUSY, from_user=None),
        2: link_state(2, 0, state="observed", to_user=None, from_user=BLOCKED),
    },
    order=Version(1, 18, 7),
)


def text_of_state() -> str:
    """Of an agent whose limiter said STATE."""
    agent = SimpleNamespace(
        limiter=SimpleNamespace(state=STATE, is_silent=False),
        configuration=SimpleNamespace(bundle=SimpleNamespace(links=LINKS)),
        problems=(),
    )
    usage = SimpleNamespace(
        newest=SimpleNamespace(at_ms=1_795_300_020_500),
        **dict.fromkeys(("samples", "missed", "sample_seconds", "spool_bytes", "waiting", "refused"), 0),
        sent=3,
        failed=1,
    )
    polls = SimpleNamespace(last_contact_at=None, backoff=SimpleNamespace(failures=0))
    exporter = Exporter(agent, usage, polls, get_logger())  # type: ignore[arg-type]  # what it reads of them
    return generate_latest(exporter.registry).decode()


Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: str) -> Series:
    """Raises what the parser raises; each series once."""
    found: Series = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def per_link(number: int, direction: str) -> tuple[tuple[str, str], ...]:
    return (("direction", direction), ("interface_id", str(number)), ("isd_as", "17-ffaa:1:b6"))


def test_each_link_has_its_limit_and_counters_in_each_direction() -> None:
    found = parsed(text_of_state())

    busy, blocked = per_link(1, "to_user"), per_link(2, "from_user")
    assert found["scionlab_bw_link_limit_bits_per_second", busy] == 500_000
    assert found["scionlab_bw_link_bytes_total", busy] == pytest.approx(2**53, rel=1e-15)
    assert found["scionlab_bw_link_packets_total", busy] == 900
    assert found["scionlab_bw_link_drops_total", busy] == 7
    assert found["scionlab_bw_link_refused_total", busy] == 5
    assert found["scionlab_bw_link_backlog_bytes", busy] == 1300
    assert found["scionlab_bw_link_limit_bits_per_second", blocked] == 0
    assert found["scionlab_bw_link_drops_total", blocked] == 12


def test_versions_and_uploads_are_numbers() -> None:
    found = parsed(text_of_state())

    assert found["scionlab_bw_agent_config_version", ()] == 18
    assert found["scionlab_bw_agent_limiter_up", ()] == 1
    assert found["scionlab_bw_agent_links", (("state", "observed"),)] == 1
    assert found["scionlab_bw_agent_limits_version", ()] == 7
    assert found["scionlab_bw_agent_usage_last_sample_timestamp_seconds", ()] == 1_795_300_020.5
    assert found["scionlab_bw_agent_usage_uploads_total", (("result", "failed"),)] == 1


def test_dashboard_and_alerts_name_only_what_is_exported() -> None:
    families = text_string_to_metric_families(text_of_state())
    exported = {family.name + ("_total" if family.type == "counter" else "") for family in families}
    exported.add("scionlab_bw_agent_service_last_contact_timestamp_seconds")  # unknown in STATE
    wanted = {name for name in named_metrics() if name.startswith("scionlab_bw_")}
    assert len(wanted) > 10
    assert wanted - exported == set()


@pytest.mark.parametrize(("is_ok", "count"), [(True, 1), (False, 0)])
def test_time_until_limits_are_read_back_is_that_of_limits_which_were(is_ok: bool, count: int) -> None:
    bundle = SimpleNamespace(links=LINKS, limits_digest=STATE.limits_digest)
    configuration = SimpleNamespace(bundle=bundle, arrived_at=100.0)
    agent = SimpleNamespace(limiter=SimpleNamespace(), configuration=configuration)
    exporter = Exporter(agent, None, None, get_logger())  # type: ignore[arg-type]  # what it reads of them
    exporter.note_state(replace(STATE, is_ok=is_ok), 100.5)
    exporter.note_state(STATE, 700.0)

    found = exporter.registry._names_to_collectors["scionlab_bw_agent_apply_lag_seconds"]
    assert {one.name: one.value for one in next(iter(found.collect())).samples if not one.labels} == {
        "scionlab_bw_agent_apply_lag_seconds_count": count,
        "scionlab_bw_agent_apply_lag_seconds_sum": 0.5 * count,
    }


# --- while the agent runs -------------------------------------------------------------------------------------------


def running(folder: Path, **changes: object) -> World:
    settings = Settings(**{**vars(settings_in(folder)), "usage_interval_s": 0, **changes})
    return begun(settings, FakeClient([NotModified()], Clock()))


def test_file_is_written_at_once_and_again_and_again(tmp_path: Path) -> None:
    file = tmp_path / "metrics.prom"
    world = running(tmp_path, metrics_file=file)
    world.run_for(1)
    assert parsed(file.read_text())["scionlab_bw_agent_limiter_up", ()] == 0
    world.run_for(FILE_INTERVAL_S)
    assert parsed(file.read_text())["scionlab_bw_agent_links", (("state", "enforced"),)] == 1
    assert file.stat().st_mode & 0o777 == 0o644
    file.unlink()
    world.run_for(FILE_INTERVAL_S + 1)

    assert file.exists()
    assert [one.name for one in tmp_path.glob("metrics*")] == ["metrics.prom"]


# --- over HTTP --------------------------------------------------------------------------------------------------------


def scraped(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        text: str = answer.read().decode()
        return text


def test_reload_moves_the_server_and_a_taken_port_is_a_problem(tmp_path: Path) -> None:
    first, second = free_port(), free_port()
    world = running(tmp_path, metrics_listen=("127.0.0.1", first))
    world.run_for(1)
    assert "scionlab_bw_agent_build_info" in scraped(f"127.0.0.1:{first}")

    with socket.create_server(("127.0.0.1", second)):
        move(world, second)
        assert world.codes == ["metrics_unavailable"]
    move(world, second)
    assert world.codes == []
    assert "scionlab_bw_agent_build_info" in scraped(f"127.0.0.1:{second}")
    world.loop.metrics.close()


def move(world: World, port: int) -> None:
    """As SIGHUP does it."""
    world.agent.settings = Settings(**{**vars(world.agent.settings), "metrics_listen": ("127.0.0.1", port)})
    world.loop.metrics.plan_anew(world.clock.now)
    world.run_for(1)


# --- the configuration ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["0.0.0.0:9106", "[::]:9106", "192.0.2.1:9106"])
def test_address_that_others_can_reach_is_refused_unless_it_is_meant(tmp_path: Path, address: str) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(f'metrics_listen = "{address}"\n')
    with pytest.raises(SettingsError, match="allow_remote_metrics") as refused:
        load_settings(path, {})
    assert refused.value.key == "metrics_listen"
    path.write_text(f'metrics_listen = "{address}"\nallow_remote_metrics = true\n')
    assert load_settings(path, {}).metrics_listen is not None
