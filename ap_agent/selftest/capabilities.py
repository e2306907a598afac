"""What the kernel and this process can do: each feature tried for real in a throw-away namespace, or, without the
rights for that, as far as it can be read. Every one says what it is for, and what helps where it is missing.
"""

from __future__ import annotations

import gzip
import os
import re
import select
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ap_agent.common.errors import AgentError
from ap_agent.limiter.events import Interest, Listener
from ap_agent.selftest.features import FEATURES, Capability, Feature, State, Use
from ap_agent.whole.admission import Admission
from ap_agent.whole.bpf import BpfUnavailableError
from measuring.netns import LabError, Namespace

EVENT_WAIT_S = 2.0


_EVENTS = Capability(
    "netlink events",
    Use.LIMITS,
    "hearing at once when somebody changes the kernel",
    State.UNTRIED,
    remedy="Nothing in the kernel can be switched off here; look for a container or a policy that filters netlink.",
)
_NAMESPACES = Capability(
    "network namespaces", Use.SELF_TEST, "two throw-away hosts, apart from everything of this one", State.UNTRIED
)
_NO_NAMESPACES = (
    "Run it on the host itself and not in a container, or give the container CAP_SYS_ADMIN; "
    "the kernel needs CONFIG_NET_NS, CONFIG_PID_NS."
)
_EBPF = Capability(
    "eBPF programs", Use.OPTION, "whole_datagrams: the program that decides about whole datagrams", State.UNTRIED
)
# <linux/capability.h>
_CAPABILITIES = (
    ("CAP_NET_ADMIN", 12, Use.LIMITS, "changing the kernel's traffic control"),
    ("CAP_SYS_ADMIN", 21, Use.SELF_TEST, "making namespaces"),
    ("CAP_BPF", 39, Use.OPTION, "whole_datagrams: loading its program"),
)


# --- what can be read without any rights ------------------------------------------------------------------------------


def process_capabilities(status: str | None = None) -> list[Capability]:
    """This process's own, from the text of /proc/self/status."""
    text = status if status is not None else Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", text, flags=re.MULTILINE)
    bits = int(found.group(1), 16) if found else 0
    return [
        Capability(name, use, purpose, State.PRESENT)
        if bits >> bit & 1
        else Capability(name, use, purpose, State.MISSING, "this process does not have it", _without(name))
        for name, bit, use, purpose in _CAPABILITIES
    ]


def _without(name: str) -> str:
    if os.geteuid() != 0:
        return "Run it as root: sudo scionlab-bw-agent selftest"
    return f"Root does not have it here: give this container or unit {name}, or run it on the host itself."


def unread(kernel: KernelFiles | None = None) -> list[Capability]:
    """Everything of the kernel as its own files tell, where nothing can be tried."""
    known = kernel or KernelFiles.of_this_host()
    return [_NAMESPACES, *(_as_the_files_tell(one, known) for one in FEATURES), _EBPF, _EVENTS]


def namespaces_refused(words: str) -> Capability:
    """The kernel would not make them."""
    return replace(_NAMESPACES, state=State.MISSING, detail=words, remedy=_NO_NAMESPACES)


def _as_the_files_tell(feature: Feature, known: KernelFiles) -> Capability:
    is_there, detail = known.has(feature.module, feature.config)
    state = State.MISSING if is_there is False else State.UNTRIED
    remedy = _remedy(feature) if state is State.MISSING else ""
    return Capability(feature.name, feature.use, feature.purpose, state, detail, remedy)


