"""What was published on several paths, and the claims of the suite `multipath` about the same rows.

4.x are tables of the report on multipath (kB/s, 1 kB = 1000 bytes), 5.x those of the thesis on BitTorrent over SCION.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from lab.bench.core import Outcome
from lab.evaluation import congestion
from lab.evaluation.core import Claim
from lab.evaluation.downloads import ALONE, MPGET, MPTCP, ROUND_ROBIN, SPRAYING, bound_kb

COLUMNS = (20, 50, 100, 150, 200, 250, 500)  # kB/s
TABLE = {  # 4.4: paths -> column -> kB/s
    1: dict(zip(COLUMNS, (18.59, 18.94, 65.78, 100.45, 124.91, 98.13, 156.43), strict=True)),
    2: dict(zip(COLUMNS, (34.52, 75.72, 160.09, 215.88, 284.61, 342.22, 823.66), strict=True)),
    3: dict(zip(COLUMNS, (52.62, 132.81, 239.66, 339.72, 553.93, 507.35, 1145.6), strict=True)),
    4: dict(zip(COLUMNS, (71.8, 169.92, 372.87, 557.24, 539.76, 932.85, 1861.99), strict=True)),
    5: dict(zip(COLUMNS, (90.27, 235.85, 378.31, 700.82, 943.65, 1181.53, 2355.65), strict=True)),
}
# 4.6, 4.7: the first path has the column, the others 100 Mbit/s; the best of all weights
ONE_LIMITED: dict[str, dict[int, float]] = {
    "4.6": dict(zip(COLUMNS, (6736, 5216, 8058, 9239, 10544, 9899, 10386), strict=True)),
    "4.7": dict(zip(COLUMNS, (7396, 8078, 8847, 9471, 10889, 11070, 11089), strict=True)),
}
OTHERS_100 = {  # 4.10, 4.11: the first path has the column, the others 100 kB/s; the best of all weights
    "4.10": dict(zip(COLUMNS, (74.02, 111.21, 121.61, 121.59, 121.61, 121.61, 121.61), strict=True)),
    "4.11": dict(zip(COLUMNS, (192.4, 344.35, 471.66, 467.7, 467.59, 471.37, 467.74), strict=True)),
}
PATHS_OF = {"4.6": 2, "4.7": 5, "4.10": 2, "4.11": 5}
KBIT_PER_KB = 8
OF_PLAIN, OF_PLAIN_SLOW, SLOW_KBIT = 0.97, 0.95, 400
OF_SUM = {"4.10": 0.92, "4.11": 0.90}
SHARES = 0.05
FLAT = 0.02
ONLY_FULL = ("5.5", "5.6", "4.6", "4.7", "4.11", "4.12")


def rates(outcome: Outcome, row: str, who: str = MPGET, label: str = "column", **labels: int) -> dict[int, float]:
    """Medians, kB/s, by one of the labels of a task."""
    found = outcome.find(experiment=row, who=who, what="rate", **labels)
    return {int(one.labels[label]): one.median for one in found}


# --- 5.x ----------------------------------------------------------------------------------------------------------


def _unequal(outcome: Outcome) -> Claim:
    rate = outcome.median(experiment="5.1b", who=MPGET, what="rate") or 0.0
    ratio = outcome.median(experiment="5.1b", who=MPGET, what="ratio") or 0.0
    share = rate * KBIT_PER_KB / 150_000
    return Claim(
        "5.1b: links of 100 and 50 Mbit/s give together what they may, and each its share.",
        "at least 94 % of 150 Mbit/s as payload (headers leave 95.6 %), shares 2 : 1 within 5 %; published: 95 Mbit/s "
        "over one path, 137 over both",
        f"{rate * KBIT_PER_KB / 1000:.1f} Mbit/s, {share:.1%}; {ratio:.2f} : 1",
        share >= 0.94 and abs(ratio / 2 - 1) <= SHARES,
    )


def _equal(outcome: Outcome) -> Claim:
    found = rates(outcome, "5.1", label="paths")
    faster = found[2] / found[1] if len(found) == 2 else 0.0
    return Claim(
        "5.1: two equal links are nearly twice as fast as one.",
        "at least 1.9 times; published: 1.31 to 1.48 times",
        f"{faster:.3f} times",
        faster >= 1.9,
    )


def _seconds(outcome: Outcome, who: str) -> float:
    return outcome.median(experiment=congestion.ROW, who=who, what="seconds") or 0.0


def _in_window(outcome: Outcome, who: str) -> float:
    return outcome.median(experiment=congestion.ROW, who=who, what=congestion.DURING) or 0.0


def _one_congested(outcome: Outcome) -> Claim:
    free_s, one_s = _seconds(outcome, congestion.MULTI_FREE), _seconds(outcome, congestion.MULTI_ONE)
    free, one = _in_window(outcome, congestion.MULTI_FREE), _in_window(outcome, congestion.MULTI_ONE)
    return Claim(
        "5.2: a path that is congested costs nothing while another one has room.",
        "at most 1.03 times the time without congestion, and in the window at least 0.95 of the rate that two paths "
        "have at that time without congestion; published: 900 of 1000 in the window",
        f"{one_s:.2f} s and {free_s:.2f} s; {one:.0f} and {free:.0f} kB/s in the window",
        0 < one_s <= 1.03 * free_s and one >= 0.95 * free > 0,
    )


def _both_congested(outcome: Outcome) -> Claim:
    two, single = _in_window(outcome, congestion.MULTI_BOTH), _in_window(outcome, congestion.SINGLE)
    runs = [outcome.find(experiment=congestion.ROW, who=who, what="seconds")
            for who in (congestion.MULTI_BOTH, congestion.SINGLE)]  # fmt: skip
    pairs = list(zip(*(one[0].samples for one in runs), strict=True)) if all(runs) else []
    return Claim(
        "5.3: two congested paths are faster than a congested one, and never slower.",
        "in the window at least 1.6 times the single path's rate, and in every run no later; published: 300 and 180",
        f"{two:.0f} against {single:.0f} kB/s; sooner in {sum(a <= b for a, b in pairs)} of {len(pairs)} runs",
        two >= 1.6 * single > 0 and bool(pairs) and all(a <= b for a, b in pairs),
    )


def _files(outcome: Outcome) -> Claim:
    found = rates(outcome, "5.5", label="files")
    bound = bound_kb((6000, 3000))
    told = ", ".join(f"{files}: {rate / bound:.1%}" for files, rate in found.items())
    return Claim(
        "5.5: several files at once use the links as well as one does.",
        "1, 2, 5 and 10 files together at least 95 % of what headers leave of the sum; published: a spread of 2.6 %",
        told or "nothing",
        len(found) == 4 and min(found.values()) >= 0.95 * bound,
    )


def _lengths(outcome: Outcome) -> Claim:
    found = rates(outcome, "5.6", label="seconds")
    ratio = found[max(found)] / found[min(found)] if len(found) > 1 else 0.0
    return Claim(
        "5.6: a large file is fetched as fast as a small one.",
        "20 times the size at no less than 0.99 of the rate; published: the rate falls by a third",
        f"{ratio:.3f} of the rate",
        ratio >= 0.99,
    )


# --- 4.x ----------------------------------------------------------------------------------------------------------


def needed(paths: int, column: int, plain_kb: float) -> float:
    """What a cell of 4.4 must have: the published value, and a share of what one plain download gets on each path."""
    share = OF_PLAIN_SLOW if column * KBIT_PER_KB < SLOW_KBIT else OF_PLAIN
    return max(TABLE[paths][column], share * plain_kb)


def _table(outcome: Outcome) -> Claim:
    over = {}
    for paths in TABLE:
        plain = rates(outcome, "4.4", ALONE, paths=paths)
        for column, rate in rates(outcome, "4.4", paths=paths).items():
            least = needed(paths, column, plain.get(column, math.inf))
            over[f"{paths} x {column} kB/s: {rate:.2f} of {least:.2f}"] = rate / least
    return _cells(
        "4.4: 1 to 5 equal links give what as many plain downloads get.",
        "in each cell at least the published value, and 0.97 (below 400 kbit/s 0.95) of the sum that one plain "
        "download gets on each link alone in the same run",
        over,
    )


def _cells(sentence: str, bound: str, over: Mapping[str, float]) -> Claim:
    """`over` has of each cell what was measured as a share of what it must have."""
    held = sum(share >= 1 for share in over.values())
    nearest = min(over, key=lambda one: over[one], default="nothing")
    return Claim(sentence, bound, f"{held} of {len(over)} cells; closest to it {nearest}", 0 < len(over) == held)


def _one_limited(outcome: Outcome) -> Claim:
    over = {}
    for row in ONE_LIMITED:
        for column, rate in rates(outcome, row, paths=PATHS_OF[row]).items():
            free = outcome.find(experiment="4.6", who=MPGET, what="rate", paths=1, column=column)
            least = max(ONE_LIMITED[row][column], min(free[0].samples) if free else math.inf)
            over[f"{row}, {column} kB/s: {rate:.0f} of {least:.0f}"] = rate / least
    return _cells(
        "4.6, 4.7: a slow link beside one, or four, of 100 Mbit/s costs nothing.",
        "at least the published value of the best weight, and no less than the slowest of the runs over one link of "
        "100 Mbit/s, at the same moments as 4.6",
        over,
    )


def _others_100(row: str, sentence: str) -> Callable[[Outcome], Claim]:
    others = 100 if row == "4.10" else 400

    def claim(outcome: Outcome) -> Claim:
        over = {}
        for column, rate in rates(outcome, row).items():
            least = max(OTHERS_100[row][column], OF_SUM[row] * (column + others))
            over[f"{column} + {others} kB/s: {rate:.2f} of {least:.2f}"] = rate / least
        bound = f"at least the published value of the best weight, and {OF_SUM[row]:.2f} of the sum of the limits"
        return _cells(sentence, bound, over)

    return claim


def _leaves(outcome: Outcome) -> Claim:
    found = rates(outcome, "4.12", label="leaf")
    middle = sum(found.values()) / len(found) if found else 1.0
    worst = max((abs(rate / middle - 1) for rate in found.values()), default=1.0)
    return Claim(
        "4.12: how large the queue of a limit is does not matter.",
        "within 2 % of the mean, with queues of 5 to 50 kB and ours; published: flat but for three cells",
        f"at most {worst:.2%} off with {len(found)} queues",
        len(found) > 1 and worst <= FLAT,
    )


def _control(outcome: Outcome) -> Claim:
    found = {column: rate for column, rate in rates(outcome, "4.10", ROUND_ROBIN).items() if column != 100}
    passed = [column for column, rate in found.items() if rate >= OF_SUM["4.10"] * (column + 100)]
    told = ", ".join(f"{column} + 100: {rate:.1f}" for column, rate in found.items())
    return Claim(
        "4.10: with equal blocks in turn instead of its chooser mpget fails this row (negative control).",
        "below 0.92 of the sum in every column with unequal limits",
        f"{told or 'nothing'} kB/s",
        bool(found) and not passed,
    )


def _peers(outcome: Outcome) -> Claim:
    ours = rates(outcome, "4.10")
    over = {
        f"{who}, {column} + 100 kB/s: {ours[column]:.1f} to {rate:.1f}": ours[column] / rate
        for who in (MPTCP, SPRAYING)
        for column, rate in rates(outcome, "4.10", who).items()
        if column != 100 and column in ours
    }
    return _cells(
        "4.10: over unequal links mpget is faster than one connection by MPTCP or by sprayed packets.",
        "in each column that they were measured in, in the same run",
        over,
    )


ROWS: Mapping[str, tuple[Callable[[Outcome], Claim], ...]] = {
    "5.1b": (_unequal,),
    "5.1": (_equal,),
    congestion.ROW: (_one_congested, _both_congested),
    "5.5": (_files,),
    "5.6": (_lengths,),
    "4.4": (_table,),
    "4.6": (_one_limited,),
    "4.10": (_others_100("4.10", "4.10: a link beside another of 100 kB/s adds what it may."), _control, _peers),
    "4.11": (_others_100("4.11", "4.11: a link beside four of 100 kB/s adds what it may."),),
    "4.12": (_leaves,),
}


def of_rows(outcome: Outcome, rows: Mapping[str, object] | tuple[str, ...]) -> list[Claim]:
    return [claim(outcome) for row in rows for claim in ROWS.get(row, ())]


def claims(outcome: Outcome) -> list[Claim]:
    """A quick run measures some of the rows, and claims those only."""
    measured = outcome.values("experiment")
    is_quick = bool(measured) and not any(row in measured for row in ONLY_FULL)
    return of_rows(outcome, tuple(row for row in ROWS if not (is_quick and row in ONLY_FULL)))
