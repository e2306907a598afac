"""The kernel: observe it, ask it for routes, apply one operation. The only module with netlink sockets.

Links and addresses come through pyroute2. Traffic control and route questions use messages of our own (`tcmsg`) on a
plain socket: a dump of thousands of classes is parsed where it is needed, and an operation of two messages is sent in
one piece, which the kernel works through even if we are killed meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import itertools
import socket
import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from pyroute2 import IPRoute

from ap_agent import tcmsg, u32msg
from ap_agent.errors import AgentError, ApplyError
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
    InstalledFilter,
    Qdisc,
    TcState,
    Tree,
    is_our_ifb,
    root_is_ours,
)
from ap_agent.ops import ClsactAdd, FilterAdd, IfbAdd, Op
from ap_agent.placement import Route, RouteQuery
from bandwidth_config import IPAddress

NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR = 0x1, 0x4, 0x300, 0x10
NLM_F_CAPPED, NLM_F_ACK_TLVS = 0x100, 0x200
NLMSG_ERROR, NLMSG_DONE = 2, 3
NLMSGERR_ATTR_MSG = 1
SOL_NETLINK, NETLINK_EXT_ACK = 270, 11
RTM_GETLINK, RTM_GETROUTE = 18, 26
IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS = 29, 1 << 3
RTA_DST, RTA_SRC, RTA_OIF, RTA_IP_PROTO, RTA_SPORT, RTA_DPORT = 1, 2, 4, 27, 28, 29
CAP_NET_ADMIN = 12
DUMP_ATTEMPTS = 5
REPLY_TIMEOUT_S = 30  # the kernel answers at once; thousands of classes on a slow machine take seconds

_HEADER = struct.Struct("=IHHII")
_RTMSG = struct.Struct("=BBBBBBBBI")
_IFINFO = struct.Struct("=BxHiII")  # family, type, index, flags, which flags


def has_net_admin() -> bool:
    """Whether this process may change the network of its namespace."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> CAP_NET_ADMIN & 1)
    return False


class _RefusedError(Exception):
    """The kernel's answer to one message of a request: which, why, and its own words if it had any."""

    def __init__(self, index: int, number: int, text: str) -> None:
        super().__init__(text)
        self.index, self.number, self.text = index, number, text


class _Socket:
    """Requests and dumps on a plain rtnetlink socket."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._socket.setsockopt(SOL_NETLINK, NETLINK_EXT_ACK, 1)
        self._socket.settimeout(REPLY_TIMEOUT_S)
        self._socket.bind((0, 0))
        self._sequence = itertools.count(1)

    def close(self) -> None:
        self._socket.close()

    def request(self, messages: list[Message]) -> None:
        """Send all in one piece and wait for every acknowledgement. Raises `_RefusedError` for the first refusal."""
        numbers = [self._send_number() for _ in messages]
        packed = b"".join(
            _pack(kind, flags | NLM_F_REQUEST | NLM_F_ACK, number, body)
            for (kind, flags, body), number in zip(messages, numbers, strict=True)
        )
        self._socket.send(packed)
        waiting, refused = set(numbers), None
        while waiting:
            for kind, flags, number, body in self._receive():
                if kind == NLMSG_ERROR and number in waiting:
                    waiting.discard(number)
                    code, text = _error(flags, body)
                    if code and (refused is None or numbers.index(number) < refused.index):
                        refused = _RefusedError(numbers.index(number), code, text)
        if refused is not None:
            raise refused

    def ask(self, kind: int, body: bytes) -> bytes:
        """One question with one answer."""
        number = self._send_number()
        self._socket.send(_pack(kind, NLM_F_REQUEST, number, body))
        while True:
            for answer, flags, answer_number, data in self._receive():
                if answer_number != number:
                    continue
                if answer == NLMSG_ERROR:
                    code, text = _error(flags, data)
                    raise _RefusedError(0, code, text)
                return data

    def dump(self, kind: int, body: bytes) -> list[bytes]:
        """Again when the kernel says that the list changed under our eyes."""
        for _ in range(DUMP_ATTEMPTS):
            found, is_consistent = self._dump_once(kind, body)
            if is_consistent:
                return found
        raise AgentError("The kernel's traffic control changes faster than it can be read; try again.", retryable=True)

    def _dump_once(self, kind: int, body: bytes) -> tuple[list[bytes], bool]:
        number = self._send_number()
        self._socket.send(_pack(kind, NLM_F_REQUEST | NLM_F_DUMP, number, body))
        found: list[bytes] = []
        is_consistent = True
        while True:
            for answer, flags, answer_number, data in self._receive():
                if answer_number != number:
                    continue
                is_consistent = is_consistent and not flags & NLM_F_DUMP_INTR
                if answer == NLMSG_DONE:
                    return found, is_consistent
                if answer == NLMSG_ERROR:
                    code, text = _error(flags, data)
                    raise _RefusedError(0, code, text)
                found.append(data)

    def _send_number(self) -> int:
        return next(self._sequence) & 0xFFFF_FFFF

    def _receive(self) -> Iterator[tuple[int, int, int, bytes]]:
        try:
            data = self._socket.recv(1 << 20)
        except TimeoutError as exc:
            raise AgentError(
                f"The kernel did not answer within {REPLY_TIMEOUT_S} s; try again.", retryable=True
            ) from exc
        position = 0
        while position + _HEADER.size <= len(data):
            length, kind, flags, number, _ = _HEADER.unpack_from(data, position)
            if length < _HEADER.size:
                return
            yield kind, flags, number, data[position + _HEADER.size : position + length]
            position += (length + 3) & ~3


def _pack(kind: int, flags: int, number: int, body: bytes) -> bytes:
    packed = _HEADER.pack(_HEADER.size + len(body), kind, flags, number, 0) + body
    return packed + b"\0" * (-len(packed) % 4)


def _error(flags: int, body: bytes) -> tuple[int, str]:
    """(positive errno, the kernel's own sentence)."""
    (code,) = struct.unpack_from("=i", body)
    text = ""
    if flags & NLM_F_ACK_TLVS:
        (length,) = struct.unpack_from("=I", body, 4)
        skipped = 4 + (_HEADER.size if flags & NLM_F_CAPPED else (length + 3) & ~3)
        message = dict(tcmsg.attributes(body[skipped:])).get(NLMSGERR_ATTR_MSG, b"")
        text = message.rstrip(b"\0").decode(errors="replace")
    return -code, text


def ifb_in_service() -> int | None:
    """The number of our IFB while it is there and up; None otherwise. One question, whatever the number of links.

    A redirect to an IFB that is gone drops every packet, also after another device got its name: that one has another
    number. Raises `AgentError` where the kernel does not answer.
    """
    asker = _Socket()
    try:
        body = _IFINFO.pack(socket.AF_UNSPEC, 0, 0, 0, 0) + tcmsg.text(IFLA_IFNAME, IFB_NAME)
        return _parse_ifb(asker.ask(RTM_GETLINK, body + tcmsg.u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS)))
    except _RefusedError as exc:
        if exc.number == errno.ENODEV:
            return None
        raise AgentError(f"The kernel does not say whether {IFB_NAME} is there ({exc.text or exc.number}).") from exc
    finally:
        asker.close()


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


