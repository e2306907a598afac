"""The agent's own process, killed by SIGKILL while it works; and what the kernel does with what it had sent by then."""

from __future__ import annotations

import errno
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
RTMGRP_TC = 8  # <linux/rtnetlink.h>
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

    def kill(self) -> bool:
        """Whether it was still at work."""
        was_alive = self._process.poll() is None
        self._process.kill()
        self._process.wait(10)
        self._out.close()
        return was_alive

    def finish(self) -> None:
        said = self._out.read()
        assert self._process.wait(60) == 0, said


class Writes:
    """What somebody writes into traffic control of a namespace, as the kernel tells it."""

    def __init__(self, host: Host) -> None:
        self._socket = host.inside(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE))
        self._socket.bind((0, RTMGRP_TC))

    def forget(self) -> None:
        """What came so far, and what did not fit into the buffer."""
        while self._heard(0) is not None:
            pass

    def wait_for_the_first(self) -> None:
        assert self._heard(60)

    def seconds_to_the_last(self, silence_s: float = 0.3) -> float:
        began = last = time.monotonic()
        while self._heard(silence_s) is not None:
            last = time.monotonic()
        return last - began

    def _heard(self, patience_s: float) -> bool | None:
        """None: silence."""
        self._socket.settimeout(patience_s)
        try:
            return bool(self._socket.recv(65_536))
        except (TimeoutError, BlockingIOError):
            return None
        except OSError as exc:
            if exc.errno != errno.ENOBUFS:
                raise
            return True

    def close(self) -> None:
        self._socket.close()


def test_killed_with_kill_9_while_it_writes_it_converges_at_the_next_start(host: Host, tmp_path: Path) -> None:
    """At random moments between the first write of a build and its last: of 120 links from nothing, or onto ten."""
    clean = host.inside(meanings)
    agent, writes = AgentProcess(host, tmp_path, MANY), Writes(host)
    agent.begin()
    writes.wait_for_the_first()
    lasts_s = writes.seconds_to_the_last()
    agent.finish()
    whole = host.inside(meanings)
    at_work = torn = 0
    with observers(host, SOME_OF_MANY) as (prober, reach):
        for number in range(KILLS):
            assert host.reset().ok
            is_from_nothing = number % 3 == 0
            assert is_from_nothing or host.reconcile(SOME_OF_MANY).ok
            agent = AgentProcess(host, tmp_path, MANY)
            writes.forget()
            agent.begin()
            writes.wait_for_the_first()
            time.sleep(lasts_s * random.random())  # noqa: S311 - any moment will do
            at_work += agent.kill()
            assert is_from_nothing or prober.ask().free == set()
            assert reach.failures() == []
            result = host.reconcile(MANY)
            assert result.ok, result.problems
            torn += not result.plan.is_empty
            assert host.inside(meanings) == whole
            assert prober.ask().free == set()
            assert reach.failures() == []
    writes.close()
    print(f"  measured: kills={KILLS} at_work={at_work} torn={torn} writing_ms={lasts_s * 1000:.0f}")
    assert torn > 0
    assert host.reset().ok
    assert host.inside(meanings) == clean


SENDER = """
import sys
from ap_agent.messages import messages
from ap_agent.model import AT_ROOT, UNMATCHED_MINOR, Device, Handle, HtbClass, Qdisc
from ap_agent.ops import ClassAdd, RootAdd
from ap_agent.dataplane.rtsocket import RtSocket
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
