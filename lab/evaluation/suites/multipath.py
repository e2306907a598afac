"""One file over several limited links: `mpget`, the published figures, and what the kernel offers instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from lab.bench.core import Outcome, Step
from lab.bench.plots import Plot, Point
from lab.evaluation import congestion
from lab.evaluation.core import EvaluationScale
from lab.evaluation.downloads import ALONE, MPGET, MPTCP, ROUND_ROBIN, SPRAYING, Task, run
from lab.evaluation.several_paths import COLUMNS, KBIT_PER_KB, ONE_LIMITED, OTHERS_100, PATHS_OF, claims, of_rows, rates
from lab.evaluation.together import merge

__all__ = ["INTRO", "NAME", "TITLE", "claims", "plots", "steps"]

NAME = "multipath"
TITLE = "One file over several limited links"
FREE_KBIT = 100_000
PEER_COLUMNS = (20, 100, 500)
FILES = (1, 2, 5, 10)
TIMES = (1, 5, 20)
AT_ONCE = ((1, 2, 3), (4,), (5,))  # numbers of equal links: about 100 Mbit/s each, as in the other rows
LEAVES = (0, 5_000, 10_000, 20_000, 30_000, 40_000, 50_000)  # 0: our own
BEST = "published, best weight"
PALETTE = {MPGET: "#0b6e4f", ROUND_ROBIN: "#c1666b", MPTCP: "#7a5195", SPRAYING: "#d4a72c", BEST: "#5b7db1"}
WHOLE_S, QUICK_S, LONG_S = 10, 6, 30
SETUP_S = 2
INTRO = f"""
`mpget` fetches a file from nginx over links whose limits our engine enforces at the attachment point ([mpget](mpget.md)
says how it works), with its default options. A rate is the file's bytes over the time from the first connection attempt
to the last byte, by the downloader's own clock; files lie in memory, TCP is cubic, and there are no super-packets.
1 kB is 1000 bytes. Headers leave 1448 of 1514 bytes of a limit, 95.6 %; what a link's queue takes at once comes on top,
so a short download can be a little faster.

