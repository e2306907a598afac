"""Results of tests on their way to the service: what is sent when, what is not sent twice, what a refusal ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from ap_agent.agent.fetch import NotModified, UploadRefusedError, UploadUnknownError
from ap_agent.common.errors import FetchError
from ap_agent.common.settings import Settings
from ap_agent.document.series import Series, SeriesSample, SideSample, write_series
from tests.agent_clock import Clock, FakeClient, World, settings_in, store_v7, world_of

TEST = "0f" * 16


def sample(number: int) -> SeriesSample:
    return SeriesSample(
        1000 * number, 500 + 1000 * number, 1, SideSample(7, 500, 10 * number, number, 0, 0), SideSample(8, *[0] * 5)
    )


def write(world: World, samples: int, *, is_over: bool = False, test_id: str = TEST) -> None:
    series = Series(test_id, 1, 60_000, is_over, tuple(map(sample, range(samples))))
    write_series(world.settings.limiter_run_dir, [series])


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    found = settings_in(tmp_path)
    store_v7(found)
    return found


def started(settings: Settings, *refusals: Exception) -> tuple[World, FakeClient]:
    clock = Clock()
    client = FakeClient([NotModified()], clock, result_refusals=list(refusals))
    world = world_of(settings, client, clock)
    world.loop.start()
    world.run_for(1)
    return world, client


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
    }


def test_agent_that_is_started_again_sends_all_again(settings: Settings) -> None:
    world, client = started(settings)
    write(world, 6, is_over=True)
    world.run_for(5)
    again = world_of(settings, client, world.clock, limiter=world.limiter)
    again.loop.start()
    again.run_for(5)
    assert sent(client) == [(6, True), (6, True)]


def test_service_that_is_away_gets_the_whole_later_and_one_that_refuses_is_left_alone(settings: Settings) -> None:
    world, client = started(settings, FetchError("away"), FetchError("away"))
    write(world, 6, is_over=True)
    world.run_for(300)
    assert sent(client) == [(6, True)] * 3
    client.result_refusals.append(UploadRefusedError("The service rejected the request (400): times_ms"))
    write(world, 4, is_over=True, test_id="1f" * 16)
    world.run_for(300)
    assert sent(client)[3:] == [(4, True)]
    assert world.codes == []


def test_older_service_is_asked_again_in_an_hour(settings: Settings) -> None:
    world, client = started(settings, UploadUnknownError("older"))
    write(world, 6, is_over=True)
    world.run_for(3500)
    assert len(sent(client)) == 1
    world.run_for(200)
    assert len(sent(client)) == 2


def test_file_that_cannot_be_used_is_a_problem_until_it_can(settings: Settings) -> None:
    world, _ = started(settings)
    path = world.settings.limiter_run_dir / "tests.json"
    path.write_text("{}")
    world.run_for(1)
    assert world.codes == ["state_unusable"]
    write(world, 1)
    world.run_for(1)
    assert world.codes == []
