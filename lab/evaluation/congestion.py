"""A path is congested for a while: the limits of some links fall and rise again while a file is downloaded over them.

One attachment point; each experiment has links of its own, and all run at once:

    MULTI_FREE, MULTI_ONE   two links behind one access (a token bucket of one link's limit in front of both); of the
                            second experiment the first link is congested in the window
    SINGLE, MULTI_BOTH      one link, and two; all of them are congested in the window
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from bandwidth_config import Limits
from lab.bench.core import Outcome
from lab.evaluation.bed import Bed, Wire
from lab.evaluation.core import EvaluationScale
from lab.evaluation.downloads import Fetch, bound_kb, labels, nginx, path_of, send_by_cubic, token_bucket
from lab.evaluation.limiters import OURS, Link
from lab.evaluation.together import add_all, beds

LIMIT_KBIT = 8_000
KEPT = 0.18  # of the limit while it is congested: what the published single path keeps
ACCESS_QUEUE_BYTES = 60_000  # 60 ms of the access
MULTI_FREE, MULTI_ONE, SINGLE, MULTI_BOTH = (
    "two paths, none congested", "two paths, one congested", "one path, congested", "two paths, both congested",
)  # fmt: skip
USERS = {  # of each experiment: the wires of its paths, and whether it is the second link of the wire
    MULTI_FREE: ((1, False), (1, True)),
    MULTI_ONE: ((2, False), (2, True)),
    SINGLE: ((3, False),),
    MULTI_BOTH: ((4, False), (5, False)),
}
ROW = "5.2, 5.3"
BEFORE, DURING = "before the window", "in the window"
SAMPLE_S = 0.5  # multipath.__main__.SERIES_S
START_S = 1.0  # what a program has to start in: its clock is behind ours by so much at most


@dataclass(frozen=True)
class Times:
    """Seconds from the start: the window, and what the file takes over a free link."""

    from_s: float
    until_s: float
    file_s: float


def times(scale: EvaluationScale) -> Times:
    return scale.pick(Times(4.0, 10.0, 14.0), Times(3.0, 6.0, 8.0))


def measure(scale: EvaluationScale, outcome: Outcome) -> None:
    """Adds how long each experiment took, and its rates before and in the window. Raises `LabError`."""
    found, when = {}, times(scale)
    size = int(bound_kb([LIMIT_KBIT]) * 1000 * when.file_s)
    with beds([OURS], 5) as made:
        bed = made[OURS]
        for number in (1, 2):
            bed.add_other_user(number)
            token_bucket(bed, bed.wire(number), LIMIT_KBIT, ACCESS_QUEUE_BYTES)
        _limit(bed, 1.0)
        send_by_cubic(bed)
        with nginx(bed.ap, [size]) as folder:
            began = time.monotonic()
            running = {name: _start(bed, folder, name, size) for name in USERS}
            for at_s, share in ((when.from_s, KEPT), (when.until_s, 1.0)):
                time.sleep(max(0.0, began + at_s - time.monotonic()))
                _limit(bed, share)
            for name, fetch in running.items():
                found[name] = fetch.finish(when.file_s * 4)
    for name, document in found.items():
        outcome.add(document["seconds"], "s", **labels(ROW, name), what="seconds")
        series = rates_kb(document)
        add_all(outcome, series, "kB/s", **labels(ROW, name), what="series")
        for what, from_s, until_s in ((BEFORE, 1.0, when.from_s), (DURING, when.from_s, when.until_s)):
            window = series[round(from_s / SAMPLE_S) : round((until_s - START_S) / SAMPLE_S)]
            outcome.add(sum(window) / len(window), "kB/s", **labels(ROW, name), what=what)


def _users(bed: Bed, name: str) -> list[tuple[Wire, str]]:
    """The links of an experiment: their wires, and the user's address."""
    wires = [(bed.wire(number), is_second) for number, is_second in USERS[name]]
    return [(wire, wire.other_user if is_second else wire.ends[1][0]) for wire, is_second in wires]


def _limit(bed: Bed, share: float) -> None:
    """All links; the congested ones to this share of their limit."""
    links: list[Link] = []
    for name in USERS:
        for number, (wire, user) in enumerate(_users(bed, name)):
            is_congested = name in (SINGLE, MULTI_BOTH) or (name == MULTI_ONE and number == 0)
            limits = Limits.both(round(LIMIT_KBIT * share) if is_congested else LIMIT_KBIT)
            links.append(Link(len(links) + 1, wire.dev, wire.ends[0], (user, wire.ends[1][1]), limits))
    bed.limit({}, extra=links, four_keys=True)


def _start(bed: Bed, folder: Path, name: str, size: int) -> Fetch:
    return Fetch(bed.users, folder, [path_of(user, wire.ends[0][0], size) for wire, user in _users(bed, name)])


def rates_kb(document: Mapping[str, Any]) -> list[float]:
    """Of all paths together, in each interval of `SAMPLE_S` from the beginning on."""
    if document["interval_s"] != SAMPLE_S:
        raise ValueError(f"mpget samples each {document['interval_s']} s, not each {SAMPLE_S} s")
    received = [
        0,
        *(sum(of_paths) for of_paths in zip(*(one["series_bytes"] for one in document["paths"]), strict=True)),
    ]
    return [(after - before) / SAMPLE_S / 1000 for before, after in pairwise(received)]
