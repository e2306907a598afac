"""Crash anywhere: the agent dies after any message that it sends, is started again, and no limit was lost meanwhile.

At a crash the kernel has carried out a beginning of what the plan says. Each such beginning is made here with the real
kernel, by a socket that sends so many messages and then is dead; so every moment between two sends is among them, and
every place at which a batch could be cut. What the kernel does not allow to be cut, one send with several messages of
one operation (test_killed proves it), is not cut here either.

At each cut packets of all links are sent in both directions, and the attachment point is asked for. Then a fresh agent
converges. Plans of up to `EVERY_CUT_UP_TO` messages are cut after every message; longer ones at a stride with a random
beginning, or everywhere with SLBW_EVERY_CUT=1 in the environment (a quarter of an hour).
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest

from ap_agent import netlink
from ap_agent.dataplane.rtsocket import Refusal, RtSocket
from ap_agent.messages import Message
from ap_agent.model import EngineSettings
from ap_agent.netlink import RtNetlink
from ap_agent.reconcile import reconcile, reset
from tests.kernel.conftest import Host
from tests.kernel.flows import DIRECTIONS, Prober, Verdicts, Way, observers
from tests.kernel.meaning import meanings
from tests.kernel.reach import Reach
from tests.kernel.steps import OTHERS, STEPS, UNLIMITED, Links, Step

EVERY_CUT = bool(os.environ.get("SLBW_EVERY_CUT"))
pytestmark = [pytest.mark.kernel, pytest.mark.timeout(1500 if EVERY_CUT else 300)]

EVERY_CUT_UP_TO = 70
CUTS_OF_A_LONG_PLAN = 12
WITNESS_EVERY = 8  # cuts; `tc` needs 50 ms to print everything


# --- dying -----------------------------------------------------------------------------------------------------


class KilledError(BaseException):
    """Like SIGKILL: nobody catches it."""


class CutSocket(RtSocket):
    """Lets `messages_left` messages through, in the pieces in which they came; then we are dead.

    What is sent again because it was busy is not counted again: how often is a matter of time.
    """

    messages_left = sys.maxsize
    sent: dict[tuple[Message, ...], int] = {}  # all groups so far, with the number of their messages

    def send(self, groups: Sequence[Sequence[Message]]) -> list[Refusal | None]:
        allowed = list(itertools.takewhile(_is_allowed, groups))
        answers = super().send(allowed)
        if len(allowed) < len(groups):
            raise KilledError
        return answers


def _is_allowed(group: Sequence[Message]) -> bool:
    if tuple(group) not in CutSocket.sent:
        if len(group) > CutSocket.messages_left:
            return False
        CutSocket.messages_left -= len(group)
        CutSocket.sent[tuple(group)] = len(group)
    return True


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(netlink, "RtSocket", CutSocket)
    yield
    CutSocket.messages_left = sys.maxsize


def killed_after(messages: int, wanted: Links, settings: EngineSettings) -> bool:
    """Whether a cycle died; it was a process of its own, with nothing remembered and nothing left."""
    CutSocket.messages_left, CutSocket.sent = messages, {}
    with RtNetlink() as kernel:
        try:
            reconcile(wanted, settings, kernel=kernel)
        except KilledError:
            return True
        finally:
            CutSocket.messages_left = sys.maxsize
    return False


# --- the crashes of one step -----------------------------------------------------------------------------------


class Crashes:
    """One attachment point, one step, many crashes. Everything runs in a thread inside the namespace."""

    def __init__(self, host: Host, step: Step, prober: Prober, reach: Reach) -> None:
        self.host, self.step, self.prober, self.reach = host, step, prober, reach

    def prepare(self) -> None:
        step = self.step
        if step.is_fresh:
            assert reset(UNLIMITED).ok
        result = reconcile(step.before, step.settings_before)
        assert result.ok, result.problems
        if step.broken:
            subprocess.run(["ip", *step.broken.split()], check=True, timeout=10)

    def undisturbed(self) -> tuple[list[str], list[int]]:
        """What `tc` says after it, and the sizes of the messages' groups."""
        self.prepare()
        CutSocket.sent = {}
        assert reconcile(self.step.after, self.step.settings).ok
        sizes = list(CutSocket.sent.values())
        return meanings(), sizes

    def converge(self, where: object, whole: list[str] | None) -> None:
        result = reconcile(self.step.after, self.step.settings)
        assert result.ok, (where, result.problems)
        # Nothing that no dump shows, such as a table whose preference is gone, stood in the way.
        assert result.writes == len(result.plan.ops), where
        if whole is not None:
            assert meanings() == whole, where

    def run(self) -> int:
        """Every cut; returns how many there were."""
        if self.step.is_beside_others:
            for command in OTHERS:
                subprocess.run(["tc", *command.split()], check=True, timeout=10)
        clean = meanings()
        self.converge("the first time", None)
        whole, groups = self.undisturbed()
        limits = _Limits(self.prober, self.step)
        self.prepare()
        limits.see_before()
        self.converge("before", whole)
        limits.see_after()
        cuts = list(_cuts(groups))
        for count, number in enumerate(cuts):
            self.prepare()
            assert killed_after(number, self.step.after, self.step.settings), (number, sum(groups))
            where = f"after {number} of {sum(groups)} messages"
            limits.check(where)
            assert self.reach.failures() == [], where
            is_witnessed = count % WITNESS_EVERY == 0 or number >= sum(groups) - 2
            self.converge(where, whole if is_witnessed else None)
            assert self.reach.failures() == [], f"{where}, and started again"
        limits.end()
        assert reset(UNLIMITED).ok
        assert meanings() == clean
        return len(cuts)


