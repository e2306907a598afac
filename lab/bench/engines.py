"""The engine as a process on a host of the lab.

    with Engine(host) as engine:
        cycle = engine.enforce(links)        # seconds, CPU, writes

An engine has a process of its own, so that its CPU time and its memory are its own, and so that limits are set by
nobody who also measures. `ip netns exec` gives it a mount namespace too: the BPF file system of its maps goes with it.

It has the limiter's two capabilities and no others: a program that is loaded by somebody with CAP_PERFMON goes without
the kernel's guards against speculative loads, and would look 20 ns cheaper for each packet than it is.
"""

from __future__ import annotations

import base64
import json
import select
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from measuring.netns import Namespace

Entry = dict[str, Any]  # one value of link_info.json

READY_WITHIN_S = 20.0
CYCLE_WITHIN_S = 300.0
CONFINED = "setpriv --bounding-set=-all,+net_admin,+bpf --inh-caps=-all"


@dataclass(frozen=True)
class Cycle:
    """What one cycle cost: wall time and CPU of the engine's process with its system calls, and operations written.

    `sends` are the bytes of each rtnetlink message in the order in which the kernel got them, where that was asked for.
    """

    seconds: float
    cpu_s: float
    writes: int
    sends: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class DirectionCounters:
    """Of one direction of a link: what passed (heartbeats included), and what was refused in front."""

    passed_bytes: int
    passed_packets: int
    refused_bytes: int
    refused_packets: int


class Engine:
    """Today's engine on one host, as its limiter runs it: what it learned it keeps from cycle to cycle. It takes orders
    as lines of JSON on stdin and answers each with a line."""

    def __init__(self, host: Namespace) -> None:
        """Its process alone sees the BPF file system of its maps. Raises `RuntimeError` where it does not start."""
        self.host = host
        self._folder = tempfile.TemporaryDirectory(prefix="slbw-maps-")
        command = shlex.join([sys.executable, "-m", "lab.bench.engine_program", self._folder.name])
        shell = f"mount -t bpf bpf {self._folder.name} && exec {CONFINED} -- {command}"
        self._process = host.popen(["sh", "-c", shell], stdin=subprocess.PIPE)
        self._answer(READY_WITHIN_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def order(self, what: str, **arguments: Any) -> dict[str, Any]:
        """Raises `RuntimeError` when the program ended, takes too long, or left anything undone."""
        if self._process.stdin is None:
            raise RuntimeError("the engine was closed")
        self._process.stdin.write(json.dumps({"what": what, **arguments}) + "\n")
        self._process.stdin.flush()
        answer = self._answer(CYCLE_WITHIN_S)
        if not answer.get("is_ok", True):
            raise RuntimeError(f"the engine on {self.host.short} reports: {answer['problems'][:3]}")
        return answer

    def _answer(self, within_s: float) -> dict[str, Any]:
        out = self._process.stdout
        if out is None or not select.select([out], [], [], within_s)[0]:
            raise RuntimeError(f"the engine on {self.host.short} said nothing for {within_s:g} s")
        line = out.readline()
        if not line:
            said = self._process.stderr.read() if self._process.stderr is not None else ""
            raise RuntimeError(f"the engine on {self.host.short} ended: {said.strip()[-800:]}")
        found: dict[str, Any] = json.loads(line)
        return found

    def enforce(
        self, links: Mapping[int, Entry] | Mapping[str, Entry], *, is_settled: bool = False, is_recorded: bool = False
    ) -> Cycle:
        """One cycle; `links` by interface id; `is_settled`: nobody else changed anything since the last one. Raises
        `RuntimeError` when it left anything undone."""
        answer = self.order("enforce", links=links, is_settled=is_settled, is_recorded=is_recorded)
        sends = tuple(base64.b64decode(one) for one in answer["sends"])
        return Cycle(answer["seconds"], answer["cpu_s"], answer["writes"], sends)

    def counters(self) -> dict[tuple[int, str], DirectionCounters]:
        """By interface id and direction (`to_user`, `from_user`)."""
        return {(int(number), way): DirectionCounters(*found) for number, way, found in self.order("counters")["found"]}

    def close(self) -> None:
        """Its limits stay in the kernel, as those of a program that was stopped."""
        self.host.lab.stop(self._process)
        self._folder.cleanup()
