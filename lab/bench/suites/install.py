"""How long it takes until the kernel has what it should have (installing, one limit changed, nothing to do); memory.

`ours` is a cycle of the engine as its limiter runs it: observe, difference, apply, observe, verify. One limit is
changed by an engine that was told of no other change, so that it dumps nothing. `kernel only` is the same rtnetlink
messages for classes, leaves and devices, packed beforehand and sent in pieces of 64 kB without looking at anything (for
reading: the same questions with answers that nobody parses): what no program can do without. `tc -batch` makes the
same classes and leaves from a prepared file, one process. Both directions always.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from lab.bench import rtnl
from lab.bench.core import Outcome, Scale, Step
from lab.bench.engines import Cycle, Engine, Entry
from lab.bench.peers import tree
from lab.bench.plots import Plot
from lab.bench.report import Verdict, at_most, figure
from lab.bench.world import IFBS, NIC, PREFIX, attachment_point, make_links, sink, tear_down, with_limit
from measuring.netns import Lab, Namespace

NAME = "install"
TITLE = "Installing, changing, looking, memory"
OURS, KERNEL, BATCH = "ours", "kernel only", "tc -batch"
INSTALL, CHANGE, NO_OP, MEMORY = "install from nothing", "change one limit", "nothing to do", "kernel memory"
RESIDENT = "resident memory of the process"
DUMPED = "dumps while one limit changes"
WRITES = "writes with nothing to do"
CPU = ", CPU"
INSTALL_S, INSTALL_FACTOR = 3.0, 1.4
MEMORY_KB = 10.0
CHANGE_MS = 2.0
NO_OP_FACTOR, NO_OP_MS = 2.0, 50.0
KBIT = 2_000
CHANGES = (5_000, KBIT)
KMALLOC, PERCPU, VMALLOC = "kmalloc", "Percpu", "VmallocUsed"  # classes and leaves, their statistics, maps
MEMORY_FIELDS = (KMALLOC, PERCPU, VMALLOC)
RTM_NEWTFILTER = 44  # holds a file descriptor of the engine's process: it cannot be sent again
DEVICES = (NIC, *IFBS)


def steps(scale: Scale) -> list[Step]:
    """Size, repetitions and expected seconds; the kernel is quadratic in classes, so large ones repeat little."""
    full = [(1, 7, 2.0), (10, 7, 4.0), (100, 5, 14.0), (1000, 5, 25.0), (4000, 3, 240.0)]
    sizes = scale.pick(full, [(20, 1, 3.0), (400, 1, 6.0)])
    return [
        Step(f"{size} links ({number} of {times})", seconds / times, partial(_measure, size))
        for size, times, seconds in sizes
        for number in range(1, times + 1)
    ]


# --- one size ---------------------------------------------------------------------------------------------------


def _measure(size: int, outcome: Outcome) -> None:
    """Every variant once, one after the other: to make a class the kernel walks over those of the *whole machine*, so
    that what another host has would be counted as well."""
    round_ = _Round(make_links(size, kbit=KBIT), outcome)
    round_.kernel(*round_.ours())
    round_.batch()


class _Round:
    """A host for each variant, gone before the next one is made."""

    def __init__(self, links: Mapping[int, Entry], outcome: Outcome) -> None:
        self._links, self._outcome = links, outcome
        self._size = len(links)
        number = (self._size + 1) // 2
        self._changed = [with_limit(links, number, kbit) for kbit in CHANGES]
        self._number = number

    def _add(self, value: float, what: str, variant: str, unit: str = "s") -> None:
        self._outcome.add(value, unit, what=what, size=self._size, variant=variant)

    def _cycle(self, cycle: Cycle, what: str, variant: str) -> Cycle:
        self._add(cycle.seconds, what, variant)
        self._add(cycle.cpu_s, f"{what}{CPU}", variant)
        return cycle

    def _remember_memory(self, before: Mapping[str, int], variant: str) -> None:
        grown = {name: now - before[name] for name, now in kernel_bytes().items()}
        for name, value in {**grown, "all": sum(grown.values())}.items():
            self._outcome.add(value, "bytes", what=MEMORY, part=name, size=self._size, variant=variant)

    def ours(self) -> tuple[rtnl.Recording, list[rtnl.Recording]]:
        """What was sent while it installed, and while it changed a limit."""
        with Lab(PREFIX) as lab:
            host = attachment_point(lab)
            before = kernel_bytes()
            with Engine(host) as engine:
                installed = self._cycle(engine.enforce(self._links, is_recorded=True), INSTALL, OURS)
                self._remember_memory(before, OURS)
                changes = [
                    self._cycle(engine.enforce(links, is_settled=True, is_recorded=True), CHANGE, OURS)
                    for links in self._changed
                ]
                for one in changes:
                    self._add(len(recording_of(one).dumps), DUMPED, OURS, "dumps")
                for _ in range(3):
                    looked = self._cycle(engine.enforce(self._links, is_recorded=True), NO_OP, OURS)
                    self._add(looked.writes, WRITES, OURS, "writes")
                self._add(engine.order("memory")["resident"], RESIDENT, OURS, "bytes")
            questions = recording_of(looked)
            self._kernel_alone(host, lambda: rtnl.read_dumps(questions.dumps)[0], NO_OP)
            tear_down(host, *DEVICES)
        return recording_of(installed), [recording_of(one) for one in changes]

    def kernel(self, installed: rtnl.Recording, changes: list[rtnl.Recording]) -> None:
        """The same messages again, and nothing else."""
        with Lab(PREFIX) as lab:
            host = attachment_point(lab)
            self._kernel_alone(host, lambda: rtnl.replay(writes_again(installed)), INSTALL)
            for one in changes:
                if writes := writes_again(one):
                    self._kernel_alone(host, partial(rtnl.replay, writes), CHANGE)
            self._check(host)
            tear_down(host, *DEVICES)

    def _kernel_alone(self, host: Namespace, action: Callable[[], float], what: str) -> None:
        """`action` returns seconds; in a thread of its own, so that its CPU time is its own."""

        def timed() -> tuple[float, float]:
            began = time.thread_time()
            return action(), time.thread_time() - began

        seconds, cpu_s = host.call(timed)
        self._add(seconds, what, KERNEL)
        self._add(cpu_s, f"{what}{CPU}", KERNEL)

    def batch(self) -> None:
        with Lab(PREFIX) as lab:
            host = attachment_point(lab)
            for dev in IFBS:
                sink(host, dev)
            self._add(_batch(host, tree.tree_lines(self._links)), INSTALL, BATCH)
            for links in self._changed:
                lines = list(tree.link_lines(self._number, links[self._number], "change"))
                self._add(_batch(host, lines), CHANGE, BATCH)
            self._check(host)
            tear_down(host, *DEVICES)

    def _check(self, host: Namespace) -> None:
        """Otherwise something else was timed."""
        found = [host.run("tc", "class", "show", "dev", dev, timeout_s=120).count("class htb") for dev in IFBS]
        if min(found) < self._size or found[0] != found[1]:
            raise RuntimeError(f"{host.short} has {found} classes for {self._size} links")


def kernel_bytes() -> dict[str, int]:
    """These accounts of the whole machine, in bytes. Of the slabs the objects in use of the general caches: those of
    files and directories move with everything else on the machine."""
    found = {KMALLOC: 0}
    for line in Path("/proc/slabinfo").read_text(encoding="ascii").splitlines():
        if line.startswith("kmalloc-"):
            _, in_use, _, size_bytes, *_ = line.split()
            found[KMALLOC] += int(in_use) * int(size_bytes)
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        name, _, rest = line.partition(":")
        if name in MEMORY_FIELDS:
            found[name] = int(rest.split()[0]) * 1024
    return found


def recording_of(cycle: Cycle) -> rtnl.Recording:
    return rtnl.Recording(sends=list(cycle.sends))


def writes_again(recording: rtnl.Recording) -> list[rtnl.Message]:
    """Without filters: their program is a file descriptor of another process."""
    return [one for one in recording.writes if one.kind != RTM_NEWTFILTER]


def _batch(host: Namespace, lines: list[str]) -> float:
    text = "\n".join(lines) + "\n"
    began = time.perf_counter()
    host.run("tc", "-batch", "-", stdin=text, timeout_s=180)
    return time.perf_counter() - began


# --- what came out ----------------------------------------------------------------------------------------------


def memory_per_link(outcome: Outcome, size: int, variant: str, part: str = "all") -> float | None:
    """Bytes of kernel memory for each link, both directions; None where it was not measured."""
    found = outcome.median(what=MEMORY, part=part, size=size, variant=variant)
    return None if found is None else found / size


def verdicts(outcome: Outcome) -> Iterator[Verdict]:
    sizes = sorted(int(one) for one in outcome.values("size", what=INSTALL, variant=OURS))
    for size in sizes[-1:]:
        ours, kernel = (_ms(outcome, INSTALL, size, variant) for variant in (OURS, KERNEL))
        if ours is not None:
            target = f"install {size} links, both directions: <= {INSTALL_S:g} s"
            yield Verdict(target, f"{figure(ours / 1000)} s", ours <= INSTALL_S * 1000)
        target = f"the same over the kernel's own time: <= {INSTALL_FACTOR:g}x"
        for verdict in at_most(target, ours, kernel, INSTALL_FACTOR, "ms"):
            yield replace(verdict, measured=verdict.measured + _cpu_ratio(outcome, INSTALL, size))
        yield from _memory(outcome, size)
        yield from _change(outcome, size)
        yield from _no_op(outcome, size)


def _cpu_ratio(outcome: Outcome, what: str, size: int) -> str:
    """CPU time beside: on a busy machine everybody waits longer, but works hardly more."""
    ours, kernel = (outcome.median(what=f"{what}{CPU}", size=size, variant=one) for one in (OURS, KERNEL))
    return f"; CPU time {ours / kernel:.2f}x" if ours is not None and kernel else ""


def _ms(outcome: Outcome, what: str, size: int, variant: str) -> float | None:
    seconds = outcome.median(what=what, size=size, variant=variant)
    return None if seconds is None else seconds * 1000


def _memory(outcome: Outcome, size: int) -> Iterator[Verdict]:
    ours = memory_per_link(outcome, size, OURS)
    if ours is not None:
        target = f"kernel memory per link among {size}, both directions: <= {MEMORY_KB:g} kB"
        yield Verdict(target, f"{figure(ours / 1000)} kB", ours <= MEMORY_KB * 1000)


def _change(outcome: Outcome, size: int) -> Iterator[Verdict]:
    ours = _ms(outcome, CHANGE, size, OURS)
    dumps = outcome.median(what=DUMPED, size=size, variant=OURS)
    if ours is not None and dumps is not None:
        target = f"one limit changed among {size}: applied within {CHANGE_MS:g} ms, nothing dumped"
        yield Verdict(target, f"{figure(ours)} ms, {dumps:g} dumps", ours <= CHANGE_MS and dumps == 0)


def _no_op(outcome: Outcome, size: int) -> Iterator[Verdict]:
    ours, kernel = (_ms(outcome, NO_OP, size, one) for one in (OURS, KERNEL))
    writes = outcome.median(what=WRITES, size=size, variant=OURS)
    if ours is None or kernel is None or writes is None:
        return
    yield Verdict(
        f"cycle without change, {size} links: 0 writes, <= {NO_OP_FACTOR:g}x of the kernel's dump, <= {NO_OP_MS:g} ms",
        f"{writes:g} writes, {ours / kernel:.2f}x ({figure(ours)} to {figure(kernel)} ms)"
        f"{_cpu_ratio(outcome, NO_OP, size)}",
        writes == 0 and ours <= min(NO_OP_FACTOR * kernel, NO_OP_MS),
    )


def plots(outcome: Outcome) -> list[Plot]:
    lines: dict[str, list[tuple[float, float]]] = {}
    for variant in (OURS, KERNEL, BATCH):
        series = outcome.find(what=INSTALL, variant=variant)
        if series:
            lines[variant] = sorted((float(one.labels["size"]), one.median * 1000) for one in series)
    title = "Installing all links from nothing, both directions"
    return [Plot("install", title, "ms", "links", lines=lines)]
