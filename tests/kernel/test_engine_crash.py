"""Killed with SIGKILL between any two effects on kernel or maps, and started again: the same end, and no limit lost.

The engine runs in a process of its own, forked inside the namespace of the attachment point, and kills itself before
its n-th effect. Effects are what the kernel does at once: the messages of one operation, an entry of a map, one write
to the memory that it shares with the program, a name of a map or program.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ap_agent.dataplane import libbpf, program
from ap_agent.dataplane.attributes import Message
from ap_agent.dataplane.engine import Engine
from ap_agent.dataplane.rtsocket import Refusal, RtSocket
from ap_agent.dataplane.wanted import Wanted
from ap_agent.document.state import ClosedSegment
from tests.kernel.engine_bed import AP1, AP2, AP_PORT, U1, U2, USER_PORT, EngineBed, bound, drained, link, wanted

pytestmark = pytest.mark.timeout(600)

BURST = 90  # packets of 1000 B; the room of 500 kbit/s is 20 of them, and a few more pass in the meantime
MOST_OF_A_BURST = 60
CUTS = 6  # of a step with more effects than that, from a beginning that is another one in each run

FAILED = 255  # an exit code; no step has so many effects

LIMITED, BLOCKED = link(7, 500), link(8, 0, ip=U2)
STEPS: dict[str, tuple[Wanted, Wanted]] = {
    "install": (Wanted(), wanted(LIMITED, BLOCKED)),
    "change": (wanted(LIMITED, BLOCKED), wanted(link(7, 300, 600), BLOCKED)),
    "another link takes the packets": (wanted(LIMITED, BLOCKED), wanted(link(9, 400), BLOCKED)),
    "another address and everything else": (
        wanted(LIMITED, BLOCKED),
        wanted(LIMITED, BLOCKED, link(10, 900, ip="192.0.2.77"), unmatched_kbit=9000),
    ),
    "one goes": (wanted(LIMITED, BLOCKED, link(10, 900, ip="192.0.2.77")), wanted(LIMITED, BLOCKED)),
    "removal": (wanted(LIMITED, BLOCKED), Wanted()),
}


# --- dying -----------------------------------------------------------------------------------------------------


def _count_effects(before_each: Callable[[], None]) -> None:
    """In this process, from now on."""
    send = RtSocket.send

    def sent(self: RtSocket, groups: Sequence[Sequence[Message]]) -> list[Refusal | None]:
        answers: list[Refusal | None] = []
        for group in groups:
            before_each()
            answers += send(self, [group])
        return answers

    RtSocket.send = sent  # type: ignore[method-assign]
    for owner, name in (
        (libbpf.HashMap, "put"),
        (libbpf.HashMap, "delete"),
        (program.Lanes, "put"),
        (program.Lanes, "_set_segment"),
        (program.Program, "_forget_all_but"),
        (program, "pin"),
        (program, "make_folder"),
        (program, "_load"),
        (Path, "unlink"),
    ):
        setattr(owner, name, _counted(getattr(owner, name), before_each))


def _counted(function: Callable[..., Any], before: Callable[[], None]) -> Callable[..., Any]:
    def counted(*arguments: Any, **named: Any) -> Any:
        before()
        return function(*arguments, **named)

    return counted


def _run_killed(bed: EngineBed, what: Wanted, effects: int) -> bool:
    """Whether it was killed before its effect of this number, and so was not the whole pass."""
    return os.WIFSIGNALED(bed.ap.call(lambda: _forked(bed.maps_dir, what, effects)))


def _forked(maps_dir: Path, what: Wanted, effects: int) -> int:
    """How the process ended (wait(2)): killed before its effect of this number, or with their count as exit code."""
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        return status
    code, done = FAILED, 0

    def die_in_time() -> None:
        nonlocal done
        if done == effects:
            os.kill(os.getpid(), signal.SIGKILL)
        done += 1

    try:
        engine = Engine(maps_dir)
        _count_effects(die_in_time)
        outcome = engine.reset() if not what.links else engine.enforce(what)
        code = done if outcome.is_ok else FAILED
    finally:
        os._exit(code)


# --- what packets see ------------------------------------------------------------------------------------------


class Prober:
    """Sends a burst each way of each user at once, and counts what arrives."""

    def __init__(self, bed: EngineBed, stack: contextlib.ExitStack) -> None:
        self._ways: dict[str, tuple[socket.socket, tuple[str, int], socket.socket]] = {}
        for name, host, user, ours in (("limited", bed.u1, U1, AP1), ("blocked", bed.u2, U2, AP2)):
            theirs = stack.enter_context(host.call(partial(bound, (user, USER_PORT))))
            mine = stack.enter_context(bed.ap.call(partial(bound, (ours, AP_PORT))))
            self._ways[f"{name} to user"] = mine, (user, USER_PORT), theirs
            self._ways[f"{name} from user"] = theirs, (ours, AP_PORT), mine

    def arrived(self) -> dict[str, int]:
        for source, sink, _ in self._ways.values():
            for _ in range(BURST):
                with contextlib.suppress(OSError):
                    source.sendto(bytes(958), sink)
        time.sleep(0.05)  # what passes at once is there; what waits is counted with the next burst
        return {name: drained(sink) for name, (_, _, sink) in self._ways.items()}


@pytest.mark.parametrize("name", STEPS)
def test_killed_between_any_two_effects_no_limit_is_lost_and_the_next_pass_ends_the_same(
    bed: EngineBed, name: str
) -> None:
    before, after = STEPS[name]
    clean = bed.snapshot()
    bed.enforce(before)
    bed.enforce(after)
    whole, counted = bed.snapshot(), set(bed.engine.counters())
    has_limits = bool(before.links and after.links)
    with contextlib.ExitStack() as stack:
        prober = Prober(bed, stack)
        total = _effects(bed, before, after)
        stride = -(-total // CUTS)
        for effects in range(time.time_ns() % stride, total, stride):
            bed.reset()
            bed.restart()
            if before.links:
                assert bed.enforce(before).is_ok
            bed.engine.close()
            assert _run_killed(bed, after, effects), (effects, total)
            found = prober.arrived()
            if has_limits:
                assert (found["blocked to user"], found["blocked from user"]) == (0, 0), effects
                assert 0 < found["limited to user"] <= MOST_OF_A_BURST, (effects, found)
                assert 0 < found["limited from user"] <= MOST_OF_A_BURST, (effects, found)
            else:  # a redirect to what is not there would lose everything
                assert found["limited to user"] > 0, effects
                assert found["limited from user"] > 0, effects
            bed.engine = bed.new_engine()
            outcome = bed.reset() if not after.links else bed.enforce(after)
            assert (outcome.is_ok, outcome.problems) == (True, ()), effects
            assert outcome.writes == len(outcome.plan.operations), effects
            assert bed.snapshot() == whole, effects
            assert set(bed.engine.counters()) == counted, effects
    assert total > 3
    bed.reset()
    assert bed.snapshot() == clean


def _effects(bed: EngineBed, before: Wanted, after: Wanted) -> int:
    """How many the whole step has."""
    bed.reset()
    if before.links:
        bed.enforce(before)
    bed.engine.close()
    count = os.waitstatus_to_exitcode(bed.ap.call(lambda: _forked(bed.maps_dir, after, FAILED)))
    assert 0 < count < FAILED
    bed.engine = bed.new_engine()
    return count


def test_killed_before_a_closed_segment_is_forgotten_the_next_pass_closes_it_again(bed: EngineBed) -> None:
    kept: list[ClosedSegment] = []

    def keep_and_die(closed: tuple[ClosedSegment, ...]) -> None:
        kept.extend(closed)
        raise KeyboardInterrupt

    bed.enforce(wanted(LIMITED, BLOCKED))
    bed.received_kbit(to_user=False, seconds=0.3)
    segment, counters = bed.engine.counters()[7, "from_user"]
    bed.engine.on_closed = keep_and_die
    with pytest.raises(KeyboardInterrupt):
        bed.enforce(wanted(BLOCKED))
    bed.restart()
    bed.enforce(wanted(BLOCKED))
    assert [one._replace(closed_at_ms=0) for one in bed.closed] == [one._replace(closed_at_ms=0) for one in kept]
    assert (kept[1].segment, kept[1].counters) == (segment, counters)
    assert counters.passed_packets > 10