The rows are those of two works: 5.x of a thesis on BitTorrent over SCION, 4.x of a report on multipath, whose limits
are in kB/s. Transfers take {WHOLE_S} s and longer (4.4, 4.10 and 4.11 of `mpget` {LONG_S} s), in a quick run
{QUICK_S} s and longer. *A plain download* is one TCP connection. *Congested* is a limit of {congestion.KEPT:.0%} for
some seconds, as a timed limit would set it; in 5.2 both paths are behind an access that is as fast as one of them, so
the other path has room. In 4.6 and 4.7 the others have {FREE_KBIT // 1000} Mbit/s each. In 4.12 the kernel's token
bucket limits instead of ours, with queues of several sizes. A run in which a row fails is made once more, and that is
noted; the second one counts.

Beside it in 4.10: *round robin*, `mpget` with another chooser that hands out equal blocks in turn (the negative
control); *MPTCP*, a connection with a subflow over each link; *sprayed packets*, a TCP connection whose packets the
sender's nft distributes by the limits.
"""


def steps(scale: EvaluationScale) -> list[Step]:
    if scale.quick:
        return [*_quick(scale)]
    found = []
    for number in range(1, scale.repetitions + 1):
        again = f" ({number} of {scale.repetitions})"
        found += [_step(label + again, tasks) for label, tasks in _runs()]
        measure = partial(_until_it_holds, partial(congestion.measure, scale), (congestion.ROW,))
        found.append(Step("congestion" + again, 30, measure))
    lengths = [Task("5.6", MPGET, (2000, 1000), WHOLE_S * times) for times in TIMES for _ in range(scale.repetitions)]
    return [*found, _step(f"1 to {TIMES[-1]} times the size, all repetitions at once", lengths)]


def _step(label: str, tasks: Sequence[Task]) -> Step:
    rows = tuple(dict.fromkeys(task.row for task in tasks))
    measure = partial(_until_it_holds, partial(run, tasks), rows)
    return Step(label, max(task.seconds for task in tasks) + SETUP_S, measure)


def _quick(scale: EvaluationScale) -> list[Step]:
    cells = [
        Task("4.4", who, (column * KBIT_PER_KB,) * 2, WHOLE_S, column)
        for column in (250, 500)
        for who in (MPGET, ALONE)
    ]
    several = [*_two_and_one(QUICK_S), *cells, *_beside_100(500, QUICK_S, QUICK_S)]
    wanted: list[tuple[str, Callable[[Outcome], None], float, tuple[str, ...]]] = [
        ("100 + 50 Mbit/s", partial(run, [_unequal(QUICK_S)]), 10, ("5.1b",)),
        ("several rows at once", partial(run, several), 24, ("5.1", "4.4", "4.10")),
        ("congestion", partial(congestion.measure, scale), 16, (congestion.ROW,)),
    ]
    return [Step(label, seconds, partial(_until_it_holds, measure, rows)) for label, measure, seconds, rows in wanted]


def _until_it_holds(measure: Callable[[Outcome], None], rows: tuple[str, ...], outcome: Outcome) -> None:
    """A run in which one of these rows fails is made once more, whatever that brings: in ten seconds a pause of the
    machine is a per cent."""
    found = Outcome(NAME)
    measure(found)
    if wrong := [one for one in of_rows(found, rows) if not one.holds]:
        outcome.note(f"A first run was made once more: {wrong[0].sentence} {wrong[0].measured}.")
        found = Outcome(NAME)
        measure(found)
    merge(outcome, found)


def _runs() -> list[tuple[str, list[Task]]]:
    """Of one repetition."""
    found = [("100 + 50 Mbit/s", [_unequal(WHOLE_S)])]
    files = [Task("5.5", MPGET, (6000, 3000), WHOLE_S, files=one) for one in FILES]
    found.append(("one and two equal links, 1 to 10 files", [*_two_and_one(WHOLE_S), *files]))
    for several in AT_ONCE:
        cells = [(paths, column, who) for paths in several for column in COLUMNS for who in (MPGET, ALONE)]
        table = [Task("4.4", who, (column * KBIT_PER_KB,) * paths, LONG_S, column) for paths, column, who in cells]
        found.append((f"{', '.join(map(str, several))} equal links", table))
    beside = [task for column in COLUMNS for task in _beside_100(column, LONG_S, WHOLE_S)]
    beside += [Task("4.11", MPGET, (column * KBIT_PER_KB, *[800] * 4), LONG_S, column) for column in COLUMNS]
    beside += [Task("4.12", MPGET, (2000, 1000), WHOLE_S, leaf_bytes=one) for one in LEAVES]
    found.append(("links beside one and four of 100 kB/s, queues", beside))
    for row in ONE_LIMITED:
        for column in COLUMNS:
            limits = (column * KBIT_PER_KB, *[FREE_KBIT] * (PATHS_OF[row] - 1))
            wanted = [Task(row, MPGET, limits, WHOLE_S, column)]
            if row == "4.6":
                wanted.append(Task(row, MPGET, (FREE_KBIT,), WHOLE_S, column))
            found.append((f"{column} kB/s beside {PATHS_OF[row] - 1} times {FREE_KBIT // 1000} Mbit/s", wanted))
    return found


def _unequal(seconds: int) -> Task:
    return Task("5.1b", MPGET, (100_000, 50_000), seconds)


def _two_and_one(seconds: int) -> list[Task]:
    """The same file over two links and over one."""
    return [Task("5.1", MPGET, (10_000, 10_000), seconds), Task("5.1", MPGET, (10_000,), 2 * seconds)]


def _beside_100(column: int, seconds: int, others_s: int) -> list[Task]:
    whose = (ROUND_ROBIN, *((MPTCP, SPRAYING) if column in PEER_COLUMNS else ()))
    limits = (column * KBIT_PER_KB, 100 * KBIT_PER_KB)
    return [
        Task("4.10", MPGET, limits, seconds, column),
        *(Task("4.10", who, limits, others_s, column) for who in whose),
    ]


# --- what came out ----------------------------------------------------------------------------------------------


def plots(outcome: Outcome) -> list[Plot]:
    lines: dict[str, list[Point]] = {}
    for row, best in OTHERS_100.items():
        measured = {who: rates(outcome, row, who, paths=PATHS_OF[row]) for who in PALETTE}
        if any(measured.values()):
            lines |= {f"{who}, {row}": _points(rate) for who, rate in (measured | {BEST: best}).items() if rate}
    return [
        Plot(
            "multipath-beside",
            "A link beside one of 100 kB/s (4.10), and beside four (4.11)",
            "kB/s of payload",
            "limit of the first link, kB/s",
            lines=lines,
            is_log=False,
            is_log_x=False,
            panels=tuple(OTHERS_100),
            palette=PALETTE,
        )
    ]


def _points(found: dict[int, float]) -> list[Point]:
    return [(float(column), rate) for column, rate in sorted(found.items())]
