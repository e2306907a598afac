"""Bytes of filters that run a program (cls_bpf), both ways. No sockets here.

Layouts are those of linux/pkt_cls.h. The program itself is no part of a message: a file descriptor of the sender names
it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from socket import htons

from ap_agent.model import ADMISSION_HANDLE, ADMISSION_NAME, ADMISSION_PREF, ETH_P_ALL, Handle, Program
from ap_agent.tcmsg import TCA_KIND, TCA_OPTIONS, attribute, tcmsg, text, text_of, u32

TCA_BPF_FD, TCA_BPF_NAME, TCA_BPF_FLAGS, TCA_BPF_ID = 6, 7, 8, 11
TCA_BPF_FLAG_ACT_DIRECT = 1  # what the program returns is the verdict, not a class


def _head(ifindex: int, hook: Handle) -> bytes:
    info = ADMISSION_PREF << 16 | htons(ETH_P_ALL)  # the program looks for itself what a packet is
    return tcmsg(ifindex, ADMISSION_HANDLE, int(hook), info) + text(TCA_KIND, "bpf")


def pack_admission(ifindex: int, hook: Handle, program_fd: int) -> bytes:
    options = u32(TCA_BPF_FD, program_fd) + text(TCA_BPF_NAME, ADMISSION_NAME)
    options += u32(TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT)
    return _head(ifindex, hook) + attribute(TCA_OPTIONS, options)


def pack_admission_name(ifindex: int, hook: Handle) -> bytes:
    """For a delete; others' filters of the same preference stay."""
    return _head(ifindex, hook)


def program_of(options: Mapping[int, bytes]) -> Program | None:
    """None for a filter of classic bytecode, which has no number."""
    number = options.get(TCA_BPF_ID, b"")
    if len(number) < 4:
        return None
    flags = struct.unpack_from("=I", options.get(TCA_BPF_FLAGS, bytes(4)))[0]
    name = text_of(options.get(TCA_BPF_NAME, b""))
    return Program(name, struct.unpack_from("=I", number)[0], bool(flags & TCA_BPF_FLAG_ACT_DIRECT))
