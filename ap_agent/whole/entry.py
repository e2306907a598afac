"""What the program that admits whole datagrams is told, and what it tells: values, without the kernel."""

from __future__ import annotations

from dataclasses import dataclass

from bandwidth_config import IPAddress


@dataclass(frozen=True)
class Entry:
    """The class in which the fragments of one remote address end, and which whole packets are in it too.

    `room_bytes` is what its queue may hold when a datagram is admitted, `depth_bytes` the limit of its real leaf, with
    place for one whole datagram more. Whole packets of the link itself are admitted up to `own_room_bytes` (None:
    `room_bytes`): more, where others' fragments end in the class too, so that they do not crowd out whose class it is.
    An entry without `remote_port` owns its address. All L2 bytes, as HTB counts them.
    """

    kbit: int
    room_bytes: int
    depth_bytes: int
    remote_port: int | None
    local_port: int | None = None
    local_ip: IPAddress | None = None
    own_room_bytes: int | None = None

    @property
    def is_any(self) -> bool:
        return self.remote_port is None


@dataclass(frozen=True)
class Refused:
    """What the program kept out of one address' class, since the address is known to it; L2 bytes."""

    packets: int
    bytes: int
