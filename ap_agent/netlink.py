"""The kernel: observe it, ask it for routes, apply operations. What is sent and read, in the agent's own words.

Links and addresses come through pyroute2. Traffic control and route questions use messages of our own (`tcmsg`) on a
plain socket (`rtsocket`): a dump of thousands of classes is parsed where it is needed, and thousands of operations are
sent in a few pieces.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from pyroute2 import IPRoute

from ap_agent import routemsg, tcmsg, u32msg
from ap_agent.common.errors import AgentError, ApplyError
from ap_agent.dataplane.rtsocket import PIECE_BYTES, Refusal, RefusedError, RtSocket
from ap_agent.messages import (
    IFF_UP,
    IFLA_IFALIAS,
    IFLA_IFNAME,
    IFLA_INFO_KIND,
    IFLA_LINKINFO,
    Message,
    messages,
)
from ap_agent.model import (
    AT_INGRESS,
    AT_ROOT,
    EGRESS_HOOK,
    IFB_MAJOR,
    IFB_NAME,
    INGRESS_HOOK,
    NIC_MAJOR,
    Device,
    Handle,
    HtbClass,
    InstalledFilter,
    Qdisc,
    TcState,
    Tree,
    is_inner,
    is_our_ifb,
    root_is_ours,
)
from ap_agent.ops import ClsactAdd, FilterAdd, IfbAdd, Op
from ap_agent.placement import Route, RouteQuery
from ap_agent.readback import DumpCounters, DumpMemory, InterruptedDumpError, counters_of
from bandwidth_config import IPAddress

RTM_GETLINK = 18
IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS = 29, 1 << 3
CAP_NET_ADMIN = 12
DUMP_ATTEMPTS = 5
BUSY_PAUSE_S = 0.005  # between two tries of what is still in use

T = TypeVar("T")

_IFINFO = struct.Struct("=BxHiII")  # family, type, index, flags, which flags


def has_net_admin() -> bool:
    """Whether this process may change the network of its namespace."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> CAP_NET_ADMIN & 1)
    return False


def ifb_in_service() -> int | None:
    """The number of our IFB while it is there and up; None otherwise. One question, whatever the number of links.

    A redirect to an IFB that is gone drops every packet, also after another device got its name: that one has another
    number. Raises `AgentError` where the kernel does not answer.
    """
    asker = RtSocket()
    try:
        return _ask_for_ifb(asker)
    finally:
        asker.close()


def _ask_for_ifb(asker: RtSocket) -> int | None:
    try:
        return _parse_ifb(asker.ask(RTM_GETLINK, _link_question(IFB_NAME)))
    except RefusedError as exc:
        if exc.number == errno.ENODEV:
            return None
        raise AgentError(f"The kernel does not say whether {IFB_NAME} is there ({exc.text or exc.number}).") from exc


def _link_question(name: str) -> bytes:
    body = _IFINFO.pack(socket.AF_UNSPEC, 0, 0, 0, 0) + tcmsg.text(IFLA_IFNAME, name)
    return body + tcmsg.u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS)


def _parse_ifb(data: bytes) -> int | None:
    _, arphrd, ifindex, flags, _ = _IFINFO.unpack_from(data)
    found = dict(tcmsg.attributes(data[_IFINFO.size :]))
    kind, alias = (
        one.rstrip(b"\0").decode(errors="replace")
        for one in (
            dict(tcmsg.attributes(found.get(IFLA_LINKINFO, b""))).get(IFLA_INFO_KIND, b""),
            found.get(IFLA_IFALIAS, b""),
        )
    )
    device = Device(ifindex, IFB_NAME, arphrd=arphrd, kind=kind, alias=alias, is_up=bool(flags & IFF_UP))
    return ifindex if device.is_up and is_our_ifb(device) else None


