"""How long it takes until the kernel has what it should have: installing, changing one limit, looking, reading back.

`ours` is the whole cycle of a running agent's engine, in this process: look, plan, apply, look again. An agent that was
just started knows nothing from the cycle before. `kernel only` is the same
messages, packed beforehand and sent in pieces of 64 kB (or, for reading, the same questions with answers that nobody
parses): what no program can do without. `tc -batch` makes the same objects from a prepared file, one process; `tc` one
by one starts a process per object, as the thesis' program does. Both directions always.
"""

from __future__ import annotations

import json
import resource
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from bandwidth_config import LinkInfo
from bench import rtnl
from bench.core import Label, Outcome, Scale, Series, Step, percentile
from bench.peers import flat, retell
from bench.plots import Plot
from bench.report import NOTHING, Table, figure, pivot
from bench.world import (
    IFB,
    NIC,
    PREFIX,
    RunningEngine,
    attachment_point,
    enforce,
    make_links,
    sink,
    tear_down,
    with_limit,
)
from measuring.netns import Lab, Namespace

NAME = "install"
TITLE = "Installing, changing, looking"
OURS, KERNEL, BATCH, ONE_BY_ONE, SHOW = "ours", "kernel only", "tc -batch", "tc one by one", "tc show"
STARTED = "ours, just started"
UNTIL, APPLY = "ours, until the kernel has it", "ours, applying alone"
INSTALL, CHANGE, NO_OP, READ = "install from nothing", "change one limit", "nothing to do", "read back"
WAIT, IDLE = "wait", "idle kernel"
CPU = ", CPU"
KBIT = 2_000
CHANGES = (5_000, KBIT)
MAX_ONE_BY_ONE = 100
DEVICES = (NIC, IFB)


def steps(scale: Scale) -> list[Step]:
    """Size, repetitions and expected seconds; the kernel is quadratic in classes, so large ones repeat little."""
    full = [(1, 7, 2.0), (10, 7, 4.0), (100, 5, 12.0), (1000, 5, 20.0), (4000, 3, 120.0)]
    sizes = scale.pick(full, [(1, 2, 1.0), (20, 2, 3.0)])
    crowd, crowd_s = scale.pick((4000, 60.0), (100, 4.0))
    return [
        *(Step(f"{size} links", seconds, partial(_measure, size, times)) for size, times, seconds in sizes),
        Step(f"who waits while {crowd} links are installed", crowd_s, partial(_measure_waiting, crowd)),
    ]


# --- one size ---------------------------------------------------------------------------------------------------


def _measure(size: int, repetitions: int, outcome: Outcome) -> None:
    links = make_links(size, kbit=KBIT)
    for _ in range(repetitions):
        with Lab(PREFIX) as lab:
            _Round(lab, links, outcome).run()


