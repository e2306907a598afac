"""The agent's own process, killed by SIGKILL while it works; and what the kernel does with what it had sent by then."""

from __future__ import annotations

import json
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest

from tests.kernel.conftest import Host, entry, links
from tests.kernel.flows import observers
from tests.kernel.meaning import meanings
from tests.kernel.steps import Links

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(300)]

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
    with observers(host, SOME_OF_MANY) as (prober, reach):
        for number in range(KILLS):
            assert host.reset().ok
            if number % 3:  # else from nothing
                assert host.reconcile(SOME_OF_MANY).ok
            agent = AgentProcess(host, tmp_path, MANY)
            agent.begin()
            at_work += agent.kill_after(lasts_s * random.uniform(0.3, 0.9))  # noqa: S311
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