def _devices(iproute: Any) -> Iterator[Device]:
    for link in iproute.get_links():
        yield Device(
            ifindex=link["index"],
            name=link.get_attr("IFLA_IFNAME"),
            mtu_bytes=link.get_attr("IFLA_MTU"),
            arphrd=link["ifi_type"],
            kind=link.get_nested("IFLA_LINKINFO", "IFLA_INFO_KIND") or "",
            alias=link.get_attr("IFLA_IFALIAS") or "",
            is_up=bool(link["flags"] & IFF_UP),
        )


def _addresses(iproute: Any) -> dict[IPAddress, tuple[int, ...]]:
    found: dict[IPAddress, list[int]] = defaultdict(list)
    for one in iproute.get_addr():
        # On a point-to-point device IFA_ADDRESS is the other end.
        text = one.get_attr("IFA_LOCAL") or one.get_attr("IFA_ADDRESS")
        if text:
            found[ipaddress.ip_address(text)].append(one["index"])
    return {address: tuple(indexes) for address, indexes in found.items()}


@dataclass(frozen=True)
class _Qdiscs:
    """What one device has; `ingress` is the kind of what sits at its ingress."""

    root: Qdisc | None
    ingress: str | None
    leaves: tuple[Qdisc, ...]


def _by_device(found: Iterable[tuple[int, Qdisc]]) -> dict[int, _Qdiscs]:
    grouped: dict[int, list[Qdisc]] = defaultdict(list)
    for ifindex, qdisc in found:
        if qdisc.handle.major:  # handle 0: the kernel's own default
            grouped[ifindex].append(qdisc)
    return {
        ifindex: _Qdiscs(
            root=next((one for one in qdiscs if one.parent == AT_ROOT), None),
            ingress=next((one.kind for one in qdiscs if one.parent == AT_INGRESS), None),
            leaves=tuple(one for one in qdiscs if one.parent not in (AT_ROOT, AT_INGRESS)),
        )
        for ifindex, qdiscs in grouped.items()
    }