def _cuts(groups: Sequence[int]) -> Iterator[int]:
    """Numbers of messages after which to die: between groups, never at the end."""
    ends = [sum(groups[:number]) for number in range(len(groups))]
    if len(ends) <= EVERY_CUT_UP_TO or EVERY_CUT:
        return iter(ends)
    stride = -(-len(ends) // CUTS_OF_A_LONG_PLAN)
    first = random.randrange(stride)  # noqa: S311 - so that many runs see every place
    return iter(sorted({0, *ends[first::stride], ends[-1]}))


class _Limits:
    """What is limited before and after a step is limited, and what is blocked blocked, at every cut between.

    Without its IFB a redirect drops everything, and taking it out first is what heals the link: there, what comes from
    the users is limited again from some message on.
    """

    def __init__(self, prober: Prober, step: Step) -> None:
        self._prober, self._moved, self._is_ifb_gone = prober, step.moved, bool(step.broken)
        self._last: tuple[str, Verdicts] | None = None
        self._reached: dict[str, set[Way]] = {"data": set(), "heartbeats": set()}

    def see_before(self) -> None:
        found = self._ask()
        ways = {way for way in self._prober.ways if not (self._is_ifb_gone and way[1] == "from user")}
        self._limited = ways - found.free
        self._blocked = found.blocked(ways)

    def see_after(self) -> None:
        found = self._ask()
        self.after = set(self._prober.ways) - found.free, found.blocked(self._prober.ways)

    def _ask(self) -> Verdicts:
        """A burst in a state that stays for a moment."""
        found = self._prober.ask()
        self._prober.wait_for_stragglers()
        return found

    def check(self, where: str) -> None:
        """Send a burst now, and judge the one before: whatever was late has arrived meanwhile."""
        found = self._prober.ask()
        self.settle()
        self._last = where, found

    def settle(self) -> None:
        """Judge the last burst."""
        if self._last is not None:
            self._judge(*self._last)
            self._last = None

    def end(self) -> None:
        """The last burst, and the state that all of this led to."""
        found = self._ask()
        self.settle()
        # Not who is blocked: that shows only in classes that have not just been flooded.
        assert set(self._prober.ways) - found.free == self.after[0]

    def _judge(self, where: str, found: Verdicts) -> None:
        limited = set(self._prober.ways) - found.free
        assert self._limited & self.after[0] <= limited, (where, self._limited & self.after[0] - limited)
        assert self._blocked & self.after[1] <= found.blocked(self._prober.ways), where
        for old, new in self._moved:  # the old packets are set free only when the new ones are limited
            for direction in DIRECTIONS:
                assert limited & {(old, direction), (new, direction)}, (where, old, new, direction)
        # What this step limits is not set free again by its later messages.
        reached = self._reached[found.kind]
        assert reached <= limited, (where, found.kind, reached - limited)
        reached |= self.after[0] & limited - (found.blocked(limited) if self._is_ifb_gone else set())


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("name", STEPS)
def test_killed_after_any_message_no_limit_is_lost_and_the_next_start_converges(host: Host, name: str) -> None:
    step = STEPS[name]
    with observers(host, step.before, step.after) as (prober, reach):
        cuts = host.inside(Crashes(host, step, prober, reach).run)
    assert cuts > 0
    print(f"  measured: step={name} cuts={cuts}")


def test_the_steps_are_what_they_are_called(host: Host) -> None:
    """Each kind of operation that the crashes are about is really in some plan."""
    kinds: dict[str, set[str]] = {}
    for name, step in STEPS.items():
        host.settings = step.settings_before
        assert host.reset().ok
        assert host.reconcile(step.before).ok
        if step.broken:
            host.ap.ip(*step.broken.split())
        host.settings = step.settings
        kinds[name] = {op.kind for op in host.plan(step.after).plan.ops}
    assert kinds["build"] == {"ifb-add", "root-add", "class-add", "leaf-add", "table-add", "filter-add", "clsact-add"}
    assert kinds["rates"] == {"class-change", "leaf-change", "leaf-replace"}
    assert {"filter-add", "filter-del", "class-add", "class-del", "table-del"} <= kinds["move"]
    assert {"class-add", "leaf-add", "table-add", "filter-add"} <= kinds["grow"]
    assert "head-switch" in kinds["rebuild"]
    assert {"class-del", "root-del", "filter-del"} <= kinds["remove"]
    assert kinds["reset"] == {"root-del", "clsact-del", "ifb-del"}
    assert "ifb-add" in kinds["ifb"]
    assert "list-del" in kinds["unmatched back"]
