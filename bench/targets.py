"""The targets that the engine was built for, and what was measured: target, figure, held or not.

A target is judged from what one run measured, at the largest size that it measured; one whose suite did not run is left
out. The arithmetic is here so that the table cannot say anything else than the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bench.core import Label, Outcome
from bench.report import Table, figure
from bench.suites import accuracy, faults, heartbeats, hitless, install, packet, save, service
from bench.wires import OURS

HOT_FACTOR, RANDOM_FACTOR, INSTALL_FACTOR, NO_OP_FACTOR = 1.10, 1.25, 1.3, 2.0
CHANGE_MS = 5.0
LONG_RUN_TOLERANCE = 0.01
JUDGED = {packet.NAME, install.NAME, hitless.NAME, accuracy.NAME, heartbeats.NAME, faults.NAME}
REPAIR_S = 1.0
POLLS_FACTOR = 5.0


@dataclass(frozen=True)
class Verdict:
    """One line of the table."""

    target: str
    measured: str
    is_held: bool


def table(outcomes: Sequence[Outcome]) -> Table:
    rows = [[one.target, one.measured, "yes" if one.is_held else "**no**"] for one in verdicts(outcomes)]
    return Table("Targets", ["target", "measured (medians)", "held?"], rows)


def verdicts(outcomes: Sequence[Outcome]) -> list[Verdict]:
    """In the order of the targets."""
    by_name = {one.suite: one for one in outcomes}
    judges: Mapping[str, Callable[[Outcome], Iterator[Verdict]]] = {
        packet.NAME: _packet,
        install.NAME: _install,
        hitless.NAME: _hitless,
        accuracy.NAME: _accuracy,
        heartbeats.NAME: _heartbeats,
        faults.NAME: _faults,
        save.NAME: _save,
        service.NAME: _service,
    }
    return [verdict for name, judge in judges.items() if name in by_name for verdict in judge(by_name[name])]


def ratio_verdict(target: str, ours: float, other: float, factor: float, unit: str, *, scale: float = 1) -> Verdict:
    """At most `factor` times the other."""
    ratio = ours / other
    measured = f"{ratio:.2f}x ({figure(ours * scale)} to {figure(other * scale)} {unit})"
    return Verdict(target, measured, ratio <= factor)


def _packet(outcome: Outcome) -> Iterator[Verdict]:
    for traffic, factor in (("hot", HOT_FACTOR), ("random", RANDOM_FACTOR)):
        sizes = [int(one) for one in outcome.values("size", family=4, traffic=traffic, variant=packet.OURS)]
        if not sizes:
            continue
        where: dict[str, Label] = {"family": 4, "traffic": traffic, "size": max(sizes)}
        ours = outcome.median(variant=packet.OURS, **where)
        floor = outcome.median(variant=packet.FLOOR, **where)
        if ours is not None and floor is not None:
            target = f"per-packet cost with {max(sizes)} links, {traffic}: <= {factor:.2f}x of no filter"
            verdict = ratio_verdict(target, ours, floor, factor, "ns")
            given = packet.given(outcome, traffic, 4, max(sizes))
            beside = "" if given is None else f"; {ours / given:.2f}x of the same classes without any lookup"
            yield replace(verdict, measured=verdict.measured + beside)


def _install(outcome: Outcome) -> Iterator[Verdict]:
    sizes = sorted(int(one) for one in outcome.values("size", what=install.INSTALL, variant=install.OURS))
    for size in [one for one in sizes if one >= 1000] or sizes[-1:]:
        yield from _ratio(
            outcome,
            install.INSTALL,
            size,
            f"install {size} links from nothing, both directions: <= {INSTALL_FACTOR}x of the kernel's own time",
            INSTALL_FACTOR,
        )
    for size in sizes[-1:]:
        writes = outcome.median(what="writes with nothing to do", size=size, variant=install.OURS)
        for verdict in _ratio(
            outcome,
            install.NO_OP,
            size,
            f"no-op cycle, {size} links: 0 writes, <= {NO_OP_FACTOR:g}x of the kernel's dump time",
            NO_OP_FACTOR,
        ):
            yield Verdict(verdict.target, f"{writes:g} writes, {verdict.measured}", verdict.is_held and writes == 0)
        yield from _change(outcome, size)


def _ratio(outcome: Outcome, what: str, size: int, target: str, factor: float) -> Iterator[Verdict]:
    ours = outcome.median(what=what, size=size, variant=install.OURS)
    kernel = outcome.median(what=what, size=size, variant=install.KERNEL)
    if ours is None or kernel is None:
        return
    verdict = ratio_verdict(target, ours, kernel, factor, "ms", scale=1000)
    applying = outcome.median(what=what, size=size, variant=install.APPLY)
    beside = "" if applying is None else f"; applying alone {applying / kernel:.2f}x"
    yield replace(verdict, measured=verdict.measured + beside)


def _change(outcome: Outcome, size: int) -> Iterator[Verdict]:
    """From the begin of the cycle until the kernel has the new limit: the look at the kernel comes first."""
    until = outcome.median(what=install.CHANGE, size=size, variant=install.UNTIL)
    apply = outcome.median(what=install.CHANGE, size=size, variant=install.APPLY)
    sends = outcome.median(what="change sends", size=size, variant=install.OURS)
    if until is None or apply is None or sends is None:
        return
    yield Verdict(
        f"one limit changed among {size}: one send per direction, < {CHANGE_MS:g} ms in the agent",
        f"{sends:g} sends; {figure(until * 1000)} ms until the kernel has it, {figure(apply * 1000)} ms of it applying",
        sends <= 2 and until * 1000 < CHANGE_MS,
    )


def _hitless(outcome: Outcome) -> Iterator[Verdict]:
    lost, packets = hitless.lost_by_changes(outcome)
    if packets:
        target = "changes under traffic: 0 packets of others lost, in place"
        yield Verdict(target, f"{lost:.0f} of {packets:,.0f} packets lost", lost == 0)


def _accuracy(outcome: Outcome) -> Iterator[Verdict]:
    deviations = accuracy.long_run_deviations(outcome)
    if deviations:
        worst = max(deviations, key=abs)
        target = f"accuracy, UDP, both directions: long run within {LONG_RUN_TOLERANCE:.0%}"
        yield Verdict(target, f"worst {worst:+.2%}", abs(worst) <= LONG_RUN_TOLERANCE)
    shares = accuracy.window_shares(outcome)
    if shares:
        target = "any window T: bytes <= rate*T + both bursts + 2 frames"
        yield Verdict(target, f"at most {max(shares):.3f} of that", max(shares) <= 1)


def _heartbeats(outcome: Outcome) -> Iterator[Verdict]:
    due, arrived, down = heartbeats.totals(outcome, OURS)
    if due:
        target = f"heartbeats at {heartbeats.OVERLOAD}-fold overload: all arrive, no link is taken down"
        yield Verdict(target, f"{arrived:.0f} of {due:.0f}, {down:.0f} times down", arrived >= due and not down)


def _faults(outcome: Outcome) -> Iterator[Verdict]:
    slowest_s = faults.slowest_s(outcome)
    if slowest_s is not None:
        count = len(outcome.values("fault", what="healed"))
        measured = f"the slowest of {count} faults: {figure(slowest_s)} s"
        yield Verdict(f"drift repaired (or reported): < {REPAIR_S:g} s", measured, slowest_s < REPAIR_S)


def _save(outcome: Outcome) -> Iterator[Verdict]:
    for setup in outcome.values("setup", what=save.FROM_REQUEST, variant=save.OURS):
        ours = outcome.median(what=save.FROM_REQUEST, setup=setup, variant=save.OURS)
        stock = outcome.median(what=save.FROM_REQUEST, setup=setup, variant=save.STOCK)
        anew = outcome.median(what=save.ANEW, setup=setup)
        if ours is None or stock is None or anew is None:
            continue
        yield Verdict(
            f"Save to the kernel, {setup}: < {save.TARGET_S:g} s, nothing restarted",
            f"{figure(ours / 1000)} s (polling every 10 s: {figure(stock / 1000)} s); {anew:.0f} made anew",
            ours < save.TARGET_S * 1000 and not anew,
        )


def _service(outcome: Outcome) -> Iterator[Verdict]:
    ratio, writes = service.ratio_to_stock(outcome), service.writes_per_poll(outcome)
    if ratio is not None and writes is not None:
        target = f"polls answered with 304: 0 rows written, >= {POLLS_FACTOR:g}x the stock way per processor"
        yield Verdict(target, f"{writes:g} rows written, {ratio:.1f}x", ratio >= POLLS_FACTOR and writes == 0)
