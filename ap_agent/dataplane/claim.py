"""One limiter per network namespace, whatever its folders: a claim that only CAP_NET_ADMIN makes and that ends with its
process.

It is a group of nfnetlink_log, bound by a netlink socket: the kernel gives a group of a network namespace to one socket
at a time, to privileged processes alone, and frees it when that socket closes. No rule logs to this group, so no packet
meets it. Compared with it: any local user could take an abstract Unix socket, a file belongs to one
container's view of the disk, an nftables table with an owner breaks the reload of a saved rule set, and an XDP link on
our IFB would make every received packet of the host a little dearer.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from pathlib import Path

from ap_agent.common.errors import AgentError, LockHeldError
from ap_agent.common.lock import command_of
from ap_agent.common.rights import require_rights
from ap_agent.dataplane.attributes import attribute

GROUP = 0x736C  # "sl"
_NETLINK_NETFILTER = 12
_CONFIGURE, _COMMAND, _BIND = 4 << 8 | 1, 1, b"\1"  # NFULNL_MSG_CONFIG, NFULA_CFG_CMD, NFULNL_CFG_CMD_BIND
_REQUEST_ACK = 0x1 | 0x4
_MOST_PIDS = 1 << 22  # other port numbers are random
_NOT_AVAILABLE = {errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT, errno.EAFNOSUPPORT, errno.EINVAL, errno.EOPNOTSUPP}
_GROUPS = Path("/proc/thread-self/net/netfilter/nfnetlink_log")  # readable for root


class Claim:
    """On the network namespace of the thread that takes it."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def take(self) -> None:
        """Never waits; no effect if taken, or if the kernel has no nfnetlink_log. Raises `LockHeldError`,
        `NotPermittedError`, `AgentError`."""
        if self._socket is not None:
            return
        try:
            opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER)
        except OSError as exc:
            if exc.errno in _NOT_AVAILABLE:
                return
            raise AgentError(f"The network namespace cannot be claimed: {exc.strerror}.", retryable=True) from exc
        number = _asked(opened)
        if number == 0:
            self._socket = opened
            return
        opened.close()
        if number == errno.EPERM:
            require_rights("CAP_NET_ADMIN")
            raise LockHeldError(_refusal())
        if number not in _NOT_AVAILABLE:
            raise AgentError(f"The network namespace cannot be claimed: {os.strerror(number)}.", retryable=True)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _asked(opened: socket.socket) -> int:
    """Bind the group; 0, or the kernel's errno."""
    body = struct.pack("!BBH", socket.AF_UNSPEC, 0, GROUP) + attribute(_COMMAND, _BIND)
    try:
        opened.bind((0, 0))  # the port is our pid, which names us
        opened.send(struct.pack("=IHHII", 16 + len(body), _CONFIGURE, _REQUEST_ACK, 1, 0) + body)
        (number,) = struct.unpack_from("=i", opened.recv(4096), 16)
    except OSError as exc:
        return exc.errno or errno.EIO
    return -int(number)


def _refusal() -> str:
    try:
        rows = [line.split() for line in _GROUPS.read_text().splitlines()]
        pid = next((int(row[1]) for row in rows if int(row[0]) == GROUP), 0)
    except (OSError, ValueError, IndexError):
        pid = 0
    who = f" (root sees its pid in /proc/net/netfilter/nfnetlink_log, group {GROUP})"
    if 0 < pid < _MOST_PIDS:
        who = f": process {pid} ({command_of(pid)})"
    return (
        f"Another limiter manages the network of this host{who}. Two of them undo each other's limits; end that one "
        "first, or remove this one."
    )
