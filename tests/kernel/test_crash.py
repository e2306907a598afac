"""Crash anywhere: the agent dies after any message that it sends, is started again, and no limit was lost meanwhile.

At a crash the kernel has carried out a beginning of what the plan says. Each such beginning is made here with the real
kernel, by a socket that sends so many messages and then is dead; so every moment between two sends is among them, and
every place at which a batch could be cut. What the kernel does not allow to be cut, one send with several messages of
one operation (`test_what_was_sent_is_carried_out_whole`), is not cut here either.

At each cut packets of all links are sent in both directions, and the attachment point is asked for. Then a fresh agent
converges. Plans of up to `EVERY_CUT_UP_TO` messages are cut after every message; longer ones at a stride with a random
beginning, or everywhere with SLBW_EVERY_CUT=1 in the environment (some five minutes; docs/agent.md says when last).
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import IO, Any

import pytest

from ap_agent import netlink
from ap_agent.messages import Message
from ap_agent.model import IFB_NAME, EngineSettings
from ap_agent.netlink import RtNetlink
from ap_agent.reconcile import reconcile, reset
from ap_agent.rtsocket import Refusal, RtSocket
from bandwidth_config import LinkInfo
from lab.netns import Namespace
from tests.kernel.conftest import Host, entry, links
from tests.kernel.flows import DIRECTIONS, FASTEST_KBIT, Flow, Prober, Way
from tests.kernel.meaning import meanings
from tests.kernel.reach import Reach

EVERY_CUT = bool(os.environ.get("SLBW_EVERY_CUT"))
pytestmark = [pytest.mark.kernel, pytest.mark.timeout(1500 if EVERY_CUT else 300)]

EVERY_CUT_UP_TO = 70
CUTS_OF_A_LONG_PLAN = 15
WITNESS_EVERY = 8  # cuts; `tc` needs 50 ms to print everything
UNLIMITED, DEFAULT = EngineSettings(), EngineSettings(unmatched="default", default_bandwidth_kbit=5000)


# --- twenty links ----------------------------------------------------------------------------------------------

Links = dict[int, LinkInfo]


def _twenty() -> Links:
    """Of all kinds: addresses of their own, one shared by four, an entry without a port, IPv6, another interface."""
    found = {}
    for number in range(1, 9):
        found[f"l{number}"] = entry(f"192.0.2.{20 + number}", 8 + number)
        if number % 2:
            found[f"l{number}"] |= {"Local-IP": "192.0.2.1", "Local-Port": 51_000 + number}
    for number in range(9, 13):
        found[f"l{number}"] = entry("192.0.2.40", 8 + number, 50_000 + number)
    found["l13"] = entry("192.0.2.41", 21, None)
    for number in range(14, 19):
        found[f"l{number}"] = {**entry(f"2001:db8:1::a{number:x}", 8 + number), "Local-IP": "2001:db8:1::1"}
    found["l19"] = entry("198.51.100.21", 27)
    found["l20"] = entry("2001:db8:2::20", 28)
    found["l5"]["Bandwidth"] = found["l16"]["Bandwidth"] = 0
    return links(**found)


TWENTY = _twenty()


def changed(document: Links, **changes: dict[str, Any]) -> Links:
    """`changed(TWENTY, l1={"remote_port": 50001})`; None instead of a dictionary takes the link away."""
    numbered = {int(name.removeprefix("l")): change for name, change in changes.items()}
    return {number: replace(link, **numbered.get(number, {})) for number, link in document.items()}


def without(document: Links, *numbers: int) -> Links:
    return {number: link for number, link in document.items() if number not in numbers}


FASTER = {n: replace(one, bandwidth_kbit=min(FASTEST_KBIT, one.bandwidth_kbit * 3 // 2)) for n, one in TWENTY.items()}
OTHER_RATES = changed(
    FASTER, l2={"bandwidth_kbit": 0}, l5={"bandwidth_kbit": 30}, l14={"bandwidth_kbit": 9}, l18={"bandwidth_kbit": 0}
)
MOVED = changed(
    TWENTY,
    l1={"remote_ip": ip_address("192.0.2.29")},
    l2={"remote_port": 50_099},
    l3={"remote_ip": TWENTY[4].remote_ip},
    l4={"remote_ip": TWENTY[3].remote_ip},
    l9={"remote_port": 50_010},
    l10={"remote_port": 50_009},
    l14={"remote_ip": ip_address("2001:db8:1::29")},
    l19={"remote_ip": ip_address("192.0.2.30")},
)
THREE = without(TWENTY, *range(1, 13), *range(17, 20), 14, 15)
OTHER_THREE = changed(THREE, l16={"bandwidth_kbit": 20}, l20={"bandwidth_kbit": 0, "remote_port": 50_033}) | {
    7: TWENTY[7]
}
# Twenty addresses that differ in a byte in which the first two do not: their tables would pile up.
FEW = links(l1=entry("2001:db8:1::101", 20), l2=entry("2001:db8:1::202", 20))
CROWDED = FEW | links(**{f"l{n}": entry(f"2001:db8:1::1:{n:x}:303", 20) for n in range(3, 21)})


@dataclass(frozen=True)
class Step:
    """From one wanted state to another, with what somebody does before (`broken`)."""

    before: Links
    after: Links
    settings: EngineSettings = UNLIMITED
    settings_before: EngineSettings = UNLIMITED
    broken: str = ""
    is_fresh: bool = False  # what is there before must not remember what was there later

    @property
    def moved(self) -> list[tuple[Flow, Flow]]:
        """The packets of each link that stays, before and after, where they are not the same."""
        staying = sorted(self.before.keys() & self.after.keys())
        pairs = [(Flow.of(self.before[number]), Flow.of(self.after[number])) for number in staying]
        return [(old, new) for old, new in pairs if old != new]


STEPS = {
    "small build": Step({}, THREE),
    "small change": Step(THREE, OTHER_THREE),
    "build": Step({}, TWENTY),
    "rates": Step(TWENTY, OTHER_RATES),
    "move": Step(TWENTY, MOVED),
    "grow": Step(without(TWENTY, 2, 4, 9, 13, 15, 18, 19, 20), TWENTY),
    "rebuild": Step(FEW, CROWDED, is_fresh=True),
    "remove": Step(TWENTY, without(TWENTY, 1, 4, 9, 10, 13, 14, 19, 20)),
    "reset": Step(TWENTY, {}),
    "ifb": Step(TWENTY, TWENTY, broken=f"link del {IFB_NAME}"),
    "unmatched": Step(TWENTY, TWENTY, settings=DEFAULT),
    "unmatched back": Step(TWENTY, TWENTY, settings_before=DEFAULT),
}


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
        assert limits.see_after() == limits.after
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
        self._reached: dict[str, set[Way]] = {"data": set(), "heartbeats": set()}

    def see_before(self) -> None:
        found = self._prober.ask()
        ways = {way for way in self._prober.ways if not (self._is_ifb_gone and way[1] == "from user")}
        self._limited = ways - found.free
        self._blocked = found.blocked(ways)

    def see_after(self) -> tuple[set[Way], set[Way]]:
        found = self._prober.ask()
        self.after = set(self._prober.ways) - found.free, found.blocked(self._prober.ways)
        return self.after

    def check(self, where: str) -> None:
        found = self._prober.ask()
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


USERS = {"192.0.2.": "u1", "2001:db8:1:": "u1", "198.51.100.": "u2", "2001:db8:2:": "u2"}


@contextmanager
def _observers(host: Host, *documents: Links) -> Iterator[tuple[Prober, Reach]]:
    """Of all links of these documents, whose addresses the users get."""
    found = [link for document in documents for link in document.values()]
    for user in (host.u1, host.u2):
        own = {link.remote_ip for link in found if _user_of(host, str(link.remote_ip)) is user}
        user.ip_batch(f"addr add {one}/{24 if one.version == 4 else 64} dev eth0 nodad" for one in sorted(own, key=str))
    users = {start: _user_of(host, start) for start in USERS}
    flows = sorted({Flow.of(link) for link in found}, key=str)
    with Prober(host.ap, users, flows) as prober, Reach(host.ap, host.u1, "192.0.2.1", "2001:db8:1::1") as reach:
        yield prober, reach


def _user_of(host: Host, address: str) -> Namespace:
    return next(host.lab.namespaces[short] for start, short in USERS.items() if address.startswith(start))


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("name", STEPS)
def test_killed_after_any_message_no_limit_is_lost_and_the_next_start_converges(host: Host, name: str) -> None:
    step = STEPS[name]
    with _observers(host, step.before, step.after) as (prober, reach):
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


# --- the real thing --------------------------------------------------------------------------------------------

# The agent's own process, warm: it says when it has imported everything, and begins when it is told to.
AGENT = """
import sys
from ap_agent.__main__ import main
print("ready", flush=True)
sys.stdin.readline()
sys.exit(main(sys.argv[1:]))
"""
KILLS = 15
MANY = links(**{f"l{n}": entry(f"192.0.2.{n}", 8 + n % 32, 50_000 + n) for n in range(20, 140)})
SOME_OF_MANY = {number: link for number, link in MANY.items() if number % 11 == 0}


def _document(document: Links) -> str:
    fields = {n: entry(str(one.remote_ip), one.bandwidth_kbit, one.remote_port) for n, one in document.items()}
    return json.dumps({str(number): one for number, one in fields.items()})


class AgentProcess:
    """`ap_agent once`, ready to begin."""

    def __init__(self, host: Host, folder: Path, document: Links) -> None:
        path = folder / "link_info.json"
        path.write_text(_document(document))
        config = folder / "agent.toml"
        config.write_text(f'state_dir = "{folder}/state"\nrun_dir = "{folder}/run"\n')
        argv = [sys.executable, "-c", AGENT, "once", "--config", str(config), "--link-info", str(path)]
        self._process = host.ap.popen(argv, stdin=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert self._out.readline() == "ready\n"

    @property
    def _out(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    def begin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def kill_after(self, seconds: float) -> bool:
        """Whether it was still at work."""
        time.sleep(seconds)
        was_alive = self._process.poll() is None
        self._process.kill()
        self._process.wait(10)
        self._out.close()
        return was_alive

    def finish(self) -> str:
        said = self._out.read()
        assert self._process.wait(60) == 0, said
        return said


def test_killed_with_kill_9_at_random_moments_it_converges_at_the_next_start(host: Host, tmp_path: Path) -> None:
    """A hundred and twenty links, so that the build lasts long enough to be hit; packets of some of them."""
    clean = host.inside(meanings)
    agent = AgentProcess(host, tmp_path, MANY)
    began = time.monotonic()
    agent.begin()
    agent.finish()
    lasts_s = time.monotonic() - began
    whole = host.inside(meanings)
    at_work = torn = 0
    assert host.reset().ok
    whole_plan = {False: host.plan(MANY).plan.ops}
    assert host.reconcile(SOME_OF_MANY).ok
    whole_plan[True] = host.plan(MANY).plan.ops
    with _observers(host, SOME_OF_MANY) as (prober, reach):
        for number in range(KILLS):
            assert host.reset().ok
            if number % 3:  # else from nothing
                assert host.reconcile(SOME_OF_MANY).ok
            agent = AgentProcess(host, tmp_path, MANY)
            agent.begin()
            at_work += agent.kill_after(random.random() * lasts_s)  # noqa: S311
            free = prober.ask().free
            assert number % 3 == 0 or free == set()
            assert reach.failures() == []
            result = host.reconcile(MANY)
            assert result.ok, result.problems
            torn += 0 < len(result.plan.ops) < len(whole_plan[bool(number % 3)])
            assert host.inside(meanings) == whole
            assert prober.ask().free == set()
            assert reach.failures() == []
    print(f"  measured: kills={KILLS} at_work={at_work} torn={torn} undisturbed_s={lasts_s:.2f}")
    assert at_work > KILLS // 2
    assert host.reset().ok
    assert host.inside(meanings) == clean


SENDER = """
import sys
from ap_agent.messages import messages
from ap_agent.model import AT_ROOT, UNMATCHED_MINOR, Device, Handle, HtbClass, Qdisc
from ap_agent.ops import ClassAdd, RootAdd
from ap_agent.rtsocket import RtSocket
device, nobody = Device(int(sys.argv[1]), "d0"), frozenset()
root = RootAdd(device, nobody, Qdisc("htb", Handle(1), AT_ROOT, default_minor=UNMATCHED_MINOR))
classes = [HtbClass(Handle(1, n), Handle(1), 1000, 1000, 3000, 3000, 1500) for n in range(1, int(sys.argv[2]) + 1)]
group = [one for op in (root, *(ClassAdd(device, nobody, c) for c in classes)) for one in messages(op, device.ifindex)]
asker = RtSocket(piece_bytes=1 << 20)
print("ready", flush=True)
sys.stdin.readline()
asker.send([group])
print("done", flush=True)
"""
CLASSES = 4000  # the kernel works for some 0.5 s on them, in one `send`


def test_what_was_sent_is_carried_out_whole_even_if_the_sender_is_killed_meanwhile(host: Host) -> None:
    """Why it is enough that an IFB and its mark, a clsact and its note, are one send: no crash parts them."""
    host.ap.ip("link", "add", "d0", "type", "ifb")
    number = host.inside(lambda: socket.if_nametoindex("d0"))
    argv = [sys.executable, "-c", SENDER, str(number), str(CLASSES)]
    sender = host.ap.popen(argv, stdin=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert sender.stdin is not None
    assert sender.stdout is not None
    assert sender.stdout.readline() == "ready\n"
    sender.stdin.write("\n")
    sender.stdin.flush()
    _wait_for_a_class(host)
    sender.kill()
    assert sender.wait(30) == -signal.SIGKILL
    assert sender.stdout.read() == ""  # it did not come back from its send
    assert host.tc("class", "show", "dev", "d0").count("class htb 1:") == CLASSES


def _wait_for_a_class(host: Host) -> None:
    """Until the kernel is at work; the answer itself waits for the kernel's lock, one message at a time."""
    deadline = time.monotonic() + 10
    while "class htb" not in host.tc("class", "show", "dev", "d0"):
        assert time.monotonic() < deadline
