"""What a change costs those who did nothing: packets lost and bytes let through too much, under traffic.

Two flows, both directions at once, as fast as the clock says: A is paced below its limit and must not lose a packet; B
offers twenty times its limit and must not gain a byte. In the middle of the run something is changed. `ours` has 1000
links; the others remove and rebuild, which is the only thing that they can do, with as many links as stated.

Bytes of B count as too much where a window of any length carried more than rate*T, both bursts and two frames; where B
itself is changed, the higher of its limits counts.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from bandwidth_config import LinkInfo, check_link_info
from bench.core import Label, Outcome, Scale, Step, interleave
from bench.peers import retell, thesis, wondershaper
from bench.plots import Plot
from bench.report import NOTHING, Table, figure
from bench.windows import allowed_bytes
from bench.world import (
    IFB,
    LOCAL,
    PREFIX,
    RunningEngine,
    entry,
    local_port,
    make_links,
    remote_port,
    tear_down,
    with_limit,
)
from lab.netns import Lab, Namespace
from lab.traffic import Endpoint, Results, TrafficRun, data, ends

NAME = "hitless"
TITLE = "Changes under traffic"
DEV = "eth0"
A, B, C = 2001, 2002, 2003  # interface ids of the two flows, and of a link that comes
USER = {A: "192.0.2.11", B: "192.0.2.12", C: "192.0.2.13"}
A_LIMIT, B_LIMIT = 12_000, 1_000
A_OFFERED, B_OFFERED, A_PAYLOAD = 10_000, 20_000, 958  # A: 1000 bytes on the wire, 1250 packets per second
CHANGE_AT_S = 1.0
ATTACHMENTS = 5
TO_USER, FROM_USER = "to user", "from user"
DIRECTIONS = (TO_USER, FROM_USER)
ATTACH = "ours: attach and remove the root, 5 times"
NOTHING_DONE = "ours: nothing"


@dataclass(frozen=True)
class Situation:
    """What is there before (`prepare`), and what is done under traffic (`act`); `b_limit` is the higher one of B."""

    name: str
    links: int
    prepare: Callable[[Namespace, RunningEngine], None]
    act: Callable[[Namespace, RunningEngine], None]
    b_limit: int = B_LIMIT


def steps(scale: Scale) -> list[Step]:
    crowd = scale.pick(1000, 20)
    situations = [*_ours(crowd), *_peers(crowd), _attaching()]
    times, seconds, attempts = scale.pick((3, 3.2, 3), (1, 2.2, 1))
    return [
        Step(f"{one.name} (run {number} of {times})", seconds + 2.5, partial(_measure, one, seconds, attempts))
        for number in range(1, times + 1)
        for one in interleave(situations, 1, seed=number)
    ]


# --- what is done -----------------------------------------------------------------------------------------------


def flows(kbit_a: int = A_LIMIT, kbit_b: int = B_LIMIT) -> dict[int, LinkInfo]:
    wanted = {A: kbit_a, B: kbit_b}
    return check_link_info({str(number): entry(USER[number], kbit, number) for number, kbit in wanted.items()})


def _ours(crowd: int) -> list[Situation]:
    idle = make_links(crowd, kbit=2_000)
    before = {**idle, **flows()}
    coming = check_link_info({str(C): entry(USER[C], 3_000, C)})
    without = {number: link for number, link in before.items() if number != crowd // 2}
    actions: list[tuple[str, Mapping[int, LinkInfo], int]] = [
        (NOTHING_DONE, before, B_LIMIT),
        ("ours: change B", with_limit(before, B, 2 * B_LIMIT), 2 * B_LIMIT),
        ("ours: add a link", {**before, **coming}, B_LIMIT),
        ("ours: delete a link", without, B_LIMIT),
        ("ours: change A itself", with_limit(before, A, A_LIMIT + 2_000), B_LIMIT),
    ]
    return [
        Situation(name, crowd, partial(_enforce, before), partial(_enforce, after), limit)
        for name, after, limit in actions
    ]


def _enforce(links: Mapping[int, LinkInfo], _: Namespace, engine: RunningEngine) -> None:
    engine.enforce(links)


def _peers(crowd: int) -> list[Situation]:
    few = [("tc -batch: remove and rebuild", crowd, _rebuild_in_one_batch)]
    few += [("tc commands: remove and rebuild", 3, _rebuild_one_by_one)]
    many = min(crowd, 100)
    return [
        *(Situation(name, links, partial(_retold, links), partial(act, links)) for name, links, act in few),
        *(
            Situation("the thesis' sequence", links, partial(_thesis, links), partial(_thesis, links))
            for links in (3, many)
        ),
        Situation(wondershaper.SCHEME, 0, _wondershaper, _wondershaper_again, b_limit=A_OFFERED + B_OFFERED),
    ]


def _tree_of_ours(links: int) -> dict[int, LinkInfo]:
    return {**make_links(links - 2, kbit=2_000), **flows()} if links > 2 else flows()


_TOLD: dict[int, list[str]] = {}


def _retold(links: int, host: Namespace, engine: RunningEngine) -> None:
    """Our tree, and kept in mind how to say it again."""
    engine.enforce(_tree_of_ours(links))
    _TOLD[links] = retell.retell(host, [DEV, IFB])


def _removal() -> list[str]:
    return [f"qdisc del dev {DEV} clsact", f"qdisc del dev {DEV} root", f"qdisc del dev {IFB} root"]


def _rebuild_in_one_batch(links: int, host: Namespace, _: RunningEngine) -> None:
    host.run("tc", "-batch", "-", stdin="\n".join([*_removal(), *_TOLD[links]]) + "\n", timeout_s=60)


def _rebuild_one_by_one(links: int, host: Namespace, _: RunningEngine) -> None:
    _shell(host, [f"tc {line}" for line in [*_removal(), *_TOLD[links]]])


def _shell(host: Namespace, commands: list[str]) -> None:
    host.run("sh", "-s", stdin="\n".join(commands) + "\n", timeout_s=60, check=False)


def _thesis(links: int, host: Namespace, _: RunningEngine) -> None:
    """Its numbers are decimal words that tc reads as hexadecimal; below 9999 that only renames the classes."""
    listed = [
        thesis.ThesisLink(number, str(link.remote_ip), link.bandwidth_kbit)
        for number, link in _tree_of_ours(links).items()
    ]
    _shell(host, [f"{' '.join(command)} 2>/dev/null" for command in thesis.enforce_commands(DEV, listed)])


def _wondershaper(host: Namespace, _: RunningEngine) -> None:
    """It has one pair of numbers for the interface: room for both flows, and no limit for B."""
    host.ip_batch([f"link add {thesis.IFB} type ifb", f"link set {thesis.IFB} up"])
    _shell(host, [f"tc {line}" for line in wondershaper.scheme(DEV, thesis.IFB, 2 * (A_OFFERED + B_OFFERED))])


def _wondershaper_again(host: Namespace, _: RunningEngine) -> None:
    lines = wondershaper.clear_lines(DEV, thesis.IFB) + wondershaper.scheme(
        DEV, thesis.IFB, 2 * (A_OFFERED + B_OFFERED)
    )
    _shell(host, [f"tc {line}" for line in lines])


def _attaching() -> Situation:
    """Ten other links come and go, a few times; neither flow belongs to any, so that B is a bystander like A."""
    others = make_links(10, kbit=2_000)

    def nothing(_host: Namespace, _engine: RunningEngine) -> None:
        """Nobody is limited before."""

    def act(_host: Namespace, engine: RunningEngine) -> None:
        for _ in range(ATTACHMENTS):
            engine.enforce(others)
            engine.reset()

    return Situation(ATTACH, 10, nothing, act, b_limit=A_OFFERED + B_OFFERED)


# --- one run ----------------------------------------------------------------------------------------------------


def _measure(situation: Situation, seconds: float, attempts: int, outcome: Outcome) -> None:
    """Again, a few times, when the machine stood still so long that a sender lost its pace: it makes up in a burst
    then, which no limit lets through, and a loss says nothing about the change."""
    for attempt in range(1, attempts + 1):
        with Lab(PREFIX) as lab:
            ap, user = lab.namespace("ap"), lab.namespace("user")
            users = (f"{address}/24" for address in USER.values())
            lab.veth(ap.nic(DEV, f"{LOCAL[4]}/24"), user.nic("eth0", *users))
            ap.ip("route", "add", "10.0.0.0/8", "dev", DEV)
            results, took_s = _run(situation, seconds, ap, user)
            tear_down(ap, DEV, IFB)
            is_steady = _kept_pace(results)
            if is_steady or attempt == attempts:
                _note(situation, results, {TO_USER: user, FROM_USER: ap}, took_s, outcome)
            if situation.name == wondershaper.SCHEME:
                outcome.note(wondershaper.effect(ap, DEV, B_LIMIT))
        if is_steady:
            return
    outcome.note(f"{situation.name}: a sender could not keep its pace in {attempts} tries; the machine is too busy.")


def _run(situation: Situation, seconds: float, ap: Namespace, user: Namespace) -> tuple[Results, float]:
    """The results, and how long the change took in seconds."""
    with RunningEngine(ap) as engine:
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


def lost_by_changes(outcome: Outcome) -> tuple[float, float]:
    """Packets of A that were lost in all runs in which the engine changed something in place, and packets sent."""
    lost = sent = 0.0
    for one in outcome.series:
        action = str(one.labels["action"])
        if action.startswith("ours") and action not in (ATTACH, NOTHING_DONE):
            lost += sum(one.samples) if one.labels["what"] == "lost" else 0
            sent += sum(one.samples) if one.labels["what"] == "sent" else 0
    return lost, sent


def _actions(outcome: Outcome) -> list[tuple[str, int]]:
    """What was measured, with its number of links; ours first, attaching at their end."""
    measured = {(str(one.labels["action"]), int(one.labels["links"])) for one in outcome.series}
    return sorted(measured, key=lambda one: (not one[0].startswith("ours"), one[0] == ATTACH, one))


def tables(outcome: Outcome) -> list[Table]:
    rows = [_row(outcome, action, links) for action, links in _actions(outcome)]
    header = ["what is done", "links", "took, ms", "runs", "A sent", "A lost to / from user", "A longest gap, ms"]
    title = "Two flows, both directions, while something is changed"
    remark = "Lost and sent are sums over all runs, the others medians; bytes above the limit are the worst run."
    return [Table(title, [*header, "B above its limit to / from user, kB"], rows, remark)]


def _row(outcome: Outcome, action: str, links: int) -> list[str]:
    def cell(what: str, how: Callable[[list[float]], float], scale: float = 1) -> str:
        found = [outcome.find(action=action, links=links, what=what, direction=one) for one in DIRECTIONS]
        return " / ".join(figure(how(one[0].samples) * scale) if one else NOTHING for one in found)

    took = outcome.find(action=action, links=links, what="took")[0]
    is_limited = action not in (ATTACH, wondershaper.SCHEME)
    sent = sum(sum(one.samples) for one in outcome.find(action=action, links=links, what="sent"))
    gaps = [outcome.median(action=action, links=links, what="longest gap", direction=one) or 0 for one in DIRECTIONS]
    return [
        action,
        str(links),
        figure(took.median * 1000),
        str(len(took.samples)),
        f"{sent:,.0f}",
        cell("lost", sum),
        figure(max(gaps)),
        cell("too much", max, 1e-3) if is_limited else "has no limit",
    ]


def plots(outcome: Outcome) -> list[Plot]:
    bars = {}
    for action, links in _actions(outcome):
        lost = sum(sum(one.samples) for one in outcome.find(action=action, links=links, what="lost"))
        runs = len(outcome.find(action=action, links=links, what="took")[0].samples)
        bars[f"{action} ({links} links)"] = lost / runs
    title = "Packets that a bystander loses by one change"
    return [Plot("hitless", title, "packets per change, mean of all runs", bars=bars)] if bars else []
