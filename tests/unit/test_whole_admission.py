"""What the program is told of a limit: fixed-point arithmetic, bytes, and the words of what cannot be."""

from __future__ import annotations

import errno
import os
import struct
from fractions import Fraction
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ap_agent.whole import bpf
from ap_agent.whole.admission import SLOWER_THAN_HTB, Entry, multiplier, pack_limit
from ap_agent.whole.layout import HAS_LOCAL, IS_ANY, SHIFT, Limit, Queue, Slots
from ap_agent.whole.program import Maps, build

LARGEST_PACKET_BYTES = 512 * 1024  # a super-packet of BIG TCP
KBIT = st.integers(1, 100_000_000)


@given(KBIT, st.integers(1, LARGEST_PACKET_BYTES))
def test_a_charge_fits_64_bits_and_is_never_less_than_the_time_on_the_wire(kbit: int, size_bytes: int) -> None:
    per_byte = multiplier(kbit * 125, slower_by=SLOWER_THAN_HTB)
    assert per_byte * size_bytes + (1 << SHIFT) < 1 << 63
    charged_ns = per_byte * size_bytes + (1 << SHIFT) - 1 >> SHIFT
    on_the_wire_ns = Fraction(size_bytes * 8 * 1_000_000, kbit)
    slower = on_the_wire_ns * (1 + Fraction(1, SLOWER_THAN_HTB))
    assert slower <= charged_ns < slower * (1 + Fraction(1, 10_000)) + 1


@given(KBIT, st.integers(0, 2_000_000_000), st.integers(0, 70_000))
def test_room_and_depth_are_the_bytes_of_the_leaf_as_time(kbit: int, room_bytes: int, datagram_bytes: int) -> None:
    entry = Entry(kbit, room_bytes, room_bytes + datagram_bytes, 50_000)
    packed = pack_limit(entry, 0, "to_user")
    per_byte, room_ns, depth_ns = struct.unpack_from("=QQQ", packed)
    assert room_ns == room_bytes * per_byte >> SHIFT
    assert depth_ns == (room_bytes + datagram_bytes) * per_byte >> SHIFT


@pytest.mark.parametrize(
    ("kbit", "per_byte", "per_heartbeat_byte"),
    # 16000 ns per byte and 1/256 more, with 20 binary places; heartbeats at 16 kbit/s, or half of the limit.
    [(500, 16_842_752_000, 524_288_000_000), (3, 2_807_125_333_334, 5_607_358_288_771)],
)
def test_the_virtual_queue_drains_a_256th_slower_than_the_limit(
    kbit: int, per_byte: int, per_heartbeat_byte: int
) -> None:
    packed = pack_limit(Entry(kbit, 6250, 80_000, 50_000), 0, "to_user")
    assert struct.unpack_from("=Q", packed, Limit.MULTIPLIER) == (per_byte,)
    assert struct.unpack_from("=Q", packed, Limit.HEARTBEAT_MULTIPLIER) == (per_heartbeat_byte,)


def test_ports_stand_as_in_the_packet_of_that_direction() -> None:
    entry = Entry(500, 6250, 80_000, remote_port=0x1122, local_port=0x3344)
    for direction, ports in (("to_user", "33441122"), ("from_user", "11223344")):
        packed = pack_limit(entry, 7, direction)  # type: ignore[arg-type]
        assert packed[Limit.PORTS : Limit.PORTS + 4].hex() == ports
        assert packed[Limit.PORTS_MASK : Limit.PORTS_MASK + 4].hex() == "ffffffff"
        assert struct.unpack_from("=I", packed, Limit.QUEUE) == (7,)
        assert struct.unpack_from("=I", packed, Limit.FLAGS) == (0,)


def test_a_port_that_is_not_known_is_not_asked_for() -> None:
    packed = pack_limit(Entry(500, 6250, 80_000, remote_port=0x1122), 0, "to_user")
    assert packed[Limit.PORTS_MASK : Limit.PORTS_MASK + 4].hex() == "0000ffff"


