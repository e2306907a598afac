"""The targets of the limiter, and what was measured: target, figure, held or not.

A target is judged from what one run measured, at the largest size that it measured; one whose suite did not run is left
out. The arithmetic is here so that the table cannot say anything else than the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lab.bench.core import Outcome
from lab.bench.report import Table, figure
from lab.bench.suites import (
    accuracy,
    datagrams,
    document,
    fairness,
    faults,
    hitless,
    install,
    packet,
    save,
    service,
    total,
    usage,
)
from lab.bench.wires import DIRECTIONS

INSTALL_S, INSTALL_FACTOR = 3.0, 1.4
MEMORY_KB = 10.0
CHANGE_MS, DOCUMENT_CPU_MS = 2.0, 150.0
NO_OP_FACTOR, NO_OP_MS = 2.0, 50.0
NOBODY_NS, FLOODED_FACTOR = 120.0, 1.05
HOT_FACTOR, DIRECTIONS_FACTOR = 1.0, 1.1
LONG_RUN_TOLERANCE = 0.002
DATAGRAM_SHARE = 0.99
JAIN = {500: 0.9, 5_000: 0.98}
DELAY_MS = 500.0
SHARE_TOLERANCE, LARGE_UNDER_CAP = 0.03, 0.97
REPAIR_S = 1.0
POLLS_FACTOR = 5.0
INGEST_PROCESSORS, PAGE_MS, ROW_BYTES = 0.5, 50.0, 110.0


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
        install.NAME: _install,
        document.NAME: _document,
        packet.NAME: _packet,
        hitless.NAME: _hitless,
        accuracy.NAME: _accuracy,
        datagrams.NAME: _datagrams,
        fairness.NAME: _fairness,
        total.NAME: _total,
        faults.NAME: _faults,
        save.NAME: _save,
        service.NAME: _service,
        usage.NAME: _usage,
    }
    return [verdict for name, judge in judges.items() if name in by_name for verdict in judge(by_name[name])]


def at_most(target: str, ours: float | None, other: float | None, factor: float, unit: str) -> Iterator[Verdict]:
    """Ours is at most `factor` times the other; nothing where one of them was not measured."""
    if ours is not None and other:
        measured = f"{ours / other:.2f}x ({figure(ours)} to {figure(other)} {unit})"
        yield Verdict(target, measured, ours / other <= factor)


# --- the engine -------------------------------------------------------------------------------------------------


def _install(outcome: Outcome) -> Iterator[Verdict]:
    sizes = sorted(int(one) for one in outcome.values("size", what=install.INSTALL, variant=install.OURS))
    for size in sizes[-1:]:
        ours, kernel = (_ms(outcome, install.INSTALL, size, variant) for variant in (install.OURS, install.KERNEL))
        if ours is not None:
            target = f"install {size} links, both directions: <= {INSTALL_S:g} s"
            yield Verdict(target, f"{figure(ours / 1000)} s", ours <= INSTALL_S * 1000)
        target = f"the same over the kernel's own time: <= {INSTALL_FACTOR:g}x"
        for verdict in at_most(target, ours, kernel, INSTALL_FACTOR, "ms"):
            yield replace(verdict, measured=verdict.measured + _cpu_ratio(outcome, install.INSTALL, size))
        yield from _memory(outcome, size)
        yield from _change(outcome, size)
        yield from _no_op(outcome, size)


def _cpu_ratio(outcome: Outcome, what: str, size: int) -> str:
    """CPU time beside: on a busy machine everybody waits longer, but works hardly more."""
    ours, kernel = (
        outcome.median(what=f"{what}{install.CPU}", size=size, variant=one) for one in (install.OURS, install.KERNEL)
    )
    return f"; CPU time {ours / kernel:.2f}x" if ours is not None and kernel else ""


def _ms(outcome: Outcome, what: str, size: int, variant: str) -> float | None:
    seconds = outcome.median(what=what, size=size, variant=variant)
    return None if seconds is None else seconds * 1000


def _memory(outcome: Outcome, size: int) -> Iterator[Verdict]:
    ours = install.memory_per_link(outcome, size, install.OURS)
    if ours is not None:
        target = f"kernel memory per link among {size}, both directions: <= {MEMORY_KB:g} kB"
        yield Verdict(target, f"{figure(ours / 1000)} kB", ours <= MEMORY_KB * 1000)


def _change(outcome: Outcome, size: int) -> Iterator[Verdict]:
    ours = _ms(outcome, install.CHANGE, size, install.OURS)
    dumps = outcome.median(what=install.DUMPED, size=size, variant=install.OURS)
    if ours is not None and dumps is not None:
        target = f"one limit changed among {size}: applied within {CHANGE_MS:g} ms, nothing dumped"
        yield Verdict(target, f"{figure(ours)} ms, {dumps:g} dumps", ours <= CHANGE_MS and dumps == 0)


def _no_op(outcome: Outcome, size: int) -> Iterator[Verdict]:
    ours, kernel = (_ms(outcome, install.NO_OP, size, one) for one in (install.OURS, install.KERNEL))
    writes = outcome.median(what=install.WRITES, size=size, variant=install.OURS)
    if ours is None or kernel is None or writes is None:
        return
    yield Verdict(
        f"cycle without change, {size} links: 0 writes, <= {NO_OP_FACTOR:g}x of the kernel's dump, <= {NO_OP_MS:g} ms",
        f"{writes:g} writes, {ours / kernel:.2f}x ({figure(ours)} to {figure(kernel)} ms)"
        f"{_cpu_ratio(outcome, install.NO_OP, size)}",
        writes == 0 and ours <= min(NO_OP_FACTOR * kernel, NO_OP_MS),
    )


def _document(outcome: Outcome) -> Iterator[Verdict]:
    if (found := document.cpu_ms(outcome)) is not None:
        size, cpu_ms = found
        target = f"one limit changed among {size}: the whole document costs <= {DOCUMENT_CPU_MS:g} ms of CPU"
        yield Verdict(target, f"{figure(cpu_ms)} ms", cpu_ms <= DOCUMENT_CPU_MS)


def _packet(outcome: Outcome) -> Iterator[Verdict]:
    sizes = sorted(int(one) for one in outcome.values("size", family=4, variant=packet.OURS, traffic=packet.HOT))
    for size in sizes[-1:]:
        yield from _nobody(outcome, size)
        yield from _limited(outcome, sizes[0], size)


def _nobody(outcome: Outcome, size: int) -> Iterator[Verdict]:
    for way in DIRECTIONS:
        ours, instant = (packet.cost(outcome, one, packet.NOBODY, way, size) for one in (packet.OURS, packet.INSTANT))
        if ours is not None and instant is not None:
            target = f"nobody's packet {way}, {size} links: <= {NOBODY_NS:g} ns above a filter that answers at once"
            measured = f"{ours - instant:+.0f} ns ({figure(ours)} to {figure(instant)})"
            yield Verdict(target, measured, ours - instant <= NOBODY_NS)
        if (ratio := packet.flooded_ratio(outcome, packet.OURS, way)) is not None:
            control = packet.flooded_ratio(outcome, packet.INSTANT, way) or 0.0
            target = f"nobody's packet {way} while a limited link is flooded: <= {FLOODED_FACTOR:g}x"
            measured = f"{ratio:.3f}x (with the filter that answers at once {control:.3f}x)"
            yield Verdict(target, measured, ratio <= FLOODED_FACTOR)


def _limited(outcome: Outcome, smallest: int, size: int) -> Iterator[Verdict]:
    for way in DIRECTIONS:
        ours, thesis = (packet.cost(outcome, one, packet.HOT, way, smallest) for one in (packet.OURS, packet.THESIS))
        target = f"limited packet {way}, hot, links: {smallest}: <= {HOT_FACTOR:g}x of the thesis' sequence"
        yield from at_most(target, ours, thesis, HOT_FACTOR, "ns")
    to_user, from_user = (packet.cost(outcome, packet.OURS, packet.RANDOM, way, size) for way in DIRECTIONS)
    target = f"limited packet to the user over one from the user, random order: <= {DIRECTIONS_FACTOR:g}x"
    yield from at_most(target, to_user, from_user, DIRECTIONS_FACTOR, "ns")


# --- traffic ----------------------------------------------------------------------------------------------------


def _hitless(outcome: Outcome) -> Iterator[Verdict]:
    lost, packets = hitless.lost_by_changes(outcome)
    if packets:
        by_clsact, of_them = hitless.lost_by_changes(outcome, of_clsact=True)
        beside = f"; when the clsact comes or goes {by_clsact:.0f} of {of_them:,.0f}" if of_them else ""
        target = "changes under traffic: 0 packets of others lost"
        yield Verdict(target, f"{lost:.0f} of {packets:,.0f} packets lost{beside}", lost == 0)


def _accuracy(outcome: Outcome) -> Iterator[Verdict]:
    for kbits, tolerance in ((accuracy.SLOW, 0.005), ((*accuracy.MIDDLE, *accuracy.FAST), LONG_RUN_TOLERANCE)):
        if found := accuracy.deviations(outcome, kbits):
            rates = f"{min(kbits):,} to {max(kbits):,} kbit/s"
            yield _worst_deviation(f"slope, {rates}, both directions: within {tolerance:.1%}", found, tolerance)
    if found := accuracy.gigabit_deviations(outcome):
        yield _worst_deviation(f"1 Gbit/s in super-packets: within {LONG_RUN_TOLERANCE:.1%}", found, LONG_RUN_TOLERANCE)
    if shares := accuracy.window_shares(outcome):
        target = "any window T: bytes <= rate*T + burst + room + two frames"
        yield Verdict(target, f"at most {max(shares):.3f} of what may pass above rate*T", max(shares) <= 1)


def _worst_deviation(target: str, found: Mapping[str, float], tolerance: float) -> Verdict:
    where = max(found, key=lambda one: abs(found[one]))
    return Verdict(target, f"worst {found[where]:+.3%} ({where})", abs(found[where]) <= tolerance)


def _datagrams(outcome: Outcome) -> Iterator[Verdict]:
    if (least := datagrams.worst(outcome, "share")) is not None:
        target = f"datagrams of 1000 to 65 507 B, fourfold overload: >= {DATAGRAM_SHARE:.0%} of what headers leave"
        yield Verdict(target, f"least {least[0]:.2%} ({least[1]})", least[0] >= DATAGRAM_SHARE)
    if (longest := datagrams.worst(outcome, "gap share")) is not None:
        target = "the same: no gap above two datagram times + 100 ms"
        yield Verdict(target, f"at most {longest[0]:.2f} of that ({longest[1]})", longest[0] <= 1)


def _fairness(outcome: Outcome) -> Iterator[Verdict]:
    for kbit, least in JAIN.items():
        jain, delay = fairness.worst_jain(outcome, kbit), fairness.worst_delay_ms(outcome, kbit)
        if jain is None or delay is None:
            continue
        is_fair = jain >= least
        if kbit == min(JAIN):
            target = f"8 cubic flows at {kbit} kbit/s: Jain >= {least:g}, median delay <= {DELAY_MS / 1000:g} s"
            yield Verdict(target, f"{jain:.3f}, {delay:.0f} ms", is_fair and delay <= DELAY_MS)
        else:
            yield Verdict(f"8 cubic flows at {kbit} kbit/s: Jain >= {least:g}", f"{jain:.3f}", is_fair)
    lost, sent = fairness.lost_of_bursts(outcome)
    if sent:
        target = "ten frames at once on an idle link, 32 kbit/s to 5 Mbit/s: none lost"
        yield Verdict(target, f"{lost:.0f} of {sent:.0f} lost", lost == 0)


def _total(outcome: Outcome) -> Iterator[Verdict]:
    if (off := total.worst_off(outcome)) is not None:
        target = f"2, 3, 10 links under a cap, some silent: each within {SHARE_TOLERANCE:.0%} of its share"
        yield Verdict(target, f"worst {off[0]:+.1%} ({off[1]})", abs(off[0]) <= SHARE_TOLERANCE)
    if (large := total.worst(outcome, "large")) is not None:
        target = f"datagrams of 10 000 B under the cap: >= {LARGE_UNDER_CAP:.0%} of what headers leave of the share"
        yield Verdict(target, f"least {large:.1%}", large >= LARGE_UNDER_CAP)
    if (together := total.worst(outcome, "all")) is not None:
        target = f"all links together, heartbeats counted: within {SHARE_TOLERANCE:.0%} of the cap"
        yield Verdict(target, f"at most {together:.1%} of it", together <= 1 + SHARE_TOLERANCE)


# --- faults and the service -------------------------------------------------------------------------------------


def _faults(outcome: Outcome) -> Iterator[Verdict]:
    slowest_s = faults.slowest_s(outcome)
    if slowest_s is not None:
        count = len(outcome.values("fault", what="healed"))
        measured = f"the slowest of {count} faults: {figure(slowest_s)} s"
        yield Verdict(f"drift repaired or reported: < {REPAIR_S:g} s", measured, slowest_s < REPAIR_S)


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


def _usage(outcome: Outcome) -> Iterator[Verdict]:
    if measured := usage.sizes(outcome):
        largest = max(measured)
        busy = usage.processors(outcome, largest)
        target = f"usage of {usage.LARGEST:,} links into 5-minute rows: < {INGEST_PROCESSORS:g} of one processor"
        whole = f"; from the batches on {sum(busy.values()):.2f}"
        yield Verdict(target, f"{busy['roll up']:.2f}{whole}, extrapolated", busy["roll up"] < INGEST_PROCESSORS)
        if (page := usage.page_ms(outcome, largest, 7)) is not None:
            target = f"a link's page of a week in 5-minute rows: < {PAGE_MS:g} ms"
            yield Verdict(target, f"{figure(page)} ms", page < PAGE_MS)
    if (size := usage.row_bytes(outcome)) is not None:
        target = f"a 5-minute row with its index: <= {ROW_BYTES:g} bytes"
        yield Verdict(target, f"{figure(size)} bytes", size <= ROW_BYTES)
