"""Many datagrams per system call: sendmmsg(2) and recvmmsg(2) through ctypes, with the kernel's arrival times.

One Python call per datagram costs more than the datagram: batches keep a sender of 12 500 packets per second (150
Mbit/s) at a fraction of one core. Arrival times come from the kernel (SO_TIMESTAMPNS), so that a receiver which had
to wait for the processor does not bend what it measures; they are converted to CLOCK_MONOTONIC, which all network
namespaces of a machine share.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import time

SO_TIMESTAMPNS = 35  # <asm-generic/socket.h>; also the cmsg type (SCM_TIMESTAMPNS)
SO_SNDBUFFORCE = 32
SO_RCVBUFFORCE = 33
_NOT_TAKEN = frozenset(
    {errno.EAGAIN, errno.ENOBUFS, errno.ECONNREFUSED, errno.EINTR}
    | {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EINVAL, errno.EPERM}
)
_BATCH_BYTES = 1 << 20  # of a sender: large datagrams take more room, not more memory
_TIMESPEC = struct.Struct("@qq")
_CONTROL_BYTES = 64
_CMSG_HEADER_BYTES = 16  # size_t length, int level, int type on 64-bit Linux


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Msghdr(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("namelen", ctypes.c_uint32),
        ("iov", ctypes.POINTER(_Iovec)),
        ("iovlen", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("controllen", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Mmsghdr(ctypes.Structure):
    _fields_ = (("header", _Msghdr), ("length", ctypes.c_uint))


_libc = ctypes.CDLL(None, use_errno=True)


class _Slots:
    """`count` message headers with a buffer of `size` bytes each, allocated once."""

    def __init__(self, count: int, size: int) -> None:
        self.count = count
        self.size = size
        self.storage = bytearray(count * size)
        self._storage_pin = (ctypes.c_char * len(self.storage)).from_buffer(self.storage)
        self.views = [memoryview(self.storage)[i * size : (i + 1) * size] for i in range(count)]
        self.iovecs = (_Iovec * count)()
        self.headers = (_Mmsghdr * count)()
        address = ctypes.addressof(self._storage_pin)
        for index in range(count):
            self.iovecs[index].base = address + index * size
            self.iovecs[index].length = size
            self.headers[index].header.iov = ctypes.pointer(self.iovecs[index])
            self.headers[index].header.iovlen = 1


class BatchSender:
    """Sends up to `count` datagrams of one size through a connected socket in one call."""

    def __init__(self, template: bytes | bytearray, count: int = 64) -> None:
        count = max(1, min(count, _BATCH_BYTES // len(template)))
        self._slots = _Slots(count, len(template))
        for view in self._slots.views:
            view[:] = template
        self.views = self._slots.views
        self.count = count

    def send(self, sock: socket.socket, number: int) -> int:
        """Send the first `number` buffers without waiting; returns how many the socket took.

        Raises `OSError` for anything but a full socket (EAGAIN, ENOBUFS), what an earlier datagram's ICMP message left
        behind (ECONNREFUSED), a way or an own address (EINVAL) that is missing for the moment, and a packet filter of
        the sender's own host (EPERM): those count as not taken, the caller tries again or does without.
        """
        done = _libc.sendmmsg(sock.fileno(), self._slots.headers, number, socket.MSG_DONTWAIT)
        if done >= 0:
            return int(done)
        code = ctypes.get_errno()
        if code in _NOT_TAKEN:
            return 0
        raise OSError(code, os.strerror(code))


class BatchReceiver:
    """Receives what is there, up to `count` datagrams per call, with the kernel's arrival times."""

    def __init__(self, count: int = 64, size: int = 2_048) -> None:
        """A datagram that is larger than `size` bytes is cut."""
        self._slots = _Slots(count, size)
        self._control = bytearray(count * _CONTROL_BYTES)
        self._control_pin = (ctypes.c_char * len(self._control)).from_buffer(self._control)
        address = ctypes.addressof(self._control_pin)
        for index in range(count):
            self._slots.headers[index].header.control = address + index * _CONTROL_BYTES
        self.views = self._slots.views
        self._used = count
        self._offset_ns = realtime_offset_ns()

    def receive(self, sock: socket.socket) -> list[tuple[int, int]]:
        """(size, arrival in ns of CLOCK_MONOTONIC) of each datagram taken; its bytes are in `views`, same order."""
        headers = self._slots.headers
        for index in range(self._used):  # the others are as they were
            headers[index].header.controllen = _CONTROL_BYTES
        self._used = 0
        done = _libc.recvmmsg(sock.fileno(), headers, self._slots.count, socket.MSG_DONTWAIT, None)
        if done < 0:
            code = ctypes.get_errno()
            if code in (errno.EAGAIN, errno.ECONNREFUSED, errno.EINTR):
                return []
            raise OSError(code, os.strerror(code))
        self._used = done
        taken = []
        for index in range(done):
            seconds, nanoseconds = _TIMESPEC.unpack_from(self._control, index * _CONTROL_BYTES + _CMSG_HEADER_BYTES)
            taken.append((headers[index].length, seconds * 1_000_000_000 + nanoseconds - self._offset_ns))
        return taken


def realtime_offset_ns() -> int:
    """CLOCK_REALTIME - CLOCK_MONOTONIC, the best of a few readings; the kernel stamps packets with the former."""
    best_width, best_offset = None, 0
    for _ in range(5):
        before = time.monotonic_ns()
        real = time.time_ns()
        after = time.monotonic_ns()
        if best_width is None or after - before < best_width:
            best_width, best_offset = after - before, real - (before + after) // 2
    return best_offset


def prepare(sock: socket.socket, *, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
    """Non-blocking, with arrival times and buffers of this size (root may exceed the system's maximum)."""
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    sock.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, send_buffer_bytes // 2)  # the kernel doubles what it is given
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, receive_buffer_bytes // 2)
