"""What the programs of another process refused: `show` beside the running agent. Reads the kernel, changes nothing.

Finding a program and its maps by number needs CAP_SYS_ADMIN, which root has and the agent's service has not.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import struct
import sys
from collections.abc import Iterable, Iterator

from ap_agent.linkstate import Refusals
from ap_agent.model import EMPTY_TREE, FROM_USER_SLOT, Desired, DesiredTree, Direction, TcState, is_admission
from ap_agent.whole.bpf import call, pointer
from ap_agent.whole.layout import Limit, Queue
from bandwidth_config import IPAddress

_LOOKUP, _NEXT_KEY, _PROGRAM_BY_ID, _MAP_BY_ID, _INFO = 1, 4, 13, 14, 15
_MAP_INFO_BYTES, _PROGRAM_INFO_BYTES = 40, 64  # up to what is read here; the kernel fills what fits
_MAX_MAPS = 16
_MAPS_OF_PROGRAM = struct.Struct("=52xIQ")  # how many, and where their numbers are to be written
_MAP_INFO = struct.Struct("=6I16s")  # type, number, size of a key, size of a value, entries, flags, name


def refused_elsewhere(state: TcState, wanted: Desired) -> Refusals:
    """Packets by link and direction that the attached programs refused since they were loaded; nothing without the
    right to ask."""
    found: dict[tuple[int, Direction], int] = {}
    for tree in (*wanted.nics, *([wanted.ifb] if wanted.ifb is not None else [])):
        is_ifb = tree.device.ifindex == FROM_USER_SLOT
        number = _attached(state, wanted, tree)
        counts = _refused_by(number) if number is not None and tree.admitted else {}
        for address, count in counts.items():
            if count and address in tree.admitted:
                found[tree.admitted[address].link, "from_user" if is_ifb else "to_user"] = count
    return found


def _attached(state: TcState, wanted: Desired, tree: DesiredTree) -> int | None:
    """The number of the program of that tree, at whichever hook it sits."""
    slot = tree.device.ifindex
    for nic in wanted.nics:
        filters = state.trees.get(nic.device.ifindex, EMPTY_TREE).filters
        for one in filters:
            if is_admission(one) and one.program is not None and nic.programs.get(one.hook) == slot:
                return one.program.number
    return None


def _refused_by(number: int) -> dict[IPAddress, int]:
    try:
        with _opened(_PROGRAM_BY_ID, number) as program:
            return _counts(_maps_of(program))
    except OSError:  # no right to ask, or it is gone in this moment; what the leaves dropped is known all the same
        return {}


def _counts(maps: Iterable[int]) -> dict[IPAddress, int]:
    places: dict[IPAddress, int] = {}
    queues: dict[int, int] = {}
    for number in maps:
        with _opened(_MAP_BY_ID, number) as descriptor:
            info = _info(descriptor, bytearray(_MAP_INFO_BYTES))
            _, _, key_bytes, value_bytes, _, _, name = _MAP_INFO.unpack_from(info)
            if name.startswith(b"slbw_limits"):
                for key, value in _entries(descriptor, key_bytes, value_bytes):
                    places[ipaddress.ip_address(key)] = struct.unpack_from("=I", value, Limit.QUEUE)[0]
            elif name.startswith(b"slbw_queues"):
                for key, value in _entries(descriptor, key_bytes, value_bytes):
                    queues[int.from_bytes(key, sys.byteorder)] = struct.unpack_from("=Q", value, Queue.REFUSED_PACKETS)[
                        0
                    ]
    return {address: queues.get(place, 0) for address, place in places.items()}


@contextlib.contextmanager
def _opened(command: int, number: int) -> Iterator[int]:
    descriptor, _ = call(command, struct.pack("=III", number, 0, 0))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _info(descriptor: int, info: bytearray) -> bytearray:
    call(_INFO, struct.pack("=IIQ", descriptor, len(info), pointer(info)))
    return info


def _maps_of(program: int) -> list[int]:
    numbers, info = bytearray(4 * _MAX_MAPS), bytearray(_PROGRAM_INFO_BYTES)
    _MAPS_OF_PROGRAM.pack_into(info, 0, _MAX_MAPS, pointer(numbers))
    count, _ = _MAPS_OF_PROGRAM.unpack_from(_info(program, info))
    return list(struct.unpack_from(f"={min(count, _MAX_MAPS)}I", numbers))


def _entries(descriptor: int, key_bytes: int, value_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    """One after the other; what comes and goes meanwhile may be missed."""
    key, following, value = bytearray(key_bytes), bytearray(key_bytes), bytearray(value_bytes)
    where = 0  # of the key before; none asks for the first one
    while True:
        try:
            call(_NEXT_KEY, struct.pack("=I4xQQQ", descriptor, where, pointer(following), 0))
        except FileNotFoundError:
            return
        key[:], where = following, pointer(key)
        with contextlib.suppress(FileNotFoundError):
            call(_LOOKUP, struct.pack("=I4xQQQ", descriptor, where, pointer(value), 0))
            yield bytes(key), bytes(value)
