"""What a change costs those who did nothing: packets lost and bytes let through too much, under traffic.

Two flows, both directions at once, as fast as the clock says: A is paced below its limit and must not lose a packet; B
offers twenty times its limit and must not gain a byte. In the middle of the run something is changed. `ours` has 1000
links; the others remove and rebuild, which is the only thing that they can do, with as many links as stated.

Bytes of B count as too much where a window of any length carried more than rate*T, the burst and two frames; where B
itself is changed, the higher of its limits counts.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from functools import partial

from lab.bench import changes
from lab.bench.changes import (
    A_OFFERED,
    A_PAYLOAD,
    ATTACH,
    B_LIMIT,
    B_OFFERED,
    DEV,
    NOTHING_DONE,
    REMOVE,
    USER,
    A,
    B,
    Situation,
)
from lab.bench.core import Label, Outcome, Scale, Step, interleave
from lab.bench.engines import Engine
from lab.bench.peers import wondershaper
from lab.bench.plots import Plot
from lab.bench.windows import allowed_bytes
from lab.bench.wires import FROM_USER, TO_USER
from lab.bench.world import IFBS, LOCAL, PREFIX, local_port, remote_port, tear_down
from measuring.netns import Lab, Namespace
from measuring.traffic import Endpoint, Results, TrafficRun, data, ends

NAME = "hitless"
TITLE = "Changes under traffic"
CHANGE_AT_S = 1.0


def steps(scale: Scale) -> list[Step]:
    crowd = scale.pick(1000, 20)
    situations = changes.situations(crowd)
    times, seconds, attempts = scale.pick((3, 3.2, 3), (1, 2.2, 1))
    return [
        Step(f"{one.name} (run {number} of {times})", seconds + 2.5, partial(_measure, one, seconds, attempts))
        for number in range(1, times + 1)
        for one in interleave(situations, 1, seed=number)
    ]


# --- one run ----------------------------------------------------------------------------------------------------


def _measure(situation: Situation, seconds: float, attempts: int, outcome: Outcome) -> None:
    """Again, a few times, when the traffic ended before the change did, or when the machine stood still so long that a
    sender lost its pace: it makes up in a burst then, which no limit lets through, and a loss says nothing."""
    for attempt in range(1, attempts + 1):
        with Lab(PREFIX) as lab:
            ap, user = lab.namespace("ap"), lab.namespace("user")
            users = (f"{address}/24" for address in USER.values())
            lab.veth(ap.nic(DEV, f"{LOCAL[4]}/24"), user.nic("eth0", *users))
            ap.ip("route", "add", "10.0.0.0/8", "dev", DEV)
            results, took_s = _run(situation, seconds, ap, user)
            tear_down(ap, DEV, *IFBS)
            is_good = _kept_pace(results) and CHANGE_AT_S + took_s < seconds
            if is_good or attempt == attempts:
                _note(situation, results, {TO_USER: user, FROM_USER: ap}, took_s, outcome)
            if situation.name == wondershaper.SCHEME:
                outcome.note(wondershaper.effect(ap, DEV, B_LIMIT))
        if is_good:
            return
        seconds = max(seconds, CHANGE_AT_S + 1.5 * took_s + 0.5)
    outcome.note(f"{situation.name}: the machine was too busy in {attempts} tries to keep the pace.")


def _run(situation: Situation, seconds: float, ap: Namespace, user: Namespace) -> tuple[Results, float]:
    """The results, and how long the change took in seconds."""
    with Engine(ap) as engine:
        situation.prepare(ap, engine)
        run = TrafficRun({ap: _endpoints(0), user: _endpoints(1)}, seconds=seconds).go()
        run.sleep_until(CHANGE_AT_S)
        began = time.perf_counter()
        situation.act(ap, engine)
        took_s = time.perf_counter() - began
        return run.finish(), took_s


def _endpoints(side: int) -> list[Endpoint]:
    """Of the attachment point (0) or of the users (1)."""
    streams = {A: (data(A_OFFERED, A_PAYLOAD),), B: (data(B_OFFERED),)}
    return [
        ends(f"flow{number}", (LOCAL[4], local_port(number)), (USER[number], remote_port(number)), streams[number])[
            side
        ]
        for number in (A, B)
    ]


def _kept_pace(results: Results) -> bool:
    """Whether both ends of A sent all that they were told to, when they were told to."""
    of_a = [end for (_, name), end in results.endpoints.items() if name == f"flow{A}"]
    return not any(stream["skipped"] for end in of_a for stream in end.sent_streams)


def _note(
    situation: Situation, results: Results, receivers: Mapping[str, Namespace], took_s: float, outcome: Outcome
) -> None:
    labels: dict[str, Label] = {"action": situation.name, "links": situation.links}
    outcome.add(took_s, "s", what="took", **labels)
    for direction, receiver in receivers.items():
        where: dict[str, Label] = {**labels, "direction": direction}
        sent = results.other_end(receiver, f"flow{A}").sent()
        outcome.add(sent, "packets", what="sent", **where)
        outcome.add(results.lost(receiver, f"flow{A}"), "packets", what="lost", **where)
        arrivals = results.at(receiver, f"flow{A}").data.arrived_ns
        gap = max((later - earlier for earlier, later in itertools.pairwise(arrivals)), default=0)
        outcome.add(gap / 1e6, "ms", what="longest gap", **where)
        excess = results.excess_bytes(receiver, f"flow{B}", situation.b_limit)
        outcome.add(max(0.0, excess - allowed_bytes(situation.b_limit)), "bytes", what="too much", **where)


# --- what came out ----------------------------------------------------------------------------------------------


CLSACT = (ATTACH, REMOVE)  # the card's clsact comes or goes


def lost_by_changes(outcome: Outcome, *, of_clsact: bool = False) -> tuple[float, float]:
    """Packets of A that were lost in all runs in which ours changed something, and packets sent. When a clsact comes or
    goes, the kernel deactivates the card's own queues for a moment (`dev_deactivate` in net/sched/sch_api.c), which can
    lose packets to the user whoever does it: those runs are counted apart."""
    lost = sent = 0.0
    for one in outcome.series:
        action = str(one.labels["action"])
        if action.startswith("ours") and action != NOTHING_DONE and (action in CLSACT) == of_clsact:
            lost += sum(one.samples) if one.labels["what"] == "lost" else 0
            sent += sum(one.samples) if one.labels["what"] == "sent" else 0
    return lost, sent


def _actions(outcome: Outcome) -> list[tuple[str, int]]:
    """What was measured, with its number of links; ours first."""
    measured = {(str(one.labels["action"]), int(one.labels["links"])) for one in outcome.series}
    return sorted(measured, key=lambda one: (not one[0].startswith("ours"), one))


def plots(outcome: Outcome) -> list[Plot]:
    bars = {}
    for action, links in _actions(outcome):
        lost = sum(sum(one.samples) for one in outcome.find(action=action, links=links, what="lost"))
        runs = len(outcome.find(action=action, links=links, what="took")[0].samples)
        bars[f"{action} ({links} links)"] = lost / runs
    title = "Packets that a bystander loses by one change"
    return [Plot("hitless", title, "packets per change, mean of all runs", bars=bars)] if bars else []
