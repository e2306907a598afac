"""The tool `tcp`, a part of the suite `tests`: what TCP gets of a limit, over one connection and over two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from lab.bench.core import Outcome, Step
from lab.bench.report import NOTHING
from lab.evaluation import together
from lab.evaluation.conversations import WAYS, converse, labels, limit_tested
from lab.evaluation.core import DIRECTIONS, TO_USER, Claim
from lab.evaluation.limiters import OURS
from measuring.framing import tcp_goodput_bound
from measuring.netns import MAX_SEGMENTS
from station.tools import TOOLS

GIGABIT = 1_000_000
RATES, MOST_OFF = (2_000, 50_000, GIGABIT), 0.02
FLOWS = {1: "one connection", 2: "two connections"}
GIGABIT_MBIT = (940, 962)


def steps(again: str, several_flows: Sequence[int]) -> list[Step]:
    """`again`: which repetition it is; `several_flows`: with how many connections."""
    return [
        Step(f"TCP, {flows} at {kbit / 1000:g} Mbit/s" + again, 28, _measure(kbit, flows))
        for kbit in RATES
        for flows in several_flows
    ]


def _measure(kbit: int, flows: int) -> Callable[[Outcome], None]:
    def measure(outcome: Outcome) -> None:
        with together.beds([OURS], 1) as found:
            bed = found[OURS]
            if kbit == GIGABIT:
                for host in (bed.ap, bed.users):
                    host.ip("link", "set", bed.wire(1).dev, "gso_max_segs", str(MAX_SEGMENTS))
            limit_tested(bed, {1: kbit})
            tool = TOOLS["tcp"]
            both = converse(bed, {1: tool.phases(tool.read({"flows": flows}), kbit, kbit)})[1]
        for way, name in WAYS.items():
            report = both.user if way == TO_USER else both.ap
            for phase in report.phases:
                if phase.direction == name and phase.tcp:
                    took_s = max(rows[-1][0] for rows in phase.tcp if rows) // 1000
                    rows = [received * 8 / 1000 for *_, received in phase.seconds[1:took_s]]
                    together.add_all(outcome, rows, "kbit/s", flows=flows, **labels("TCP", way, kbit))

    return measure


def _kbit(outcome: Outcome) -> dict[tuple[int, int, str], float]:
    """By limit, connections and direction: payload in the mean of all whole seconds."""
    return {
        (int(one.labels["kbit"]), int(one.labels["flows"]), str(one.labels["direction"])): fmean(one.samples)
        for one in outcome.find(experiment="TCP")
    }


def claims(outcome: Outcome) -> list[Claim]:
    tcp = _kbit(outcome)
    over = [words for flows, words in FLOWS.items() if any(found == flows for _, found, _ in tcp)]
    offs = [abs(found / tcp_goodput_bound(kbit) - 1) for (kbit, *_), found in tcp.items() if kbit != GIGABIT]
    fastest = [found / 1000 for (kbit, *_), found in tcp.items() if kbit == GIGABIT]
    each = len(DIRECTIONS) * len(over)
    return [
        Claim(
            f"TCP gets what headers leave of the limit, over {' and over '.join(over)}, in both directions.",
            f"within {MOST_OFF:.0%} of it at 2 and 50 Mbit/s",
            f"at most {max(offs):.2%} off" if offs else NOTHING,
            bool(offs) and len(offs) == each * (len(RATES) - 1) and max(offs) <= MOST_OFF,
        ),
        Claim(
            "At a limit of 1 Gbit/s a test of TCP carries what headers leave of it.",
            f"{GIGABIT_MBIT[0]} to {GIGABIT_MBIT[1]} Mbit/s of payload over {' and over '.join(over)}, each way",
            f"{min(fastest):.1f} to {max(fastest):.1f} Mbit/s" if fastest else NOTHING,
            bool(fastest)
            and len(fastest) == each
            and GIGABIT_MBIT[0] <= min(fastest) <= max(fastest) <= GIGABIT_MBIT[1],
        ),
    ]