class RtNetlink:
    """The `Kernel` of `reconcile`, for the network namespace that the process is in; to be used in a `with`."""

    def __init__(self, *, piece_bytes: int = PIECE_BYTES) -> None:
        self._socket = RtSocket(piece_bytes=piece_bytes)
        self._names: dict[int, str] = {}
        self._qdiscs = DumpMemory(tcmsg.parse_qdisc)
        self._queries: Sequence[RouteQuery] = ()
        self._questions: list[bytes] = []
        self._last_qdiscs: tuple[tuple[int, Qdisc], ...] = ()
        self._by_device: dict[int, _Qdiscs] = {}
        self._classes: dict[int, DumpMemory[HtbClass]] = {}
        self._hooks: dict[tuple[int, Handle], DumpMemory[InstalledFilter]] = {}

    def __enter__(self) -> RtNetlink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    @property
    def ports(self) -> frozenset[int]:
        """Of the sockets that this kernel is changed through."""
        return frozenset({self._socket.port})

    def ifb_in_service(self) -> int | None:
        """As the function of this name."""
        return _ask_for_ifb(self._socket)

    # --- observing ---

    def observe(self) -> TcState:
        """Raises `AgentError` when the kernel refuses to be read."""
        try:
            with IPRoute() as iproute:  # opened for each look: it is bound to the thread that made it
                devices, addresses = tuple(_devices(iproute)), _addresses(iproute)
            self._know({one.ifindex: one.name for one in devices})
            return TcState(devices, addresses, self._trees(devices))
        except RefusedError as exc:
            if exc.number in (errno.EPERM, errno.EACCES):
                raise AgentError(
                    f"Reading the kernel's traffic control is not permitted ({exc.text or 'EPERM'}); "
                    "run the agent as root or with CAP_NET_ADMIN."
                ) from exc
            raise AgentError(
                f"The kernel's traffic control cannot be read: {errno.errorcode.get(exc.number)} "
                f"{exc.text}; try again.",
                retryable=True,
            ) from exc

    def _know(self, names: dict[int, str]) -> None:
        if names != self._names:
            self._names = names
            self._hooks = {}  # filters name the devices to which they redirect

    def _trees(self, devices: tuple[Device, ...]) -> dict[int, Tree]:
        found = self._read(self._qdiscs, tcmsg.RTM_GETQDISC, 0)
        if found is not self._last_qdiscs:
            self._last_qdiscs, self._by_device = found, _by_device(found)
        by_device = self._by_device
        self._hooks = {name: memory for name, memory in self._hooks.items() if name[0] in by_device}
        self._classes = {ifindex: memory for ifindex, memory in self._classes.items() if ifindex in by_device}
        return {one.ifindex: self._tree(one, by_device[one.ifindex]) for one in devices if one.ifindex in by_device}

    def _tree(self, device: Device, qdiscs: _Qdiscs) -> Tree:
        root, ingress = qdiscs.root, qdiscs.ingress
        hooks = [INGRESS_HOOK] if ingress is not None else []
        hooks += [EGRESS_HOOK] if ingress == "clsact" else []
        if root is None or not root_is_ours(root, IFB_MAJOR if device.name == IFB_NAME else NIC_MAJOR):
            return Tree(root, ingress, filters=self._filters(device.ifindex, hooks))
        memory = self._classes.setdefault(device.ifindex, DumpMemory(tcmsg.parse_class))
        classes = self._read(memory, tcmsg.RTM_GETTCLASS, device.ifindex)
        filters = self._filters(device.ifindex, [*hooks, root.handle])
        counters = DumpCounters(memory.places, memory.raws, attrgetter("handle"))
        return Tree(root, ingress, classes, qdiscs.leaves, filters, counters)

    def _filters(self, ifindex: int, hooks: Iterable[Handle]) -> tuple[InstalledFilter, ...]:
        found: list[InstalledFilter] = []
        for hook in hooks:
            parse = partial(u32msg.parse_filter, names=self._names)
            memory = self._hooks.setdefault((ifindex, hook), DumpMemory(parse))
            found += self._read(memory, tcmsg.RTM_GETTFILTER, ifindex, int(hook))
        return tuple(found)

    def _read(self, memory: DumpMemory[T], kind: int, ifindex: int, parent: int = 0) -> tuple[T, ...]:
        """Nothing for a device that disappeared meanwhile: the next cycle sees that."""
        for _ in range(DUMP_ATTEMPTS):
            try:
                return memory.take(self._socket.dump(kind, tcmsg.tcmsg(ifindex, parent=parent)))
            except InterruptedDumpError:
                continue
            except RefusedError as exc:
                if exc.number in (errno.ENODEV, errno.EINVAL):
                    return memory.take([])
                raise
        raise AgentError("The kernel's traffic control changes faster than it can be read; try again.", retryable=True)

    def read_part(self, names: Mapping[int, Sequence[Handle]]) -> dict[int, Tree]:
        """These classes with their leaves and counters, by device; what is not there is left out."""
        return {ifindex: self._part(ifindex, handles) for ifindex, handles in names.items()}

    def _part(self, ifindex: int, handles: Sequence[Handle]) -> Tree:
        by_class = [tcmsg.tcmsg(ifindex, handle=int(one)) for one in handles]
        bodies = [one for one in self._socket.ask_all(tcmsg.RTM_GETTCLASS, by_class) if isinstance(one, bytes)]
        classes = [one for one in map(tcmsg.parse_class, bodies) if one is not None]
        by_parent = [tcmsg.tcmsg(ifindex, parent=int(one)) for one in handles if not is_inner(one)]
        answers = self._socket.ask_all(tcmsg.RTM_GETQDISC, by_parent)
        leaves = [tcmsg.parse_qdisc(one)[1] for one in answers if isinstance(one, bytes)]
        return Tree(
            classes=tuple(classes),
            leaves=tuple(one for one in leaves if one.handle.major),
            counters={one.handle: counters_of(body) for one, body in zip(classes, bodies, strict=True)},
        )

    def routes(self, queries: Sequence[RouteQuery]) -> list[Route]:
        """How the kernel would send UDP packets, policy rules included; in the order of the questions."""
        if queries is not self._queries:  # the same ones come with every cycle
            self._queries, self._questions = queries, [routemsg.pack_question(one) for one in queries]
        answers = self._socket.ask_all(routemsg.RTM_GETROUTE, self._questions)
        return [
            routemsg.route_of_refusal(one.number) if isinstance(one, Refusal) else routemsg.parse_answer(one)
            for one in answers
        ]

    # --- applying ---

    def apply(self, ops: Sequence[Op]) -> list[ApplyError | None]:
        """Carry out all of them in order; what is refused is said in its place, and the rest is done.

        A device that one of them creates can be named by operations of a later call, not of this one.
        """
        answers = self._try(ops)
        started = time.monotonic()
        while busy := [number for number, op in enumerate(ops) if _is_worth_waiting(op, answers[number], started)]:
            time.sleep(BUSY_PAUSE_S)  # the kernel lets go of it after a grace period, and nothing tells us when
            for number, answer in zip(busy, self._try([ops[number] for number in busy]), strict=True):
                answers[number] = answer
        return answers

    def _try(self, ops: Sequence[Op]) -> list[ApplyError | None]:
        names = _Names(self._socket)
        answers: list[ApplyError | None] = []
        groups: list[list[Message]] = []
        for op in ops:
            try:
                groups.append(names.messages(op))
                answers.append(None)
            except OSError as exc:
                groups.append([])
                answers.append(_apply_error(op, exc.errno or errno.ENODEV, exc.strerror or ""))
        for number, refusal in enumerate(self._socket.send(groups)):
            if refusal is not None:
                answers[number] = _apply_error(ops[number], refusal.number, refusal.text)
                self._undo_half(ops[number], groups[number], refusal.index)
        return answers

    def _undo_half(self, op: Op, sent: list[Message], refused: int) -> None:
        """Of a clsact with its note. Refused was either the clsact, because somebody made one in this moment and our
        note landed in theirs, or the note, and our clsact would look like theirs: take back the half that was done.
        """
        if not isinstance(op, ClsactAdd):
            return
        ifindex, marker = tcmsg.ifindex_of(sent[0][2]), u32msg.MARKER
        note = InstalledFilter(marker.hook, marker.chain, marker.pref, marker.protocol, kind="u32", handle=0)
        undo: Message = (
            (tcmsg.RTM_DELTFILTER, 0, u32msg.pack_filter_name(ifindex, note, whole_list=True))
            if refused == 0
            else (tcmsg.RTM_DELQDISC, 0, tcmsg.pack_clsact(ifindex))
        )
        self._socket.send([[undo]])  # if both were refused there is nothing to take back, and this is refused too


