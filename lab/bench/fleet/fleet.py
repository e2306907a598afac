"""The processes of the fleet together: so many agents wait; what they took, and when, by host."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.bench.core import REPOSITORY
from lab.bench.service_world import ServiceBenchError

MOST_S = 3600  # a process of the fleet ends by itself then
START_S, SETTLE_S = 300.0, 2.0
FIRST_ADDRESS = 20  # 127.0.19.20: a process has all ports of an address


@dataclass(frozen=True)
class News:
    """A document that an agent accepted: the limits by interface, when its last byte came and when it was checked."""

    uid: str
    limits_version: int
    kbit: Mapping[str, int]
    at: float
    taken: float


@dataclass
class Report:
    """Of all processes, since the last one."""

    running: int = 0
    waiting: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    away_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0


class Fleet:
    """Agents of all `hosts`, spread over the processes by turns; none runs at first."""

    def __init__(self, processes: Sequence[subprocess.Popen[str]]) -> None:
        self._processes = processes
        self._reports: list[queue.Queue[dict[str, Any]]] = [queue.Queue() for _ in processes]
        self._lock = threading.Condition()
        self._news: dict[str, list[News]] = {}
        self._readers = [
            threading.Thread(target=self._read, args=(number,), daemon=True) for number in range(len(processes))
        ]
        for one in self._readers:
            one.start()

    def _read(self, number: int) -> None:
        out = self._processes[number].stdout
        for line in out or ():
            said = json.loads(line)
            if "report" in said:
                self._reports[number].put(said["report"])
                continue
            with self._lock:
                self._news.setdefault(said["uid"], []).append(News(**said))
                self._lock.notify_all()

    def order(self, **order: Any) -> None:
        for one in self._processes:
            if one.stdin is None:
                raise ServiceBenchError("a process of the fleet has no input")
            one.stdin.write(json.dumps(order) + "\n")
            one.stdin.flush()

    def run(self, count: int) -> None:
        """So many agents, and wait until all of them wait. Raises `ServiceBenchError`."""
        self.order(run=-(-count // len(self._processes)))
        self.until_waiting(count)
        time.sleep(SETTLE_S)  # those who went are gone from nginx, too

    def until_waiting(self, count: int, *, within_s: float = START_S) -> Report:
        """Raises `ServiceBenchError`."""
        began, total = time.monotonic(), Report()
        while True:
            found = self.report()
            total.answers.update(found.answers)
            total.away_s += found.away_s
            total.running, total.waiting = found.running, found.waiting
            if found.waiting >= count:
                return total
            if time.monotonic() - began > within_s:
                raise ServiceBenchError(f"{found.waiting} of {count} agents wait: {dict(total.answers)}")
            time.sleep(0.2)

    def report(self) -> Report:
        """Raises `ServiceBenchError` where a process has ended."""
        self.order(report=True)
        total = Report()
        for one in self._reports:
            try:
                said = one.get(timeout=30)
            except queue.Empty:
                raise ServiceBenchError("a process of the fleet does not answer") from None
            total.running += said["running"]
            total.waiting += said["waiting"]
            total.answers.update(said["answers"])
            total.away_s += said["away_s"]
            total.cpu_s += said["cpu_s"]
        return total

    def news(self, uid: str) -> list[News]:
        with self._lock:
            return list(self._news.get(uid, ()))

    def taken(self, uid: str, interface_id: int, kbit: int, *, within_s: float = 60.0) -> News | None:
        """The first document in which this Link has at least `kbit`; None where none came."""
        deadline = time.monotonic() + within_s
        with self._lock:
            while True:
                for one in self._news.get(uid, ()):
                    if one.kbit.get(str(interface_id), -1) >= kbit:
                        return one
                if not self._lock.wait(deadline - time.monotonic()):
                    return None


@contextlib.contextmanager
def fleet(
    folder: Path, port: int, facts: Mapping[str, Any], *, processes: int = 2, long_poll_s: int = 50, seed: int = 1
) -> Iterator[Fleet]:
    started: list[subprocess.Popen[str]] = []
    try:
        for number in range(processes):
            plan = {
                "port": port,
                "address": f"127.0.19.{FIRST_ADDRESS + number}",
                "seed": seed * 1000 + number,
                "keys": facts["keys"],
                "hosts": facts["hosts"][number::processes],
                "long_poll_s": long_poll_s,
                "for_s": MOST_S,
            }
            path = folder / f"fleet-{number}.json"
            path.write_text(json.dumps(plan), encoding="utf-8")
            command = [sys.executable, "-m", "lab.bench.fleet", str(path)]
            with (folder / f"fleet-{number}.log").open("wb") as log:
                started.append(
                    subprocess.Popen(
                        command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
                    )
                )
        yield Fleet(started)
    finally:
        for one in started:
            if one.stdin is not None:
                one.stdin.close()
        for one in started:
            try:
                one.wait(timeout=30)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()
