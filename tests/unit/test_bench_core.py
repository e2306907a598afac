"""The arithmetic under the published figures: medians, turns, the progress line, and what a reader is told."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from lab.bench.__main__ import SUITES, parse
from lab.bench.core import Outcome, Progress, Step, interleave, median, percentile, quartiles
from lab.bench.plots import Plot
from lab.bench.publish import PUBLISHED, Page, into_docs
from lab.bench.report import Table, figure, pivot, replace_between, tables_of, write_json


def nothing(_: Outcome) -> None:
    """A step that measures nothing."""


def test_median_is_the_middle_and_not_the_mean() -> None:
    assert median([1.0, 2.0, 90.0]) == 2.0
    assert median([4.0, 1.0, 2.0, 90.0]) == 3.0
    with pytest.raises(ValueError, match="no samples"):
        median([])


def test_half_of_the_samples_lie_between_the_quartiles() -> None:
    assert quartiles([1, 2, 3, 4, 5]) == (2.0, 4.0)
    assert quartiles([7.0]) == (7.0, 7.0)
    with pytest.raises(ValueError, match="no samples"):
        quartiles([])


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.0, 1), (0.001, 1)])
def test_percentile_is_a_sample_that_so_many_do_not_exceed(share: float, expected: int) -> None:
    assert percentile(list(range(100, 0, -1)), share) == expected


def test_every_variant_runs_once_per_round_and_each_round_in_its_own_order() -> None:
    order = list(interleave("abcdef", 20))
    rounds = [order[start : start + 6] for start in range(0, 120, 6)]
    assert [sorted(one) for one in rounds] == [list("abcdef")] * 20
    assert len({tuple(one) for one in rounds}) > 10
    assert order == list(interleave("abcdef", 20))


def test_samples_with_the_same_labels_are_one_series() -> None:
    outcome = Outcome("x")
    for value in (3.0, 1.0, 2.0):
        outcome.add(value, "ns", variant="ours", size=10)
    outcome.add(9.0, "ns", variant="theirs", size=10)
    assert outcome.median(variant="ours") == 2.0
    assert outcome.values("variant", size=10) == ["ours", "theirs"]
    assert outcome.median(variant="nobody") is None
    with pytest.raises(LookupError, match="2 series"):
        outcome.median(size=10)


def test_time_left_follows_what_the_steps_before_really_took() -> None:
    now, out = [0.0], io.StringIO()
    progress = Progress([Step("a", 10, nothing), Step("b", 10, nothing), Step("c", 20, nothing)], out, lambda: now[0])
    progress.begin("s", "a")
    now[0] = 20.0  # twice as long as expected
    progress.done()
    assert progress.left_s() == 60.0
    progress.begin("s", "b")
    assert out.getvalue().splitlines() == ["bench: 1/3 s: a (40 s left)", "bench: 2/3 s: b (60 s left)"]


def test_results_have_every_sample_and_what_failed(tmp_path: Path) -> None:
    outcome = Outcome("packet", notes=["a note"], failures=["a step: gone"])
    outcome.add(1.5, "ns", variant="ours", size=4000)
    write_json(tmp_path / "r.json", {"kernel": "Linux"}, "./dev bench packet", [outcome])
    assert json.loads((tmp_path / "r.json").read_text()) == {
        "machine": {"kernel": "Linux"},
        "command": "./dev bench packet",
        "suites": [
            {
                "suite": "packet",
                "series": [
                    {"labels": {"variant": "ours", "size": 4000}, "unit": "ns", "samples": [1.5], "median": 1.5}
                    | {"quartiles": [1.5, 1.5]}
                ],
                "notes": ["a note"],
                "failures": ["a step: gone"],
            }
        ],
    }


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0"), (0.01234, "0.0123"), (4.567, "4.57"), (99.94, "99.9"), (1160.4, "1,160")]
)
def test_figures_have_three_digits_that_mean_something(value: float, shown: str) -> None:
    assert figure(value) == shown


def test_a_table_has_a_dash_where_nothing_was_measured() -> None:
    outcome = Outcome("x")
    outcome.add(5, "ns", variant="ours", size=1)
    outcome.add(7, "ns", variant="theirs", size=2)
    rows = pivot(outcome, "size", "variant", row_order=[1, 2, 3], column_order=["ours", "theirs"])
    assert rows == [["1", "5", "-"], ["2", "-", "7"]]
    assert Table("Cost", ["links", "ours", "theirs"], rows, "In ns.").markdown() == (
        "**Cost**\n\n| links | ours | theirs |\n| --- | --: | --: |\n| 1 | 5 | - |\n| 2 | - | 7 |\n\nIn ns."
    )


def test_only_what_stands_between_the_markers_is_replaced() -> None:
    page = "head\n<!-- bench:a -->\nold \\1\n<!-- /bench:a -->\n<!-- bench:b -->\nkept\n<!-- /bench:b -->\n"
    replaced = replace_between(page, "a", "new \\1 figures\n")
    assert replaced == page.replace("old \\1", "new \\1 figures")
    with pytest.raises(LookupError, match="bench:c"):
        replace_between(page, "c", "")


def test_only_what_stands_between_the_markers_of_a_suite_is_published_and_plots_that_the_page_shows(
    tmp_path: Path,
) -> None:
    (tmp_path / "img").mkdir()
    path = tmp_path / "p.md"
    kept = "<!-- bench:install -->\nold\n<!-- /bench:install -->\n"
    path.write_text(f"{kept}<!-- bench:packet -->\nold\n<!-- /bench:packet -->\n![Many](img/bench-fleet.svg)\n")
    machine = dict.fromkeys(("date", "kernel", "cpu", "iproute2", "python", "commit", "load"), "?")
    plots = {name: Plot(name, "Cost", "ns", bars={"ours": 1.0}) for name in ("packet", "fleet", "other")}
    outcome = Outcome("packet", notes=["Beside it."])
    pages = [Page("packet", "t", [], [plots["packet"]], outcome)]
    pages.append(Page("scale", "t", [], [plots["fleet"], plots["other"]], Outcome("scale")))
    into_docs(path, machine, "./dev bench packet", pages)
    text = path.read_text()
    assert text.startswith(kept)
    assert "Measured by `./dev bench packet` on ?" in text
    assert "![Cost](img/bench-packet.svg)\n\n- Beside it.\n<!--" in text
    assert sorted(one.name for one in (tmp_path / "img").iterdir()) == ["bench-fleet.svg", "bench-packet.svg"]


@pytest.mark.parametrize("suite", PUBLISHED)
def test_the_page_in_docs_has_a_place_for_every_suite(suite: str) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "performance.md").read_text(encoding="utf-8")
    assert suite in SUITES
    assert replace_between(text, suite, "x") != text


@pytest.mark.parametrize(
    ("words", "said"),
    [(["nosuch"], "no such suite: nosuch"), (["QUICK=1", "--publish"], "not worth publishing")],
)
def test_a_wrong_command_line_is_refused_in_words(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert parse(["QUICK=1", "packet"]).quick
    assert not parse(["packet"]).quick


def test_everything_that_was_measured_is_in_a_table() -> None:
    """A column for each that is compared, a row for every other combination of labels, a dash where nothing is."""
    outcome = Outcome("rates")
    for limiter, kbit, samples in (
        ("ours", 100, (99.0, 100.0, 101.0)),
        ("ours", 500, (500.0,)),
        ("none", 500, (900.0,)),
    ):
        for sample in samples:
            outcome.add(sample, "kbit/s", what="rate", limiter=limiter, kbit=kbit)
    outcome.add(7, "packets", what="lost", kbit=500)
    rate, lost = tables_of(outcome)
    assert (rate.title, lost.title) == ("rate, kbit/s", "lost, packets")
    assert [list(one.header) for one in (rate, lost)] == [["kbit", "ours", "none"], ["kbit", "measured"]]
    assert [list(row) for row in rate.rows] == [["100", "100 (99 to 101)", "-"], ["500", "500", "900"]]
    assert [list(row) for row in lost.rows] == [["500", "7"]]