def test_a_local_address_counts_only_with_a_port() -> None:
    local = ip_address("2001:db8::1")
    packed = pack_limit(Entry(500, 6250, 80_000, 50_000, None, local), 0, "to_user")
    assert struct.unpack_from("=I", packed, Limit.FLAGS) == (HAS_LOCAL,)
    assert packed[Limit.LOCAL : Limit.LOCAL + 16] == local.packed
    packed = pack_limit(Entry(500, 6250, 80_000, None, None, local), 0, "to_user")
    assert struct.unpack_from("=I", packed, Limit.FLAGS) == (IS_ANY,)


def test_the_directions_differ_and_a_program_is_the_same_bytes_each_time() -> None:
    maps = Maps(3, 4, 5, 6)
    assert build("to_user", maps) == build("to_user", maps)
    assert build("to_user", maps) != build("from_user", maps)
    assert len(build("to_user", maps)) // 8 < 4096  # what even the oldest kernels take


def test_queues_are_whole_words_and_slots_a_power_of_two() -> None:
    assert Queue.BYTES % 8 == 0
    assert Slots.COUNT & (Slots.COUNT - 1) == 0  # the program takes the lowest bits


def test_the_verifiers_last_words_are_what_it_stopped_at() -> None:
    log = "\n".join([*(f"{number}: (b7) r0 = {number}" for number in range(40)), "R2 invalid mem access 'scalar'"])
    told = bpf.last_words(log + "\nprocessed 41 insns (limit 1000000)\n")
    assert told == "38: (b7) r0 = 38 | 39: (b7) r0 = 39 | R2 invalid mem access 'scalar'"


def test_a_machine_whose_system_call_is_not_known_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "pdp11")
    with pytest.raises(bpf.BpfUnavailableError, match="pdp11") as refused:
        bpf.HashMap("x", key_bytes=4, value_bytes=8, entries=1)
    assert "leave whole_datagrams off" in refused.value.remedy


def test_a_process_of_32_bits_makes_no_call_of_another_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.maxsize", (1 << 31) - 1)
    with pytest.raises(OSError, match="is not known"):
        bpf.call(0, b"")


@pytest.mark.parametrize(
    ("code", "remedy"),
    [(errno.EPERM, "CAP_BPF"), (errno.EACCES, "CAP_BPF"), (errno.ENOSYS, "CONFIG_NET_CLS_BPF"), (errno.EINVAL, "5.12")],
)
def test_what_the_kernel_refuses_has_a_remedy(monkeypatch: pytest.MonkeyPatch, code: int, remedy: str) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, "no")

    monkeypatch.setattr(bpf, "call", refuse)
    with pytest.raises(bpf.BpfUnavailableError) as refused:
        bpf.load_program("x", bytes(8))
    assert remedy in refused.value.remedy
    assert not refused.value.retryable


def test_what_fails_later_than_the_first_call_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cycle goes on without whole datagrams after `BpfUnavailableError`, and tries again: for weeks."""
    made = os.open(os.devnull, os.O_RDONLY)

    def only_makes(command: int, _attributes: bytes) -> tuple[int, bytearray]:
        if command == 15:  # BPF_OBJ_GET_INFO_BY_FD
            raise OSError(errno.ENOMEM, "no")
        return os.dup(made), bytearray()

    def no_memory(*_: object) -> None:
        raise OSError(errno.ENOMEM, "no")

    monkeypatch.setattr(bpf, "call", only_makes)
    monkeypatch.setattr("mmap.mmap", no_memory)
    before = len(list(Path("/proc/self/fd").iterdir()))

    with pytest.raises(bpf.BpfUnavailableError):
        bpf.load_program("x", bytes(8))
    with pytest.raises(bpf.BpfUnavailableError):
        bpf.ArrayMap("x", value_bytes=8, entries=1)

    assert len(list(Path("/proc/self/fd").iterdir())) == before
    os.close(made)