class RtNetlink:
    """The `Kernel` of `reconcile`, for the network namespace that the process is in; to be used in a `with`."""

    def __init__(self) -> None:
        self._socket = _Socket()
        self._iproute: Any = IPRoute()
        self._names: dict[int, str] = {}

    def __enter__(self) -> RtNetlink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()
        self._iproute.close()

    # --- observing ---

    def observe(self) -> TcState:
        """Raises `AgentError` when the kernel refuses to be read."""
        try:
            devices = tuple(self._devices())
            self._names = {one.ifindex: one.name for one in devices}
            return TcState(devices, self._addresses(), self._trees(devices))
        except _RefusedError as exc:
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

    def _devices(self) -> Iterator[Device]:
        for link in self._iproute.get_links():
            yield Device(
                ifindex=link["index"],
                name=link.get_attr("IFLA_IFNAME"),
                mtu_bytes=link.get_attr("IFLA_MTU"),
                arphrd=link["ifi_type"],
                kind=link.get_nested("IFLA_LINKINFO", "IFLA_INFO_KIND") or "",
                alias=link.get_attr("IFLA_IFALIAS") or "",
                is_up=bool(link["flags"] & IFF_UP),
            )

    def _addresses(self) -> dict[IPAddress, tuple[int, ...]]:
        found: dict[IPAddress, list[int]] = defaultdict(list)
        for one in self._iproute.get_addr():
            # On a point-to-point device IFA_ADDRESS is the other end.
            text = one.get_attr("IFA_LOCAL") or one.get_attr("IFA_ADDRESS")
            if text:
                found[ipaddress.ip_address(text)].append(one["index"])
        return {address: tuple(indexes) for address, indexes in found.items()}

    def _trees(self, devices: tuple[Device, ...]) -> dict[int, Tree]:
        by_device: dict[int, list[Qdisc]] = defaultdict(list)
        for data in self._socket.dump(tcmsg.RTM_GETQDISC, tcmsg.tcmsg(0)):
            ifindex, qdisc = tcmsg.parse_qdisc(data)
            if qdisc.handle.major:  # handle 0: the kernel's own default
                by_device[ifindex].append(qdisc)
        return {one.ifindex: self._tree(one, by_device[one.ifindex]) for one in devices if one.ifindex in by_device}

    def _tree(self, device: Device, qdiscs: list[Qdisc]) -> Tree:
        root = next((one for one in qdiscs if one.parent == AT_ROOT), None)
        ingress = next((one.kind for one in qdiscs if one.parent == AT_INGRESS), None)
        filters: list[InstalledFilter] = []
        if ingress is not None:
            filters += self._filters(device.ifindex, INGRESS_HOOK)
        if ingress == "clsact":
            filters += self._filters(device.ifindex, EGRESS_HOOK)
        if root is None or not root_is_ours(root, IFB_MAJOR if device.name == IFB_NAME else NIC_MAJOR):
            return Tree(root, ingress, filters=tuple(filters))
        filters += self._filters(device.ifindex, root.handle)
        classes = [
            found
            for data in self._dump(tcmsg.RTM_GETTCLASS, device.ifindex)
            if (found := tcmsg.parse_class(data)) is not None
        ]
        return Tree(
            root=root,
            ingress=ingress,
            classes=tuple(one for one, _ in classes),
            leaves=tuple(one for one in qdiscs if one.parent not in (AT_ROOT, AT_INGRESS)),
            filters=tuple(filters),
            counters={one.handle: counters for one, counters in classes},
        )

    def _filters(self, ifindex: int, hook: Handle) -> list[InstalledFilter]:
        found = self._dump(tcmsg.RTM_GETTFILTER, ifindex, int(hook))
        return [u32msg.parse_filter(data, self._names) for data in found]

    def _dump(self, kind: int, ifindex: int, parent: int = 0) -> list[bytes]:
        """Nothing for a device that disappeared meanwhile: the next cycle sees that."""
        try:
            return self._socket.dump(kind, tcmsg.tcmsg(ifindex, parent=parent))
        except _RefusedError as exc:
            if exc.number in (errno.ENODEV, errno.EINVAL):
                return []
            raise

    def route(self, query: RouteQuery) -> Route:
        """How the kernel would send a UDP packet, policy rules included."""
        bits = query.destination.max_prefixlen
        family = socket.AF_INET if query.destination.version == 4 else socket.AF_INET6
        body = _RTMSG.pack(family, bits, bits if query.source else 0, 0, 0, 0, 0, 0, 0)
        body += tcmsg.attribute(RTA_DST, query.destination.packed)
        if query.source is not None:
            body += tcmsg.attribute(RTA_SRC, query.source.packed)
        body += tcmsg.attribute(RTA_IP_PROTO, bytes([socket.IPPROTO_UDP]))
        for number, port in ((RTA_SPORT, query.source_port), (RTA_DPORT, query.destination_port)):
            if port is not None:
                body += tcmsg.attribute(number, port.to_bytes(2))
        try:
            return _parse_route(self._socket.ask(RTM_GETROUTE, body))
        except _RefusedError as exc:
            return Route(_ROUTE_ERRORS.get(exc.number, "other"))

    # --- applying ---

    def apply(self, op: Op) -> None:
        """Raises `ApplyError` with the operation and the kernel's error number."""
        try:
            self._socket.request(self._messages(op))
        except _RefusedError as exc:
            if isinstance(op, ClsactAdd):
                self._undo_half_clsact(op.device.ifindex, exc.index)
            raise ApplyError(str(op), exc.number, exc.text) from exc

    def _undo_half_clsact(self, ifindex: int, refused: int) -> None:
        """Refused was either the clsact, because somebody made one in this moment and our note landed in theirs, or
        the note, and our clsact would look like theirs: take back the half that was done.
        """
        marker = u32msg.MARKER
        note = InstalledFilter(marker.hook, marker.chain, marker.pref, marker.protocol, kind="u32", handle=0)
        undo = (
            (tcmsg.RTM_DELTFILTER, 0, u32msg.pack_filter_name(ifindex, note, whole_list=True))
            if refused == 0
            else (tcmsg.RTM_DELQDISC, 0, tcmsg.pack_clsact(ifindex))
        )
        with contextlib.suppress(_RefusedError):  # both were refused: nothing to take back
            self._socket.request([undo])

    def _messages(self, op: Op) -> list[Message]:
        if isinstance(op, IfbAdd):  # there is no number to look up yet
            return messages(op, 0)
        redirect_to = op.new.redirect_to if isinstance(op, FilterAdd) else None
        ifindex = op.device.ifindex or self._ifindex_of(op.device.name, op)
        return messages(op, ifindex, self._ifindex_of(redirect_to, op) if redirect_to else None)

    def _ifindex_of(self, name: str, op: Op) -> int:
        try:
            return socket.if_nametoindex(name)
        except OSError as exc:
            raise ApplyError(str(op), exc.errno or errno.ENODEV, f"no device {name}") from exc


_ROUTE_KINDS: dict[int, Any] = {1: "unicast", 2: "local", 6: "blackhole", 7: "unreachable", 8: "prohibit"}
# What the kernel answers instead of a route (fib_props in fib_semantics.c, ip6_route.c).
_ROUTE_ERRORS: dict[int, Any] = {
    errno.ENETUNREACH: "none",
    errno.EHOSTUNREACH: "unreachable",
    errno.EINVAL: "blackhole",
    errno.EACCES: "prohibit",
}


def _parse_route(data: bytes) -> Route:
    kind = _RTMSG.unpack_from(data)[7]
    found = dict(tcmsg.attributes(data[_RTMSG.size :]))
    ifindex = struct.unpack("=i", found[RTA_OIF])[0] if RTA_OIF in found else 0
    return Route(_ROUTE_KINDS.get(kind, "other"), ifindex)
