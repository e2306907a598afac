"""Results of tests on their way to the service: what is sent when, what is not sent twice, what a refusal ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ap_agent.agent.fetch import NotModified, UploadRefusedError
from ap_agent.agent.kept_reports import KeptReports, made_report
from ap_agent.common.errors import FetchError
from ap_agent.common.settings import Settings
from ap_agent.document.series import Series, SeriesSample, SideSample, write_series
from tests.agent_clock import Clock, FakeClient, World, store_v7, world_of
from tests.agent_limiter import T0

TEST = "0f" * 16
REPORT = made_report("completed", "")
ENDS_AT_MS = round(T0.timestamp() * 1000) + 5000


def sample(number: int) -> SeriesSample:
    return SeriesSample(
        1000 * number, 500 + 1000 * number, 1, SideSample(7, 500, 10 * number, number, 0, 0), SideSample(8, *[0] * 5)
    )


def write(world: World, samples: int, *, is_over: bool = False) -> None:
    series = Series(TEST, 1, 60_000, is_over, tuple(map(sample, range(samples))))
    write_series(world.settings.limiter_run_dir, [series])


@pytest.fixture
def settings(settings: Settings) -> Settings:
    store_v7(settings)
    return settings


def started(settings: Settings, *refusals: Exception) -> tuple[World, FakeClient]:
    clock = Clock()
    client = FakeClient([NotModified()], clock, result_refusals=list(refusals))
    world = world_of(settings, client, clock)
    world.loop.start()
    world.run_for(1)
    return world, client


def reported(client: FakeClient) -> list[dict[str, Any] | None]:
    """The report of each upload, if it has one."""
    return [result.get("report") for _, result in client.results]


def sent(client: FakeClient) -> list[tuple[int, bool]]:
    """Samples of each upload, and whether it was the last one."""
    return [(len(result["times_ms"]), result["is_final"]) for _, result in client.results]


def test_new_samples_go_every_two_seconds_and_the_end_at_once_and_once(settings: Settings) -> None:
    world, client = started(settings)
    write(world, 3)
    world.run_for(1)
    write(world, 5)
    world.run_for(3)
    write(world, 6, is_over=True)
    world.run_for(30)
    assert sent(client) == [(3, False), (2, False), (1, True)]
    moments = [moment for moment, _ in client.results]
    assert moments[1] - moments[0] >= 2
    first = client.results[1][1]
    assert (first["test"], first["times_ms"], first["clock_ms"]) == (TEST, [3000, 4000], [3500, 4500])
    assert first["to_user"] == {
        "segment": ["0000000000000007"] * 2,
        "rate_kbit": [500, 500],
        "passed_bytes": [30, 40],
        "passed_packets": [3, 4],
        "dropped_bytes": [0, 0],
        "dropped_packets": [0, 0],
        "lost_packets": [0, 0],
    }


def test_result_that_the_service_refuses_is_left_alone(settings: Settings) -> None:
    world, client = started(settings, UploadRefusedError("The service rejected the request (400): times_ms"))
    write(world, 4, is_over=True)
    world.run_for(300)
    assert sent(client) == [(4, True)]
    assert world.codes == []


# --- with the report of this end of a test that sends ---------------------------------------------------------------


def test_end_of_a_series_waits_for_the_report_and_both_go_together(settings: Settings) -> None:
    world, client = started(settings)
    world.agent.kept.begin(TEST, ENDS_AT_MS)
    write(world, 6, is_over=True)
    world.run_for(10)
    assert sent(client) == [(6, False)]
    world.agent.kept.end(TEST, REPORT, T0)
    world.run_for(30)
    assert sent(client) == [(6, False), (0, True)]
    assert reported(client) == [None, REPORT]
    assert not list((settings.state_dir / "tests").iterdir()), "the service has it"


@pytest.mark.parametrize(("outcome", "samples"), [("completed", 3), ("cut", 5)])
def test_report_that_comes_early_ends_the_result_when_no_packet_of_the_test_can_wait(
    settings: Settings, outcome: str, samples: int
) -> None:
    """At 1.5 s: with the sample of 2 s where both ends said goodbye, else with the first one after 3.5 s."""
    world, client = started(settings)
    world.agent.kept.begin(TEST, ENDS_AT_MS)
    world.agent.kept.end(TEST, made_report(outcome, ""), datetime.fromtimestamp(1.5, UTC))
    for count in range(2, 6):
        write(world, count)  # the last one at count - 1 s
        world.run_for(4)
        is_final = [final for _, final in sent(client)]
        assert is_final[-1] == (count >= samples)
    assert sum(count for count, _ in sent(client)) == samples
    write(world, 9, is_over=True)
    world.run_for(30)
    assert sum(final for _, final in sent(client)) == 1


def test_report_outlives_the_agent_and_a_service_that_is_away(settings: Settings) -> None:
    world, client = started(settings)
    world.agent.kept.begin(TEST, ENDS_AT_MS)
    client.result_refusals = [FetchError("away")] * 3
    write(world, 6, is_over=True)
    again = world_of(settings, client, world.clock, limiter=world.limiter)
    again.loop.start()
    again.run_for(600)
    assert sent(client) == [(6, True)] * 4
    assert [one and one["why"] for one in reported(client)] == ["The agent ended before the test did."] * 4
    third = world_of(settings, client, world.clock, limiter=world.limiter)
    third.loop.start()
    third.run_for(30)
    assert reported(client)[4:] == [None], "the series is sent again, the report is not"


def test_what_was_taken_is_remembered_until_the_test_is_over(settings: Settings) -> None:
    """Or the next agent would run it again."""
    settings.state_dir.mkdir(mode=0o750, exist_ok=True)
    kept = KeptReports(settings.state_dir)
    kept.begin(TEST, ENDS_AT_MS)
    kept.end(TEST, REPORT, T0)
    kept.took(TEST)
    kept.forget(T0)
    again = KeptReports(settings.state_dir)
    again.load()
    assert again.of(TEST) is not None
    assert again.without(frozenset()) == []
    again.forget(T0 + timedelta(seconds=6))
    assert again.of(TEST) is None


def test_reports_that_nobody_takes_are_kept_for_a_day_and_64_at_most(settings: Settings) -> None:
    settings.state_dir.mkdir(mode=0o750, exist_ok=True)
    kept = KeptReports(settings.state_dir)
    for number in range(70):
        kept.begin(f"{number:032x}", ENDS_AT_MS + number)
        kept.end(f"{number:032x}", REPORT, T0)
    kept.forget(T0)
    assert [int(one.test, 16) for one in kept.without(frozenset())] == list(range(6, 70))
    kept.forget(T0 + timedelta(days=1, seconds=6))
    assert kept.without(frozenset()) == []
    assert not list((settings.state_dir / "tests").iterdir())
