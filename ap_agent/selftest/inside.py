"""The part of the self-test that runs in separate namespaces (started by `command`).

Writes a line of JSON to stdout before each step, {"step": words, "left_s": seconds}, and at the end one with the
report, {"report": document, "text": text, "exit_code": number}.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ap_agent.common.errors import AgentError
from ap_agent.dataplane.engine import Engine
from ap_agent.dataplane.wanted import Wanted
from ap_agent.selftest.cases import AP_ADDRESS, PREFIX_LENGTH, ROUNDS, Case, Direction, Round, all_cases, wanted
from ap_agent.selftest.measure import AP_MAC, DEV, USERS_MAC, TwoHosts
from ap_agent.selftest.needs import Need, of_this_process, try_all, try_program
from ap_agent.selftest.report import Report, shown
from ap_agent.selftest.verdict import Judged, Verdict, judge
from measuring.iproute import LabError
from measuring.netns import Lab, Namespace

PREFIX = "slbwself"
MAPS_DIR = Path("/run/scionlab-bw-selftest")  # on a /run that only this process sees
LONGEST_S = 60.0  # no measurement starts that would end later
_OVERHEAD_S = 1.5  # per round: starting its processes, waiting for stragglers
_PREPARING_S = 2.0
_MNT_DETACH = 2  # <linux/mount.h>

Say = Callable[[str, float], None]  # the next step, and the approximate remaining seconds


class Course:
    def __init__(self, say: Say, rounds: Sequence[Round] = ROUNDS, longest_s: float = LONGEST_S) -> None:
        self._say = say
        self._longest_s = longest_s
        self._began = time.monotonic()
        self._left = list(rounds)  # to be measured
        self._cases = all_cases(rounds)
        self._needs: list[Need] = []
        say("two temporary hosts", self._left_s() + _PREPARING_S)  # sign of life: the namespaces exist

    def run(self, lab: Lab) -> Report:
        """Raises `LabError` if two hosts cannot be created."""
        self._say("requirements of the limiter", self._left_s() + _PREPARING_S)
        self._needs = [*of_this_process(), *try_all(lab.namespace("probe").run)]
        if any(one.is_in_the_way for one in self._needs):
            return self._report()
        ap, users = two_hosts(lab, self._cases)
        engine = ap.call(lambda: Engine(MAPS_DIR))
        try:
            self._needs.append(try_program(lambda: ap.call(lambda: engine.enforce(wanted(self._cases)))))
            return self._report() if self._needs[-1].is_in_the_way else self._measured(ap, users, engine)
        finally:
            engine.close()

    def _measured(self, ap: Namespace, users: Namespace, engine: Engine) -> Report:
        faults = ap.call(lambda: enforce(engine, self._cases))
        if faults:
            return self._report(faults=faults)
        judged, stopped = self._measure_all(TwoHosts(ap, users, lambda *row: refused(engine, *row)))
        return self._report(judged, ap.call(lambda: remove_again(engine)), stopped)

    def _report(self, judged: Sequence[Judged] = (), faults: Sequence[str] = (), stopped: Sequence[str] = ()) -> Report:
        return Report(tuple(self._needs), tuple(judged), tuple(faults), tuple(stopped), seconds=self._elapsed_s())

    def _measure_all(self, hosts: TwoHosts) -> tuple[list[Judged], list[str]]:
        found: list[Judged] = []
        stopped: list[str] = []
        for one in tuple(self._left):
            if self._elapsed_s() + one.seconds > self._longest_s:
                stopped.append(f"{one.title} and the following cases were not measured: this machine is too slow.")
                break
            self._say(one.title, self._left_s())
            self._left.remove(one)
            try:
                found += self._twice_if_need_be(hosts, one)
            except LabError as exc:
                stopped.append(f"{one.title} could not be measured: {exc}.")
        return found, stopped

    def _twice_if_need_be(self, hosts: TwoHosts, one: Round) -> list[Judged]:
        """Repeat a failed measurement once, if there is time: real failures repeat, those of a busy machine may not."""
        first = list(map(judge, hosts.measure(one)))
        is_clear = all(row.verdict is Verdict.HOLDS for row in first)
        if is_clear or self._elapsed_s() + self._left_s() + one.seconds > self._longest_s:
            return first
        self._say(f"{one.title}, again", self._left_s() + one.seconds + _OVERHEAD_S)
        second = map(judge, hosts.measure(one))
        return [old if old.verdict is Verdict.HOLDS else new for old, new in zip(first, second, strict=True)]

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began

    def _left_s(self) -> float:
        return sum(one.seconds + _OVERHEAD_S for one in self._left)


def isolate() -> None:
    """Call first: namespaces created later have their names on a private /run. The host's names are unmounted:
    otherwise a namespace deleted on the host would live on here. Raises `LabError`."""
    if os.getpid() != 1:
        raise LabError("The self-test's inner half runs in namespaces of its own only; call `selftest`.")
    libc = ctypes.CDLL(None, use_errno=True)
    while libc.umount2(b"/run/netns", _MNT_DETACH) == 0:
        pass
    if libc.mount(b"selftest", b"/run", b"tmpfs", 0, b"size=1m") != 0:
        raise LabError(f"a /run of its own cannot be mounted: {os.strerror(ctypes.get_errno())}")
    Path("/run/netns").mkdir()
    # If the kernel loaded the module automatically, it would create two devices on the host, ifb0 and ifb1.
    if not Path("/sys/module/ifb").exists() and shutil.which("modprobe") is not None:
        subprocess.run(["modprobe", "--quiet", "ifb", "numifbs=0"], capture_output=True, check=False, timeout=30)


def two_hosts(lab: Lab, cases: Sequence[Case]) -> tuple[Namespace, Namespace]:
    """The attachment point, and the host of all users. Raises `LabError`."""
    ap, users = lab.namespace("ap"), lab.namespace("users")
    own = [f"{AP_ADDRESS[family]}/{length}" for family, length in PREFIX_LENGTH.items()]
    lab.veth(
        ap.nic(DEV, *own),
        users.nic(DEV, *dict.fromkeys(f"{one.user_address}/{PREFIX_LENGTH[one.family]}" for one in cases)),
    )
    ap.ip("link", "set", DEV, "address", AP_MAC)
    users.ip("link", "set", DEV, "address", USERS_MAC)
    for host in (ap, users):
        # Otherwise Linux drops a datagram if 64 others of its sender arrive between its fragments, as may happen in a
        # limited queue.
        host.sysctl({"net.ipv4.ipfrag_max_dist": 0})
    return ap, users


# --- the real engine, in the attachment point's namespace ---------------------------------------------------------


def enforce(engine: Engine, cases: Sequence[Case]) -> list[str]:
    """Limit all cases, and check that a second pass changes nothing; return errors as sentences."""
    try:
        first = engine.enforce(wanted(cases))
        second = engine.enforce(wanted(cases))
    except AgentError as exc:
        return [exc.message]
    faults = [*(one.message for one in first.problems), *first.failed.values()]
    if not faults and second.writes:
        faults.append("The engine changed the kernel again for the same limits.")
    return faults


def refused(engine: Engine, case: Case, way: Direction) -> int:
    """Packets that the engine counted as refused so far."""
    for (number, direction), (_, counters) in engine.counters().items():
        if number == case.number and direction == ("to_user" if way is Direction.TO_USER else "from_user"):
            return counters.refused_packets
    return 0


def remove_again(engine: Engine) -> list[str]:
    """Remove all limits; return errors as sentences."""
    try:
        result = engine.reset()
        left = engine.plan(Wanted())
    except AgentError as exc:
        return [exc.message]
    faults = [one.message for one in result.problems]
    if not left.plan.is_empty:
        faults.append(f"The limits could not be removed: {'; '.join(map(str, left.plan.operations))}")
    return faults


def _tell(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main() -> int:
    course = Course(lambda step, left_s: _tell(step=step, left_s=round(left_s, 1)))
    isolate()
    with Lab(PREFIX) as lab:
        report = course.run(lab)
    _tell(**shown(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
