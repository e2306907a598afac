"""What the command lines do once: see what would change, enforce, take everything away; each told in the state file."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from ap_agent.common.settings import Settings
from ap_agent.document.handover import Configuration, write_document
from ap_agent.document.state import Total, read_state
from ap_agent.limiter import oneshot
from bandwidth_config import Limits
from tests.agent_bundles import HOST_ID, SERVICE_KEYS, entry
from tests.kernel.engine_bed import AP1, U1, U2, USER_PORT, EngineBed
from tests.limiter_documents import handed

pytestmark = pytest.mark.kernel
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
LINKS = {"7": entry(500, U1, USER_PORT), "8": entry(800, U2, USER_PORT), "9": entry(900, AP1)}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "agent").mkdir()
    write_document(tmp_path / "agent" / "document.json", handed(LINKS, total_kbit=1000))
    return Settings(
        url="https://service.example",
        host_id=HOST_ID,
        service_keys=SERVICE_KEYS,
        state_dir=tmp_path / "agent",
        limiter_state_dir=tmp_path / "limiter",
        limiter_run_dir=tmp_path / "run",
    )


def accepted(settings: Settings) -> Configuration:
    found = oneshot.newest(settings, NOW).accepted
    assert found is not None
    return found.configuration


def test_plan_shows_what_enforce_does_and_touches_neither_kernel_nor_disk(
    bed: EngineBed, settings: Settings, tmp_path: Path
) -> None:
    documents = oneshot.newest(settings, NOW)
    assert documents.accepted is not None
    assert documents.problems == ()
    configuration = documents.accepted.configuration
    before = bed.snapshot()
    planned = bed.ap.call(lambda: oneshot.plan(settings, bed.engine, configuration, NOW))

    assert bed.snapshot() == before
    assert [one.name for one in tmp_path.iterdir()] == ["agent"]
    changes = [(one.interface_id, one.now, one.then) for one in planned.plan.links]
    assert changes == [(7, None, Limits(500, 500)), (8, None, Limits(800, 800))]
    assert list(planned.failed) == [9]
    assert [one.code for one in planned.problems] == ["own_address"]
    _, done = bed.ap.call(lambda: oneshot.enforce(settings, bed.engine, configuration, NOW))
    assert set(done.plan.links) == set(planned.plan.links)
    assert bed.ap.call(lambda: oneshot.plan(settings, bed.engine, configuration, NOW)).plan.is_empty


def test_enforcing_once_limits_and_says_that_nobody_keeps_the_cap(bed: EngineBed, settings: Settings) -> None:
    configuration = accepted(settings)
    state, _ = bed.ap.call(lambda: oneshot.enforce(settings, bed.engine, configuration, NOW))

    assert read_state(settings.limiter_run_dir) == state
    assert {number: one.state for number, one in state.links.items()} == {7: "enforced", 8: "enforced", 9: "error"}
    assert (state.total, state.is_running, state.is_ok) == (Total(1000, None, None), False, False)
    assert bed.received_kbit(to_user=True) == pytest.approx(500, abs=220)


def test_look_says_what_the_kernel_has_and_counted_since_without_writing_anything(
    bed: EngineBed, settings: Settings
) -> None:
    configuration = accepted(settings)
    state, _ = bed.ap.call(lambda: oneshot.enforce(settings, bed.engine, configuration, NOW))
    bed.received_kbit(to_user=True)
    before, written = bed.snapshot(), read_state(settings.limiter_run_dir)
    looked = bed.ap.call(lambda: oneshot.observe(settings, bed.engine, configuration, datetime.now(UTC)))

    assert (bed.snapshot(), read_state(settings.limiter_run_dir)) == (before, written)
    assert {number: one.state for number, one in looked.links.items()} == {7: "enforced", 8: "enforced", 9: "error"}
    assert looked.links[7].to_user is not None
    assert state.links[7].to_user is not None
    assert looked.links[7].to_user.counters.passed_bytes > state.links[7].to_user.counters.passed_bytes + 40_000
    assert (looked.total, looked.is_running) == (Total(1000, None, None), False)


def test_look_names_the_link_of_which_somebody_took_a_part(bed: EngineBed, settings: Settings) -> None:
    configuration = accepted(settings)
    bed.ap.call(lambda: oneshot.enforce(settings, bed.engine, configuration, NOW))
    bed.ap.run("tc", "class", "change", "dev", "slbw0", "classid", "51b0:7", "htb", "rate", "9mbit")
    looked = bed.ap.call(lambda: oneshot.observe(settings, bed.engine, configuration, NOW))

    assert {number: one.state for number, one in looked.links.items()} == {7: "error", 8: "enforced", 9: "error"}


def test_reset_leaves_the_host_as_it_was_and_the_last_counters_and_the_reason_in_the_state_file(
    bed: EngineBed, settings: Settings
) -> None:
    before = bed.snapshot()
    configuration = accepted(settings)
    bed.ap.call(lambda: oneshot.enforce(settings, bed.engine, configuration, NOW))
    bed.received_kbit(to_user=True)
    now = datetime.now(UTC)
    state, _ = bed.ap.call(lambda: oneshot.reset(settings, bed.engine, "The package is removed.", now))

    assert bed.snapshot() == before
    assert read_state(settings.limiter_run_dir) == state
    assert (state.links, state.order, state.reset_reason) == ({}, None, "The package is removed.")
    (ended,) = [one for one in state.closed if (one.interface_id, one.direction) == (7, "to_user")]
    assert ended.counters.passed_bytes > 40_000
    assert bed.received_kbit(to_user=True) == pytest.approx(4000, rel=0.1)
