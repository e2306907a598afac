"""How far a long change is: heard of when it takes long, never when it is quick."""

from __future__ import annotations

import pytest

from ap_agent.common.log import configure
from ap_agent.common.progress import Paced, for_person, for_service
from tests.agent_clock import Clock


def said_at(clock: Clock, steps: list[tuple[float, int]], total: int) -> list[int]:
    said: list[int] = []
    paced = Paced(lambda done, _total: said.append(done), lambda: clock.now)
    for seconds, done in steps:
        clock.now += seconds
        paced(done, total)
    return said


def test_what_is_quick_is_not_spoken_of() -> None:
    assert said_at(Clock(), [(0.1, 2000), (0.1, 4000), (0.1, 5000)], 5000) == []


def test_what_takes_long_is_spoken_of_every_two_seconds() -> None:
    steps = [(0.5, done) for done in range(1000, 13_000, 1000)]
    assert said_at(Clock(), steps, 12_000) == [5000, 9000]


def test_a_second_quick_change_is_as_quiet_as_the_first() -> None:
    clock = Clock()
    assert said_at(clock, [(0.1, 2000), (60.0, 2000), (0.1, 5000)], 5000) == []
    assert said_at(clock, [(0.1, 2000), (0.1, 5000), (60.0, 2000), (0.1, 5000)], 5000) == []


def test_a_person_reads_a_share(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ap_agent.common.progress.SILENCE_S", 0.0)
    progress = for_person()
    progress(2000, 78_576)
    progress(39_288, 78_576)
    assert capsys.readouterr().err == "39,288 of 78,576 steps in the kernel are done (50%)\n"


def test_the_log_of_a_running_agent_has_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ap_agent.common.progress.SILENCE_S", 0.0)
    configure("info", under_systemd=True)
    progress = for_service({})
    progress(1, 3)
    progress(2, 3)
    assert capsys.readouterr().out == "<6>kernel.progress done=2 of=3\n"