class _Round:
    """Every variant once, one after the other: to make a class the kernel walks over those of the *whole machine*, so
    that what another host has would be counted as well."""

    def __init__(self, lab: Lab, links: Mapping[int, LinkInfo], outcome: Outcome) -> None:
        self._lab, self._links, self._outcome = lab, links, outcome
        self._size = len(links)
        self._number = (self._size + 1) // 2  # the link that changes

    def run(self) -> None:
        ours = attachment_point(self._lab, "ours")
        with rtnl.Recorder() as recorder, RunningEngine(ours) as engine:
            installed = self._install_ours(recorder, engine)
            lines = retell.retell(ours, DEVICES)
            changes = [self._change_ours(recorder, engine, kbit) for kbit in CHANGES]
            self._look(recorder, engine, ours)
        tear_down(ours, *DEVICES)
        self._replay(installed, changes, len(lines))
        self._batch(lines)
        if self._size <= MAX_ONE_BY_ONE:
            host = self._host_with_ifb("single")
            self._add(_one_by_one(host, lines), INSTALL, ONE_BY_ONE)
            tear_down(host, *DEVICES)

    def _add(self, seconds: float, what: str, variant: str) -> None:
        self._outcome.add(seconds, "s", what=what, size=self._size, variant=variant)

    @contextmanager
    def _cpu(self, what: str, variant: str) -> Iterator[None]:
        """Note the CPU time of this process and of those that it starts, in the kernel and outside: on a busy machine
        everybody waits longer, but works hardly more."""
        began = _cpu_s()
        yield
        self._add(_cpu_s() - began, f"{what}{CPU}", variant)

    # --- ours ---

    def _install_ours(self, recorder: rtnl.Recorder, engine: RunningEngine) -> rtnl.Recording:
        record = self._cycle(recorder, engine, self._links, INSTALL)
        self._outcome.add(record.write_sends, "sends", what="install sends", size=self._size, variant=OURS)
        return record

    def _change_ours(self, recorder: rtnl.Recorder, engine: RunningEngine, kbit: int) -> rtnl.Recording:
        """The link in the middle, up and down again, by an agent that heard of no other change."""
        links = with_limit(self._links, self._number, kbit)
        record = self._cycle(recorder, engine, links, CHANGE, is_settled=True)
        self._outcome.add(record.write_sends, "sends", what="change sends", size=self._size, variant=OURS)
        return record

    def _cycle(
        self,
        recorder: rtnl.Recorder,
        engine: RunningEngine,
        links: Mapping[int, LinkInfo],
        what: str,
        *,
        is_settled: bool = False,
    ) -> rtnl.Recording:
        record = recorder.start()
        with self._cpu(what, OURS):
            began = time.perf_counter()
            engine.enforce(links, is_settled=is_settled)
            ended = time.perf_counter()
        self._add(ended - began, what, OURS)
        self._add(record.last_write_s - began, what, UNTIL)
        self._add(record.last_write_s - record.first_write_s, what, APPLY)
        return record

    def _look(self, recorder: rtnl.Recorder, engine: RunningEngine, host: Namespace) -> None:
        """By the agent that runs, and by one that was just started and finds everything in place."""
        with RunningEngine(host) as fresh:
            for variant, one in ((OURS, engine), (OURS, engine), (OURS, engine), (STARTED, fresh)):
                record = recorder.start()
                with self._cpu(NO_OP, variant):
                    began = time.perf_counter()
                    result = one.enforce(self._links)
                    self._add(time.perf_counter() - began, NO_OP, variant)
                writes: dict[str, Label] = {"what": "writes with nothing to do", "size": self._size, "variant": variant}
                self._outcome.add(result.writes, "writes", **writes)
        self._read_back(record, engine, host)

    def _read_back(self, record: rtnl.Recording, engine: RunningEngine, host: Namespace) -> None:
        with self._cpu(NO_OP, KERNEL):
            seconds, size = host.call(lambda: rtnl.read_dumps(record.dumps))
        for what in (NO_OP, READ):
            self._add(seconds, what, KERNEL)
        self._outcome.add(size, "bytes", what="dump bytes", size=self._size, variant=KERNEL)
        began = time.perf_counter()
        states = engine.read_links(self._links)
        self._add(time.perf_counter() - began, READ, OURS)
        if sum(one.state == "enforced" for one in states) != self._size:
            raise RuntimeError("not every link is enforced")
        self._add(_show_all(host), READ, SHOW)

    # --- the others ---

    def _replay(self, installed: rtnl.Recording, changes: list[rtnl.Recording], objects: int) -> None:
        host = attachment_point(self._lab, "kernel")  # the messages make the IFB
        with self._cpu(INSTALL, KERNEL):
            self._add(host.call(lambda: rtnl.replay(installed.writes)), INSTALL, KERNEL)
        for record in changes:
            with self._cpu(CHANGE, KERNEL):
                self._add(host.call(partial(rtnl.replay, record.writes)), CHANGE, KERNEL)
        self._check(host, objects)
        tear_down(host, *DEVICES)

    def _batch(self, lines: list[str]) -> None:
        host = self._host_with_ifb("batch")
        with self._cpu(INSTALL, BATCH):
            self._add(_batch(host, lines), INSTALL, BATCH)
        for kbit in CHANGES:
            changed = [flat.change_of_ours(dev, major, self._number, kbit) for dev, major in ((NIC, 1), (IFB, 3))]
            self._add(_batch(host, [line for one in changed for line in one]), CHANGE, BATCH)
        self._check(host, len(lines))
        tear_down(host, *DEVICES)

    def _host_with_ifb(self, short: str) -> Namespace:
        host = attachment_point(self._lab, short)
        sink(host, IFB)
        return host

    def _check(self, host: Namespace, objects: int) -> None:
        """Otherwise something else was timed."""
        if (found := len(retell.retell(host, DEVICES))) != objects:
            raise RuntimeError(f"{host.short} has {found} objects, ours {objects}")


def _cpu_s() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _batch(host: Namespace, lines: list[str]) -> float:
    text = "\n".join(lines) + "\n"
    began = time.perf_counter()
    host.run("tc", "-batch", "-", stdin=text, timeout_s=180)
    return time.perf_counter() - began


