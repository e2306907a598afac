"""What the first engine published stands beside what is measured, and is judged by nobody."""

from __future__ import annotations

import pytest

from bench.core import Outcome
from bench.first_engine import FirstEngineMissingError
from evaluation import published
from evaluation.limiters import FIRST, FIRST_WHOLE, OURS
from evaluation.published import of_first_engine
from evaluation.suites import rates
from evaluation.together import merged

CSV = """\
what,experiment,limiter,direction,change,number,kbit,number,value,unit
rate,x,ours,to user,500 → 1000,1,500,1,499.5,kbit/s
rate,x,ours,to user,500 → 1000,1,500,2,500.5,kbit/s
rate,x,"ours, whole datagrams",to user,500 → 1000,1,,1,7,kbit/s
rate,x,the thesis' sequence,to user,500 → 1000,1,500,1,1,kbit/s
"""


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Outcome:
    monkeypatch.setattr(published, "published", {"x": CSV}.get)
    return of_first_engine("x")


def test_series_of_the_first_engine_keep_their_labels_under_its_name(found: Outcome) -> None:
    labels = {"what": "rate", "experiment": "x", "direction": "to user", "change": "500 → 1000", "number": 1}
    assert [one.labels for one in found.series] == [
        labels | {"limiter": FIRST, "kbit": 500},
        labels | {"limiter": FIRST_WHOLE},
    ]
    assert found.series[0].samples == [499.5, 500.5]
    assert found.series[0].unit == "kbit/s"


def test_a_suite_that_it_did_not_have_adds_nothing(found: Outcome) -> None:
    assert of_first_engine("fairness").series == []


def test_without_its_commit_a_note_says_so_and_the_rest_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> str:
        raise FirstEngineMissingError("Not compared with the first engine: this clone has no commit.")

    monkeypatch.setattr(published, "published", missing)
    measured = Outcome("x", notes=["Beside it."])
    measured.add(1, "kbit/s", limiter=OURS)
    shown = merged(measured, of_first_engine("x"))
    assert shown.notes == ["Beside it.", "Not compared with the first engine: this clone has no commit."]
    assert [one.labels["limiter"] for one in shown.series] == [OURS]
    assert measured.notes == ["Beside it."]


def test_it_has_a_column_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = Outcome("rates")
    for limiter, ratio in ((OURS, 1.0), (FIRST, 0.99)):
        outcome.add(ratio, "", experiment="rates", limiter=limiter, direction="to user", kbit=100, what="long run")
    long_run = rates.tables(outcome)[0]
    assert long_run.header[1:3] == [OURS, FIRST]
    assert list(long_run.rows[0])[:3] == ["100, to user", "1.0000", "0.9900"]
