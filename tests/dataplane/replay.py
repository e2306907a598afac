"""Runs a program on a frame again and again within the kernel (BPF_PROG_TEST_RUN), on one processor or all."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable

SHOT, UNSPEC = 2, -1  # linux/pkt_cls.h: TC_ACT_SHOT, TC_ACT_UNSPEC


class _Options(ctypes.Structure):
    """`struct bpf_test_run_opts` of libbpf."""

    _fields_ = [
        ("sz", ctypes.c_size_t),
        ("data_in", ctypes.c_char_p),
        ("data_out", ctypes.c_void_p),
        ("data_size_in", ctypes.c_uint32),
        ("data_size_out", ctypes.c_uint32),
        ("ctx_in", ctypes.c_void_p),
        ("ctx_out", ctypes.c_void_p),
        ("ctx_size_in", ctypes.c_uint32),
        ("ctx_size_out", ctypes.c_uint32),
        ("retval", ctypes.c_uint32),
        ("repeat", ctypes.c_int),
        ("duration", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("cpu", ctypes.c_uint32),
        ("batch_size", ctypes.c_uint32),
    ]


def replay(program_fd: int, frame: bytes, times: int = 1) -> int:
    """The last verdict, as tc has it. Raises `OSError`."""
    library = ctypes.CDLL("libbpf.so.1", use_errno=True)
    frame = bytes(6) + frame[6:]  # of lo, so that it is for this host
    options = _Options(sz=ctypes.sizeof(_Options), data_in=frame, data_size_in=len(frame), repeat=times)
    if library.bpf_prog_test_run_opts(program_fd, ctypes.byref(options)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return ctypes.c_int32(options.retval).value


def on_each_processor(work: Callable[[], object]) -> int:
    """The same work at the same time on each of them; returns how many there are."""
    processors = sorted(os.sched_getaffinity(0))
    together = threading.Barrier(len(processors))

    def at(processor: int) -> None:
        os.sched_setaffinity(0, {processor})  # of this thread
        together.wait()
        work()

    threads = [threading.Thread(target=at, args=(one,)) for one in processors]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return len(processors)
