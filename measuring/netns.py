"""Hosts as network namespaces, wires as veth pairs, VPN ends as tun devices; all of it gone when the lab closes.

    with Lab("slbw") as lab:
        ap, user = lab.namespace("ap"), lab.namespace("u1")
        lab.veth(ap.nic("eth0", "192.0.2.1/24", "2001:db8::1/64"), user.nic("eth0", "192.0.2.11/24"))
        ap.run("tc", "qdisc", "show", "dev", "eth0")

Everything carries a name of the form `<prefix>-<pid of the owner>-<short name>`. The lab removes what it made at the
end of the `with` block, also after an exception, Ctrl-C or SIGTERM; `iproute.cleanup_stale` removes what an earlier run
that was killed outright left behind, and nothing else. Only processes started here, or found inside a namespace that
carries our name, are ever ended.

Wires are made without offloads that change what a limit counts: `gso_max_segs 1` on both ends, because the local TCP
otherwise hands HTB frames of up to 64 kB (measured: kernel 6.18; veth does no GRO by itself unless it is switched
on). Duplicate address detection is off, so that an IPv6 address works as soon as it is there.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, TypeVar

from measuring.iproute import LabError, available, enter, mark_owner, remove, run_command

MAX_SEGMENTS = 65_535  # gso_max_segs of a veth pair that hands over super-packets; 1: none
REPOSITORY = Path(__file__).resolve().parent.parent
_STOP_GRACE_S = 2.0

T = TypeVar("T")


@dataclass(frozen=True)
class Nic:
    """One interface of a host, before or after it is made: addresses are written with their prefix length."""

    host: Namespace
    dev: str
    addresses: tuple[str, ...]

    def address_lines(self) -> list[str]:
        """What `ip -batch` needs to give it its addresses."""
        return [f"addr add {one} dev {self.dev}{' nodad' if ':' in one else ''}" for one in self.addresses]


class Namespace:
    """One host of the lab. `name` is the full name under which iproute2 knows it, `short` its name in this lab."""

    def __init__(self, lab: Lab, short: str, name: str) -> None:
        self.lab = lab
        self.short = short
        self.name = name

    def __repr__(self) -> str:
        return f"Namespace({self.name})"

    def nic(self, dev: str, *addresses: str) -> Nic:
        """Describe an interface of this host for `Lab.veth`, `Switch.plug` or `Lab.tun`."""
        return Nic(self, dev, addresses)

    def sysctl(self, settings: Mapping[str, int]) -> None:
        """Set kernel parameters of this host's network, e.g. `{"net.ipv4.ip_forward": 1}`."""

        def write() -> None:
            for key, value in settings.items():
                Path("/proc/sys", *key.split(".")).write_text(f"{value}\n", encoding="ascii")

        self.call(write)

    def run(self, *argv: str, stdin: str | None = None, timeout_s: float = 30.0, check: bool = True) -> str:
        """Run a program inside; returns its stdout. Raises `LabError`."""
        return run_command(["ip", "netns", "exec", self.name, *argv], stdin=stdin, timeout_s=timeout_s, check=check)

    def ip(self, *arguments: str, check: bool = True) -> str:
        """`ip` on this namespace, e.g. `ns.ip("route", "add", ...)`. Raises `LabError`."""
        return run_command(["ip", "-n", self.name, *arguments], check=check)

    def ip_batch(self, lines: Iterable[str]) -> None:
        """Many `ip` commands in one process, in order; the first refusal raises `LabError`."""
        run_command(["ip", "-n", self.name, "-batch", "-"], stdin="\n".join(lines) + "\n")

    def popen(
        self, argv: Sequence[str], *, env: dict[str, str] | None = None, cwd: Path = REPOSITORY, **options: Any
    ) -> subprocess.Popen[str]:
        """Start a program inside and let it run; the lab ends it at the latest when it closes.

        stdin, stdout and stderr are pipes unless said otherwise. The child gets a session of its own, so that Ctrl-C
        reaches only us, and we end it in order. `ip netns exec` replaces itself: the pid is the program's own.
        """
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        process: subprocess.Popen[str] = subprocess.Popen(
            ["ip", "netns", "exec", self.name, *argv], text=True, env=env, cwd=cwd, start_new_session=True, **options
        )
        self.lab.track(process)
        return process

    def python(self, module: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Start `python -m module arguments...` inside, with this interpreter."""
        return self.popen([sys.executable, "-m", module, *arguments], **options)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function of this process inside the namespace, in a thread of its own, and return what it returns.

        Sockets that it makes stay in the namespace. Processes that it starts are in the namespace too.
        """
        outcome: list[T] = []
        failure: list[BaseException] = []

        def inside() -> None:
            try:
                enter(self.name)
                outcome.append(function())
            except BaseException as exc:
                failure.append(exc)

        thread = threading.Thread(target=inside, name=f"in-{self.name}")
        thread.start()
        thread.join()
        if failure:
            raise failure[0]
        return outcome[0]


class Lab:
    """Owner of namespaces and of the processes in them; use it as a context manager.

    `prefix` names the purpose (letters and digits, at most 12): the demo, the tests and the evaluation use
    different ones so that none cleans up after a living other.
    """

    def __init__(self, prefix: str) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9]{0,11}", prefix):
            raise ValueError(f"{prefix!r} is not a lab prefix: 1 to 12 lower-case letters and digits")
        self.prefix = prefix
        self.namespaces: dict[str, Namespace] = {}
        self._processes: list[subprocess.Popen[str]] = []
        self._previous_handler: Any = None
        self._handles_signal = False

    def __enter__(self) -> Lab:
        """Raises `LabError` where there are no namespaces. SIGTERM becomes `SystemExit`, so that we clean up."""
        missing = available()
        if missing is not None:
            raise LabError(missing)
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            self._previous_handler = signal.signal(signal.SIGTERM, _exit_on_signal)
            self._handles_signal = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _signals_held():  # a second Ctrl-C must not leave half of it behind
            self.close()
        if self._handles_signal:
            signal.signal(signal.SIGTERM, self._previous_handler)
            self._handles_signal = False

    def close(self) -> None:
        """End our processes and remove our namespaces, with their devices. Can be called twice."""
        self.stop_all()
        for namespace in self.namespaces.values():
            remove(namespace.name)
        self.namespaces.clear()

    def stop_all(self) -> None:
        """End all processes that run in the lab."""
        for process in self._processes:
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + _STOP_GRACE_S
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with contextlib.suppress(OSError):  # a pipe whose reader is gone cannot be flushed
                        stream.close()
        self._processes.clear()

    def track(self, process: subprocess.Popen[str]) -> None:
        """Make the lab responsible for ending this process."""
        self._processes.append(process)

    def stop(self, process: subprocess.Popen[str], *, grace_s: float = _STOP_GRACE_S) -> int:
        """End one process that the lab started (SIGTERM, then SIGKILL); returns its exit status."""
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(grace_s)
            except subprocess.TimeoutExpired:
                process.kill()
        return process.wait()

    # --- hosts and wires ------------------------------------------------------------------------------------

    def namespace(self, short: str, *, forwards: bool = False) -> Namespace:
        """A new host with its loopback up. `forwards`: it routes IPv4 and IPv6."""
        name = f"{self.prefix}-{os.getpid()}-{short}"
        run_command(["ip", "netns", "add", name])
        namespace = Namespace(self, short, name)
        self.namespaces[short] = namespace
        namespace.ip_batch([mark_owner(), "link set lo up"])
        settings = {
            "net.ipv6.conf.all.accept_dad": 0,
            "net.ipv6.conf.default.accept_dad": 0,
            "net.ipv6.conf.default.accept_ra": 0,
        }
        if forwards:
            settings |= {"net.ipv4.ip_forward": 1, "net.ipv6.conf.all.forwarding": 1}
        namespace.sysctl(settings)
        return namespace

    def veth(self, left: Nic, right: Nic, *, mtu_bytes: int = 1500) -> None:
        """A wire between two hosts, up at both ends, without offloads."""
        left_end = [left.dev, "netns", left.host.name, "mtu", str(mtu_bytes)]
        right_end = [right.dev, "netns", right.host.name, "mtu", str(mtu_bytes)]
        run_command(["ip", "link", "add", *left_end, "type", "veth", "peer", "name", *right_end])
        for nic in (left, right):
            nic.host.ip_batch([f"link set {nic.dev} gso_max_segs 1 up", *nic.address_lines()])

    def switch(self, short: str, dev: str = "br0") -> Switch:
        """A layer-2 switch in a namespace of its own."""
        namespace = self.namespace(short)
        namespace.ip_batch(
            [f"link add {dev} type bridge forward_delay 0 mcast_snooping 0", f"link set {dev} gso_max_segs 1 up"]
        )
        return Switch(self, namespace, dev)

    def tun(self, nic: Nic, *, mtu_bytes: int = 1500) -> None:
        """A persistent tun device, up. It carries packets only while a `lab.tunnel` process serves it."""
        nic.host.ip("tuntap", "add", "dev", nic.dev, "mode", "tun")
        nic.host.ip_batch([f"link set {nic.dev} mtu {mtu_bytes} gso_max_segs 1 up", *nic.address_lines()])


class Switch:
    """A bridge in a namespace of its own, into which hosts are plugged."""

    def __init__(self, lab: Lab, namespace: Namespace, dev: str) -> None:
        self.lab = lab
        self.namespace = namespace
        self.dev = dev
        self._ports = 0

    def plug(self, nic: Nic, *, mtu_bytes: int = 1500) -> str:
        """Give a host an interface on this switch; returns the name of the switch's port."""
        self._ports += 1
        port = f"p{self._ports}"
        self.lab.veth(nic, self.namespace.nic(port), mtu_bytes=mtu_bytes)
        self.namespace.ip("link", "set", port, "master", self.dev)
        return port


def _exit_on_signal(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """SIGINT and SIGTERM wait until the block is over; they are delivered then."""
    held = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
