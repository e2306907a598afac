"""A session of rates: from the limiter's file to the service, for as long as the service says that somebody looks."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ap_agent.agent import live
from ap_agent.agent.live import live_document, session
from ap_agent.common.errors import AgentError
from ap_agent.common.settings import Settings
from ap_agent.document.live import LOOKS_FILE, read_request, write_live
from ap_agent.document.series import SeriesSample, SideSample
from tests.cases import table

SIDE = SideSample(2**64 - 1, 500, 1000, 10, 0, 0)


def sample(clock_ms: int, *, passed: int = 0, segment: int = 2**63, in_force: int = 1) -> SeriesSample:
    to_user = SideSample(segment, 500, 1000 + passed, 10, 200, 2)
    return SeriesSample(0, clock_ms, in_force, to_user, SIDE)


def rates(to_user: object, *, over_ms: int = 1000, in_force: bool = True) -> dict[str, Any]:
    sides = {"to_user": to_user, "from_user": NOTHING}
    return {"over_ms": over_ms, "in_force": in_force, **{name: one for name, one in sides.items() if one is not None}}


NOTHING = {"rate_kbit": 500, "passed_bytes": 0, "dropped_bytes": 0}
PASSED = {"rate_kbit": 500, "passed_bytes": 51_500, "dropped_bytes": 0}
TWO = {7: sample(1000), 8: sample(1000)}


@table(
    "now, links",
    [
        ({7: sample(2001, passed=51_500)}, {"7": rates(PASSED, over_ms=1001)}),
        ({7: sample(2000, segment=78)}, {"7": rates(None)}),
        ({8: sample(2000, in_force=0)}, {"8": rates(NOTHING, in_force=False)}),
        ({9: sample(2000)}, {}),
        ({7: sample(1000)}, {}),
    ],
    ids=["passed", "counters that began anew", "observed", "was not there before", "the same sample"],
)
def test_rates_are_between_two_samples_of_the_same_counters(
    now: Mapping[int, SeriesSample], links: Mapping[str, Any]
) -> None:
    newest = max(one.clock_ms for one in now.values())
    assert live_document(TWO, now, now_ms=newest + 12) == {"schema": 1, "age_ms": 12, "links": links}


@dataclass
class Service:
    """Answers with these links, one after the other."""

    folder: Path
    answers: list[Sequence[int]]
    got: list[Mapping[str, Any]] = field(default_factory=list)
    asked: list[frozenset[int]] = field(default_factory=list)
    is_closed: bool = False

    def send_live(self, rates: Mapping[str, Any]) -> tuple[int, ...]:
        self.got.append(rates)
        self.asked.append(read_request(self.folder / "state"))
        return tuple(self.answers.pop(0))

    def end_live(self) -> None:
        self.is_closed = True


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    for name in ("state", "run"):
        (tmp_path / name).mkdir()
    return Settings(state_dir=tmp_path / "state", limiter_run_dir=tmp_path / "run")


def count_when_asked(folder: Path, is_over: threading.Event) -> None:
    """As the limiter: the only writer, whose clock rises; so often that the file changes while it is read."""
    while not (folder / "state" / LOOKS_FILE).exists() and not is_over.wait(0.005):
        pass
    for clock_ms in count(1000, 1000):
        write_live(folder / "run", {7: sample(clock_ms)})
        if is_over.wait(0.001):
            return


def test_session_goes_on_until_nobody_looks_and_asks_for_what_is_looked_at(settings: Settings, tmp_path: Path) -> None:
    write_live(tmp_path / "run", {7: sample(1)})  # of a session before
    service, is_over = Service(tmp_path, [*[(7,)] * 20, *[(7, 8)] * 20, ()]), threading.Event()
    limiter = threading.Thread(target=count_when_asked, args=(tmp_path, is_over))
    limiter.start()
    session(service, settings, (7,))
    is_over.set()
    limiter.join()

    assert service.is_closed
    assert service.answers == []
    assert (service.asked[0], service.asked[-1]) == ({7}, {7, 8})
    assert all("7" in one["links"] for one in service.got)


def test_limiter_that_counts_nothing_ends_the_session(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "SILENT_S", 0.05)
    service = Service(settings.state_dir.parent, [])
    with pytest.raises(AgentError, match="does not report live rates"):
        session(service, settings, (7,))
    assert service.is_closed