@dataclass(frozen=True)
class KernelFiles:
    """What a kernel says of itself in files that everybody may read."""

    config: Mapping[str, str]
    files: frozenset[str]  # names of modules that lie on the disk or are built in
    loaded: frozenset[str]

    @classmethod
    def of_this_host(cls) -> KernelFiles:
        release = os.uname().release
        modules = Path("/lib/modules") / release
        listed = "".join(_read(modules / name) for name in ("modules.builtin", "modules.dep"))
        loaded = Path("/sys/module")
        return cls(
            config=parse_config(_read(Path("/proc/config.gz")) or _read(Path("/boot") / f"config-{release}")),
            files=frozenset(name.replace("-", "_") for name in re.findall(r"([\w-]+)\.ko\b", listed)),
            loaded=frozenset(one.name for one in loaded.iterdir()) if loaded.is_dir() else frozenset(),
        )

    def has(self, module: str, symbol: str) -> tuple[bool | None, str]:
        """Whether it seems to be there (None: unknown), and how that is known."""
        if module in self.loaded:
            return True, f"module {module} is loaded"
        if module in self.files:
            return True, f"module {module} is installed"
        value = self.config.get(symbol)
        if value == "y":
            return True, f"built into the kernel ({symbol}=y)"
        if value == "m":
            return None, f"made as a module ({symbol}=m), which was not found below /lib/modules"
        if self.config:
            return False, f"not in this kernel ({symbol} is not set)"
        return None, "the kernel's files do not say"


def parse_config(text: str) -> dict[str, str]:
    """The settings of a kernel's configuration file."""
    return dict(re.findall(r"^(CONFIG_\w+)=(\S+)$", text, flags=re.MULTILINE))


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("ascii", errors="replace")
    except (OSError, EOFError):
        return ""


# --- what is tried ----------------------------------------------------------------------------------------------------


def try_all(host: Namespace) -> list[Capability]:
    """Every feature, in a namespace that has nothing else in it. Some hold on to others, so their order counts."""
    found = [replace(_NAMESPACES, state=State.PRESENT)]
    for feature in FEATURES:
        absent = [one.name for one in found if one.name in feature.needs and one.state is not State.PRESENT]
        found.append(_needs_others(feature, absent) if absent else try_one(feature, host.run))
    return [*found, try_ebpf(), _try_events(host)]


def try_one(feature: Feature, run: Callable[..., str]) -> Capability:
    """`run` takes an argument list, returns what the program printed and raises `LabError`."""
    said = ""
    state, detail = State.PRESENT, ""
    try:
        for command in feature.commands:
            said = run(*shlex.split(command))
    except LabError as exc:
        state, detail = State.MISSING, _words_of(exc)
    else:
        if feature.expects not in said:
            state, detail = State.MISSING, f"the kernel took it and keeps something else than {feature.expects!r}"
    remedy = _remedy(feature) if state is State.MISSING else ""
    return Capability(feature.name, feature.use, feature.purpose, state, detail, remedy)


def _words_of(failure: LabError) -> str:
    """The command as a person would type it, and what it said."""
    return re.sub(r"ip netns exec \S+ ", "", " ".join(str(failure).split())).rstrip(".")


def _needs_others(feature: Feature, absent: list[str]) -> Capability:
    detail = f"it can only be tried with {' and '.join(absent)}"
    return Capability(feature.name, feature.use, feature.purpose, State.UNTRIED, detail)


def _remedy(feature: Feature) -> str:
    return (
        f"Load the kernel module: modprobe {feature.module}. Where there is none, boot a kernel that has it "
        f"({feature.config}); Debian's own linux-image packages do."
    )


def try_ebpf() -> Capability:
    """The agent's own program is loaded, as the kernel's verifier likes it, and let go of; nothing is attached."""
    try:
        Admission("to_user").close()
    except BpfUnavailableError as exc:
        return replace(
            _EBPF, state=State.MISSING, detail=exc.reason, remedy=f"{exc.remedy[:1].upper()}{exc.remedy[1:]}."
        )
    return replace(_EBPF, state=State.PRESENT)


def _try_events(host: Namespace) -> Capability:
    """A device appears, and the agent's own listener hears of it."""

    def listen() -> bool:
        with Listener() as events:
            host.ip("link", "add", "probeev0", "type", "veth", "peer", "name", "probeev1")
            return _hears(events)

    try:
        is_heard = host.call(listen)
    except (AgentError, LabError, OSError) as exc:
        return replace(_EVENTS, state=State.MISSING, detail=str(exc))
    if not is_heard:
        return replace(_EVENTS, state=State.MISSING, detail="a new device was not heard of")
    return replace(_EVENTS, state=State.PRESENT, remedy="")


def _hears(events: Listener) -> bool:
    readable, _, _ = select.select([events], [], [], EVENT_WAIT_S)
    return bool(readable) and events.drain(Interest(devices=None)).messages > 0
