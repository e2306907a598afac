"""Requirements of the limiter on kernel, process and host, tested in a temporary namespace. Each has its purpose and a
remedy."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from ap_agent.common.errors import AgentError
from ap_agent.common.rights import has_right
from ap_agent.dataplane.libbpf import OLDEST_KERNEL
from measuring.iproute import LabError


class State(StrEnum):
    """`UNTRIED`: unknown; the detail says why, or what the kernel's own files say."""

    PRESENT = "present"
    MISSING = "missing"
    UNTRIED = "not tried"


@dataclass(frozen=True)
class Need:
    """One requirement of the limiter, or only of its self-test."""

    name: str
    purpose: str
    state: State
    detail: str = ""
    remedy: str = ""

    @property
    def is_in_the_way(self) -> bool:
        """Without it no limit can be measured."""
        return self.state is State.MISSING


class Feature(NamedTuple):
    """A feature of the kernel, tested with iproute2: independent of our own netlink code."""

    name: str
    module: str
    purpose: str
    command: str


_YES = "protocol all bpf bytecode '1,6 0 0 4294967295'"  # a filter whose program always matches
_REDIRECT = "action mirred egress redirect dev probeifb"
_CLASS = "htb rate 500kbit burst 4000 cburst 4000"
_ON_IFB = "add dev probeifb parent"
# Each depends on those above it.
FEATURES = (
    Feature("veth", "veth", "the link between the two temporary hosts", "ip link add probe0 type veth peer probe1"),
    Feature("ifb", "ifb", "the devices where admitted packets are queued", "ip link add probeifb type ifb"),
    Feature("htb", "sch_htb", "the root of those devices", "tc qdisc add dev probeifb root handle 51b0: htb default 0"),
    Feature("class", "sch_htb", "the rate of each link", f"tc class {_ON_IFB} 51b0: classid 51b0:1 {_CLASS}"),
    Feature("bfifo", "sch_fifo", "bounded queues", f"tc qdisc {_ON_IFB} 51b0:1 handle 1: bfifo limit 160000"),
    Feature("clsact", "sch_ingress", "the hook on a network card", "tc qdisc add dev probe0 clsact"),
    Feature("cls_bpf", "cls_bpf", "the classifier", f"tc filter add dev probe0 egress pref 1 {_YES} da"),
    Feature(
        "mirred", "act_mirred", "the redirect to the IFB", f"tc filter add dev probe0 ingress pref 2 {_YES} {_REDIRECT}"
    ),
)
# Required programs, with their Debian packages.
PROGRAMS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "setpriv": "util-linux"}
_CAPABILITIES = {
    "CAP_NET_ADMIN": "changing the kernel's traffic control",
    "CAP_BPF": "loading the limiter's program",
    "CAP_SYS_ADMIN": "creating the temporary hosts of this test; the running limiter does not have it",
}
_NAMESPACES = ("network namespaces", "two temporary hosts, isolated from this one")
_NO_NAMESPACES = (
    "Run it on the host itself and not in a container, or give the container CAP_SYS_ADMIN; "
    "the kernel needs CONFIG_NET_NS, CONFIG_PID_NS."
)
_PROGRAM = ("the limiter's program", "finding the link of each packet, and admitting or refusing it")


# --- what can be read without any rights ------------------------------------------------------------------------------


def of_this_process(status: str | None = None, release: str | None = None) -> list[Need]:
    """Rights, the kernel's age, and programs. `status`: the text of /proc/self/status; `release`: as of uname(2)."""
    return [
        *(_capability(name, purpose, is_there=has_right(name, status)) for name, purpose in _CAPABILITIES.items()),
        _kernel(release or os.uname().release),
        *(_program(name, package) for name, package in PROGRAMS.items()),
    ]


def _capability(name: str, purpose: str, *, is_there: bool) -> Need:
    if is_there:
        return Need(name, purpose, State.PRESENT)
    remedy = f"Root does not have it here: give this container or unit {name}, or run it on the host itself."
    if os.geteuid() != 0:
        remedy = "Run it as root: sudo scionlab-bw-limiter selftest"
    return Need(name, purpose, State.MISSING, "this process does not have it", remedy)


def _kernel(release: str) -> Need:
    name, purpose = f"Linux {OLDEST_KERNEL[0]}.{OLDEST_KERNEL[1]} or newer", "the limiter's program and its maps"
    numbers = tuple(int(one) for one in re.findall(r"\d+", release)[:2])
    if numbers >= OLDEST_KERNEL:
        return Need(name, purpose, State.PRESENT, f"this is {release}")
    return Need(name, purpose, State.MISSING, f"this is {release}", "Debian 12, Ubuntu 22.04 and newer have one.")


def _program(name: str, package: str) -> Need:
    purpose = f"a program of the package {package}"
    if shutil.which(name) is not None:
        return Need(name, purpose, State.PRESENT)
    detail = f"not in PATH ({os.environ.get('PATH', '')})"
    return Need(name, purpose, State.MISSING, detail, f"Install it: apt-get install {package}")


def untried() -> list[Need]:
    """All kernel features, if none can be tested."""
    features = [Need(one.name, one.purpose, State.UNTRIED) for one in FEATURES]
    return [Need(*_NAMESPACES, State.UNTRIED), *features, Need(*_PROGRAM, State.UNTRIED)]


def namespaces_refused(words: str) -> Need:
    return Need(*_NAMESPACES, State.MISSING, words, _NO_NAMESPACES)


# --- features ---------------------------------------------------------------------------------------------------------


def try_all(run: Callable[..., str]) -> list[Need]:
    """Test features up to the first missing one, in an otherwise empty namespace. `run` takes an argument list, returns
    the program's output and raises `LabError`."""
    found = [Need(*_NAMESPACES, State.PRESENT)]
    for feature in FEATURES:
        if found[-1].state is State.PRESENT:
            found.append(_try(feature, run))
        else:
            found.append(Need(feature.name, feature.purpose, State.UNTRIED, "it needs what is missing above"))
    return found


def _try(feature: Feature, run: Callable[..., str]) -> Need:
    try:
        run(*shlex.split(feature.command))
    except LabError as exc:
        remedy = (
            f"Load the kernel module: modprobe {feature.module}. Where there is none, boot a kernel that has it; "
            "Debian's own linux-image packages do."
        )
        return Need(feature.name, feature.purpose, State.MISSING, _words_of(exc), remedy)
    return Need(feature.name, feature.purpose, State.PRESENT)


def try_program(load: Callable[[], object]) -> Need:
    """`load` has the kernel check the limiter's program; it raises `AgentError` with the remedy."""
    try:
        load()
    except AgentError as exc:
        return Need(*_PROGRAM, State.MISSING, exc.message.rstrip("."))
    return Need(*_PROGRAM, State.PRESENT)


def _words_of(failure: LabError) -> str:
    """The command as typed, and its output."""
    return re.sub(r"ip netns exec \S+ ", "", " ".join(str(failure).split())).rstrip(".")