def _one_by_one(host: Namespace, lines: list[str]) -> float:
    """One process per object, started in the namespace by a shell: what `subprocess` or a script costs at least."""
    script = "set -e\n" + "\n".join(f"tc {line}" for line in lines)
    began = time.perf_counter()
    host.run("sh", "-s", stdin=script, timeout_s=180)
    return time.perf_counter() - began


def _show_all(host: Namespace) -> float:
    """Everything that the engine reads, printed by iproute2."""
    lines = [f"{what} show dev {dev}" for dev in DEVICES for what in ("qdisc", "class", "filter")]
    return _batch(host, [*lines, f"filter show dev {NIC} ingress"])


# --- others who want the kernel's lock --------------------------------------------------------------------------


def _measure_waiting(size: int, outcome: Outcome) -> None:
    links = make_links(size, kbit=KBIT)
    with Lab(PREFIX) as lab:
        other = lab.namespace("other")
        _while_waiting(other, lambda: time.sleep(3.0), IDLE, size, outcome)
        ours = attachment_point(lab, "ours")
        _while_waiting(other, lambda: enforce(ours, links), OURS, size, outcome)
        lines = retell.retell(ours, DEVICES)
        tear_down(ours, *DEVICES)
        batched = attachment_point(lab, "batch")
        sink(batched, IFB)
        _while_waiting(other, lambda: _batch(batched, lines), BATCH, size, outcome)
        tear_down(batched, *DEVICES)


def _while_waiting(other: Namespace, action: Callable[[], object], variant: str, size: int, outcome: Outcome) -> None:
    waiter = other.python("bench.waiter", stdin=subprocess.PIPE)
    if waiter.stdout is None or not select.select([waiter.stdout], [], [], 10.0)[0]:
        raise RuntimeError("the waiter did not start")
    waiter.stdout.readline()
    action()
    said, complaints = waiter.communicate(timeout=30)
    if waiter.returncode != 0:
        raise RuntimeError(f"the waiter ended with {waiter.returncode}: {complaints.strip()}")
    for waited_us in json.loads(said):
        outcome.add(waited_us / 1000, "ms", what=WAIT, size=size, variant=variant)


# --- what came out ----------------------------------------------------------------------------------------------

COLUMNS = {
    INSTALL: (OURS, UNTIL, APPLY, KERNEL, BATCH, ONE_BY_ONE),
    CHANGE: (OURS, UNTIL, APPLY, KERNEL, BATCH),
    NO_OP: (OURS, STARTED, KERNEL),
    READ: (OURS, KERNEL, SHOW),
}


def _ms(one: Series) -> str:
    return figure(one.median * 1000)


def tables(outcome: Outcome) -> list[Table]:
    sizes = sorted({int(one) for one in outcome.values("size", variant=OURS, what=INSTALL)})
    found = [
        Table(
            f"{what.capitalize()}, both directions, ms",
            ["links", *columns],
            pivot(outcome, "size", "variant", row_order=sizes, column_order=columns, shown=_ms, what=what),
        )
        for what, columns in COLUMNS.items()
    ]
    columns = (OURS, STARTED, KERNEL, BATCH)
    rows = [
        [f"{what}, {size}", *(_cpu_cell(outcome, what, size, one) for one in columns)]
        for what in (INSTALL, CHANGE, NO_OP)
        for size in sizes
    ]
    found.append(Table("CPU time of the same, in the kernel and outside, ms", ["what, links", *columns], rows))
    return [*found, _waiting_table(outcome)]


def _cpu_cell(outcome: Outcome, what: str, size: int, variant: str) -> str:
    seconds = outcome.median(what=f"{what}{CPU}", size=size, variant=variant)
    return NOTHING if seconds is None else figure(seconds * 1000)


def _waiting_table(outcome: Outcome) -> Table:
    rows = [
        [
            f"{one.labels['variant']}",
            f"{len(one.samples):,}",
            *(figure(value) for value in (one.median, percentile(one.samples, 0.99), max(one.samples))),
        ]
        for one in outcome.find(what=WAIT)
    ]
    size = next(iter(outcome.values("size", what=WAIT)), 0)
    title = f"How long another user of rtnetlink waits while {size} links are installed, ms"
    return Table(title, ["installing", "requests", "median", "99 %", "longest"], rows)


def plots(outcome: Outcome) -> list[Plot]:
    lines: dict[str, list[tuple[float, float]]] = {}
    for variant in (OURS, KERNEL, BATCH, ONE_BY_ONE):
        series = outcome.find(what=INSTALL, variant=variant)
        if series:
            lines[variant] = sorted((float(one.labels["size"]), one.median * 1000) for one in series)
    title = "Installing all links from nothing, both directions"
    return [Plot("install", title, "ms", "links", lines=lines)] if lines else []