class _Names:
    """Devices that operations name, each looked up once."""

    def __init__(self, asker: RtSocket) -> None:
        self._asker = asker
        self._known: dict[str, int] = {}

    def messages(self, op: Op) -> list[Message]:
        """Raises `OSError` for a device that is not there."""
        if isinstance(op, IfbAdd):  # there is no number to look up yet
            return messages(op, 0)
        redirect_to = op.new.redirect_to if isinstance(op, FilterAdd) else None
        ifindex = op.device.ifindex or self._ifindex(op.device.name)
        return messages(op, ifindex, self._ifindex(redirect_to) if redirect_to else None)

    def _ifindex(self, name: str) -> int:
        if name not in self._known:
            try:
                data = self._asker.ask(RTM_GETLINK, _link_question(name))
            except RefusedError as exc:
                raise OSError(exc.number, f"no device {name}") from exc
            self._known[name] = _IFINFO.unpack_from(data)[2]
        return self._known[name]


def _is_worth_waiting(op: Op, answer: ApplyError | None, started: float) -> bool:
    return answer is not None and answer.errno == errno.EBUSY and time.monotonic() - started < op.busy_wait_s


def _apply_error(op: Op, number: int, text: str) -> ApplyError:
    return ApplyError(str(op), number, text, links=op.links)
