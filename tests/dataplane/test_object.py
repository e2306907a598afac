"""The object file that is committed is of the source beside it, and kernels older than ours take it too."""

from __future__ import annotations

import ctypes
import os
import re

import pytest

from ap_agent.dataplane.program import OBJECT
from measuring.iproute import available
from tests.dataplane.build import MADE, digests

LOG_BYTES = 64 << 20
REGISTER_2 = re.compile(r"\bR2(?:_w)?=(\w+?)(?:[-(]|\d)")


def test_the_committed_object_was_made_of_this_source() -> None:
    """`./dev lint` compares the bytes, where the clang that made them is installed."""
    assert MADE.read_text(encoding="utf-8") == digests(), "run `python -m tests.dataplane.build` and commit the object"


@pytest.mark.kernel
@pytest.mark.parametrize("name", [b"to_user", b"from_user"])
def test_keys_of_maps_are_where_linux_6_1_looks_for_them(name: bytes) -> None:
    """On the stack, or in a map; since Linux 6.2 also where an argument of a global function points to."""
    if (missing := available()) is not None:
        pytest.skip(missing)
    places, last = set(), ""
    for line in _verifier_log(name).splitlines():
        if line.startswith("mark_precise"):  # it looks back at states that are past
            continue
        if "call bpf_map_lookup_elem#1" in line:
            places.add(last)
        elif found := REGISTER_2.findall(line):
            last = found[-1]
    assert "fp" in places
    assert "mem" not in places


def _verifier_log(name: bytes) -> str:
    """What the kernel writes of each instruction that it follows."""
    libbpf = ctypes.CDLL("libbpf.so.1", use_errno=True)
    libbpf.bpf_object__open_file.restype = libbpf.bpf_object__find_program_by_name.restype = ctypes.c_void_p
    opened = ctypes.c_void_p(libbpf.bpf_object__open_file(os.fsencode(OBJECT), None))
    program = ctypes.c_void_p(libbpf.bpf_object__find_program_by_name(opened, name))
    log = ctypes.create_string_buffer(LOG_BYTES)
    try:
        assert libbpf.bpf_program__set_log_buf(program, log, ctypes.c_size_t(LOG_BYTES)) == 0
        assert libbpf.bpf_program__set_log_level(program, 2) == 0
        assert libbpf.bpf_object__load(opened) == 0
    finally:
        libbpf.bpf_object__close(opened)
    return log.value.decode()
