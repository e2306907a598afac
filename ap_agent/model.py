"""The words of the engine: handles, classes, filters, devices, and what we own of them.

Everything here is frozen and printable; nothing here decides or touches the kernel. The tree (docs/adr/0002):

    NIC (each managed interface)                       IFB "slbw0" (one per host)
    root 1: htb default 0xfffe                         root 3: htb default 0xfffe
    ├─ 1:<ifid>            inner, rate = ceil = limit  ├─ 3:<ifid>  the same, from the user AS
    │  ├─ 1:<0x2000+ifid>  heartbeats ─ bfifo <0x2000+ifid>:
    │  └─ 1:<0x1000+ifid>  data       ─ bfifo <0x1000+ifid>:
    ├─ 1:fffd              exempt    (only with unmatched = "default")
    └─ 1:fffe              unmatched (only with unmatched = "default")
    ingress hook ffff:fff2: u32 on the source address ── mirred redirect ──▶ slbw0
    both hooks, in front of that, with whole_datagrams: a program that admits whole datagrams (docs/adr/0020)

Rates are byte/s and sizes bytes; kernel units (ticks of 64 ns) exist only in `tcmsg`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from bandwidth_config import MAX_INTERFACE_ID, IPAddress, Limits

if TYPE_CHECKING:
    from ap_agent.whole.wanted import Admitted

IFB_NAME = "slbw0"
IFB_ALIAS = "scionlab-bw"  # marks the device as ours: a device of that name without it belongs to somebody else

NIC_MAJOR = 1
IFB_MAJOR = 3  # its own major: a priority leaked from a NIC's class can then never select a class of the IFB
DATA_OFFSET = 0x1000
HEARTBEAT_OFFSET = 0x2000
EXEMPT_MINOR = 0xFFFD
UNMATCHED_MINOR = 0xFFFE  # the root's `default`, fixed for its life; without this class such packets pass directly
EXEMPT_LEAF_MAJOR = 0x3FFD
UNMATCHED_LEAF_MAJOR = 0x3FFE
# A leaf is emptied by grafting a new one; the kernel wants another handle for it, which lives within one operation.
TEMPORARY_LEAF_BIT = 0x4000

# Filter preferences. 100 to 159 are ours on every hook: behind 1..99, which people and tools pick by hand and who may
# mean to be first, and in front of 49152 downwards, which tc hands out by itself. A preference belongs to one
# protocol (the kernel refuses a second), so each family has its own. An index (see classify) takes one of two
# neighbouring preferences, so that it can be built anew beside itself.
EXEMPT_ARP_PREF = 100
EXEMPT_V4_PREF = 101
EXEMPT_V6_PREF = 102
ADMISSION_PREF = 105  # at the hooks of clsact: in front of the redirects
V4_PREF = 110  # + 2 per kind of index
V6_PREF = 130
INDEX_PREFS = frozenset({*range(V4_PREF, V4_PREF + 20), *range(V6_PREF, V6_PREF + 20)})
REDIRECT_ALL_PREF = 150
OUR_PREFS = range(100, 160)
# A chain that no packet walks (nothing jumps there) holds the note "this clsact was made by us": "slb" in ASCII, since
# the kernel refuses chain numbers of more than 28 bits.
MARKER_CHAIN = 0x736C62
MARKER_PREF = 100
# The filter that admits whole datagrams: its name says whose it is, and its one handle makes replacing it exact.
ADMISSION_NAME = "slbw-whole"
ADMISSION_HANDLE = 1
FROM_USER_SLOT = 0  # the program of what comes from users; that of an interface's egress has the interface's number

ETH_P_ALL = 0x0003
ETH_P_IP = 0x0800
ETH_P_ARP = 0x0806
ETH_P_IPV6 = 0x86DD
ARPHRD_ETHER = 1
ETHERNET_HEADER_BYTES = 14

Unmatched = Literal["unlimited", "default"]
Direction = Literal["to_user", "from_user"]


# --- what the rest of the agent sees ---------------------------------------------------------------------------


@dataclass(frozen=True)
class EngineSettings:
    """The operator's choices. No `interfaces` means automatic: those that the limited links use."""

    interfaces: tuple[str, ...] = ()
    unmatched: Unmatched = "unlimited"
    default_bandwidth_kbit: int = 1000
    whole_datagrams: bool = False


@dataclass(frozen=True, order=True)
class Problem:
    """Something that is not as it should be. `code` is stable; `message` is one sentence with value and remedy."""

    code: str
    subject: str
    message: str


@dataclass(frozen=True)
class DirectionState:
    """One direction of a link as the kernel has it; counters since the class was made."""

    dev: str
    rate_kbit: int
    bytes: int
    packets: int
    drops: int
    backlog_bytes: int


@dataclass(frozen=True)
class LinkState:
    """A limited link as the kernel has it; a direction without a class is None."""

    interface_id: int
    limits: Limits  # that the document wanted when the kernel was read
    state: Literal["enforced", "error"]
    problem: str | None
    to_user: DirectionState | None
    from_user: DirectionState | None


# --- handles ---------------------------------------------------------------------------------------------------


class Handle(NamedTuple):
    """A qdisc or class id, written in hexadecimal like tc does: `1:1001`, `1:`.

    A tuple, as `Key` is, because hundreds of thousands are made, hashed and compared.
    """

    major: int
    minor: int = 0

    @classmethod
    def from_int(cls, number: int) -> Handle:
        return cls(number >> 16, number & 0xFFFF)

    @classmethod
    def parse(cls, text: str) -> Handle:
        major, _, minor = text.partition(":")
        return cls(int(major or "0", 16), int(minor or "0", 16))

    def __int__(self) -> int:
        return self.major << 16 | self.minor

    def __str__(self) -> str:
        return f"{self.major:x}:{self.minor:x}" if self.minor else f"{self.major:x}:"


AT_ROOT = Handle(0xFFFF, 0xFFFF)  # TC_H_ROOT
AT_INGRESS = Handle(0xFFFF, 0xFFF1)  # TC_H_INGRESS and TC_H_CLSACT: the parent of both kinds
INGRESS_QDISC = Handle(0xFFFF)
INGRESS_HOOK = Handle(0xFFFF, 0xFFF2)  # accepted on `clsact` and on `ingress`
EGRESS_HOOK = Handle(0xFFFF, 0xFFF3)


def inner_class(major: int, interface_id: int) -> Handle:
    return Handle(major, interface_id)


def data_class(major: int, interface_id: int) -> Handle:
    return Handle(major, DATA_OFFSET + interface_id)


def heartbeat_class(major: int, interface_id: int) -> Handle:
    return Handle(major, HEARTBEAT_OFFSET + interface_id)


def leaf_handle(class_handle: Handle) -> Handle:
    """The handle of our leaf qdisc under a leaf class of ours."""
    special = {EXEMPT_MINOR: EXEMPT_LEAF_MAJOR, UNMATCHED_MINOR: UNMATCHED_LEAF_MAJOR}
    return Handle(special.get(class_handle.minor, class_handle.minor))


def link_of_class(handle: Handle | None) -> int | None:
    """The interface id that a class of ours belongs to; None for the shared classes and for what is not ours."""
    if handle is None:
        return None
    kind, interface_id = handle.minor & ~0xFFF, handle.minor & 0xFFF
    is_link = kind in (0, DATA_OFFSET, HEARTBEAT_OFFSET) and 1 <= interface_id <= MAX_INTERFACE_ID
    return interface_id if is_link else None


def is_inner(handle: Handle) -> bool:
    return 1 <= handle.minor <= MAX_INTERFACE_ID


def is_our_class(handle: Handle) -> bool:
    """A class minor within our reserved ranges (inside a root that is ours)."""
    return link_of_class(handle) is not None or handle.minor in (EXEMPT_MINOR, UNMATCHED_MINOR)


# --- objects of the kernel -------------------------------------------------------------------------------------


@dataclass(frozen=True, order=True, slots=True)
class HtbClass:
    """An HTB class. The kernel keeps no quantum or priority for an inner class that has children: ours say 0.

    `accounting` is (linklayer, overhead, mpu); 1 = Ethernet means plain length, nothing added.
    """

    handle: Handle
    parent: Handle
    rate_bytes_s: int
    ceil_bytes_s: int
    burst_bytes: int
    cburst_bytes: int
    quantum_bytes: int = 0
    prio: int = 0
    accounting: tuple[int, int, int] = (1, 0, 0)


@dataclass(frozen=True, order=True, slots=True)
class Qdisc:
    """A qdisc with a handle of its own. `default_minor` is HTB's, `limit_bytes` a bfifo's."""

    kind: str
    handle: Handle
    parent: Handle
    limit_bytes: int | None = None
    default_minor: int | None = None


class Key(NamedTuple):
    """A u32 key: the 32-bit word at `offset` from the network header, masked, equals `value`."""

    offset: int
    value: int
    mask: int


@dataclass(frozen=True, order=True, slots=True)
class Selector:
    """The byte of a packet, counted from the network header, that chooses one of 256 buckets."""

    position: int

    @property
    def offset(self) -> int:
        return self.position & ~3

    @property
    def mask(self) -> int:
        return 0xFF << 8 * (3 - self.position % 4)


@dataclass(frozen=True, slots=True)
class Filter:
    """A u32 filter by its meaning: where, when, and what then. Two of equal meaning are the same filter.

    Exactly one of `flowid`, `redirect_to` and `table` says what happens; the marker filter does nothing. `table` is the
    number of another table in which the search goes on, in the bucket that `selector` chooses (None: the first).
    """

    hook: Handle
    pref: int
    protocol: int
    keys: tuple[Key, ...]
    flowid: Handle | None = None
    redirect_to: str | None = None
    chain: int = 0
    table: int | None = None
    selector: Selector | None = None

    @property
    def sort_key(self) -> tuple[int, int, int, tuple[Key, ...], int, str]:
        return self.chain, self.pref, self.protocol, self.keys, int(self.flowid or Handle(0)), self.redirect_to or ""


FIRST_ROOT_TABLE = 0x800  # the kernel numbers the first tables of preferences from here; ours are below
GONE = "*"  # the device of a redirect whose target was deleted; mirred drops everything then, silently


class Program(NamedTuple):
    """What a filter of kind bpf runs. The kernel gives each program that is loaded a number of its own."""

    name: str
    number: int
    is_direct: bool  # what it returns is the verdict, not a class


@dataclass(frozen=True)
class LoadedProgram:
    """A program of this process, to be attached; `fd` counts in this process alone."""

    number: int
    fd: int


@dataclass(frozen=True, slots=True)
class InstalledFilter:
    """A filter as the kernel has it. `meaning` is None where it is nothing that we could have made.

    `handle` 0 stands for the list itself: a preference, which the kernel keeps without filters until it is deleted.
    A hash table has `buckets`. The upper 12 bits of a handle are the table's number; bucket and node follow.
    """

    hook: Handle
    chain: int
    pref: int
    protocol: int
    kind: str
    handle: int
    meaning: Filter | None = None
    redirects_to: tuple[str, ...] = ()
    buckets: int | None = None
    program: Program | None = None

    @property
    def list_key(self) -> tuple[Handle, int, int]:
        return self.hook, self.chain, self.pref

    @property
    def table(self) -> int:
        return self.handle >> 20

    @property
    def bucket(self) -> int:
        return self.handle >> 12 & 0xFF

    @property
    def node(self) -> int:
        return self.handle & 0xFFF

    @property
    def is_table(self) -> bool:
        """A table that somebody made; the first one of a preference comes and goes with it."""
        return self.buckets is not None and self.table < FIRST_ROOT_TABLE


@dataclass(frozen=True, slots=True)
class Counters:
    bytes: int = 0
    packets: int = 0
    drops: int = 0
    backlog_bytes: int = 0


@dataclass(frozen=True)
class Device:
    """A network device. `is_up` is the administrative state."""

    ifindex: int
    name: str
    mtu_bytes: int = 1500
    arphrd: int = ARPHRD_ETHER
    kind: str = ""
    alias: str = ""
    is_up: bool = True

    @property
    def frame_bytes(self) -> int:
        """The largest packet as HTB charges it: L2 with its header on Ethernet, IP bytes on a tun device."""
        return self.mtu_bytes + (ETHERNET_HEADER_BYTES if self.arphrd == ARPHRD_ETHER else 0)


@dataclass(frozen=True)
class Tree:
    """What one device has: ours and foreign. `root` is None for the kernel's default (handle 0), free to take."""

    root: Qdisc | None = None
    ingress: str | None = None  # the kind: "clsact" or "ingress"
    classes: tuple[HtbClass, ...] = ()
    leaves: tuple[Qdisc, ...] = ()
    filters: tuple[InstalledFilter, ...] = ()
    counters: Mapping[Handle, Counters] = field(default_factory=dict)


EMPTY_TREE = Tree()


@dataclass(frozen=True)
class TcState:
    """One look at the host: its devices, its addresses (with the devices that have them), the trees by ifindex."""

    devices: tuple[Device, ...]
    addresses: Mapping[IPAddress, tuple[int, ...]] = field(default_factory=dict)
    trees: Mapping[int, Tree] = field(default_factory=dict)

    def device(self, ifindex: int) -> Device | None:
        return next((one for one in self.devices if one.ifindex == ifindex), None)

    def named(self, name: str) -> Device | None:
        return next((one for one in self.devices if one.name == name), None)

    @property
    def ifb(self) -> Device | None:
        """Our IFB, if it is there; a device of its name without our alias is not ours."""
        device = self.named(IFB_NAME)
        return device if device is not None and is_our_ifb(device) else None


def is_our_ifb(device: Device) -> bool:
    return device.name == IFB_NAME and device.kind == "ifb" and device.alias == IFB_ALIAS


def root_is_ours(root: Qdisc, major: int) -> bool:
    """The whole mark counts: the thesis' program has htb 1: too, with default 9999."""
    return root.kind == "htb" and root.handle == Handle(major) and root.default_minor == UNMATCHED_MINOR


def filter_is_ours(one: InstalledFilter) -> bool:
    """A filter that we could have made, at a place that is ours. What else sits there is somebody's."""
    if one.chain == MARKER_CHAIN:
        return one.hook == INGRESS_HOOK and one.kind == "u32" and one.pref == MARKER_PREF
    if one.chain == 0 and one.pref == ADMISSION_PREF and one.kind == "bpf":
        return is_admission(one)
    if one.chain != 0 or one.pref not in OUR_PREFS or one.kind != "u32":
        return False
    if one.handle == 0 or one.buckets is not None:  # a list, a table
        return True
    return one.meaning is not None and _could_be_ours(one.meaning)


def is_admission(one: InstalledFilter) -> bool:
    """The filter that admits whole datagrams, whichever process loaded its program."""
    return (
        one.program is not None
        and one.hook in (INGRESS_HOOK, EGRESS_HOOK)
        and (one.chain, one.pref, one.protocol, one.handle) == (0, ADMISSION_PREF, ETH_P_ALL, ADMISSION_HANDLE)
        and (one.program.name, one.program.is_direct) == (ADMISSION_NAME, True)
    )


def _could_be_ours(meaning: Filter) -> bool:
    if meaning.table is not None:
        return True
    if meaning.hook == INGRESS_HOOK:
        return meaning.redirect_to in (IFB_NAME, GONE)
    flowid = meaning.flowid
    return flowid is not None and flowid.major == meaning.hook.major and (flowid.minor == 0 or is_our_class(flowid))


# --- what should be there --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rule:
    """What happens to some packets of one remote address: of the rules of an address the lowest `order` is asked first.

    Without a `flowid` they go to the redirects that the index keeps for this `order`. `links` are those that it serves.
    """

    order: int
    keys: tuple[Key, ...]
    flowid: Handle | None = None
    links: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Index:
    """Rules of one kind for many remote addresses, found through hash tables instead of one after the other.

    `pref` is the first of the two preferences that it may live at. Packets that lack `head` are not looked up at all.
    `address` are the positions of the remote address' bytes. `splits` are further bytes that tell the rules of one
    address apart, each with the highest order of which every rule fixes it; a table that is hashed by one of these is
    entered with the keys of `guard` only, so that nothing is read that is no port. `redirects` are keys by order.
    """

    hook: Handle
    protocol: int
    pref: int
    head: tuple[Key, ...]
    address: tuple[int, ...]
    splits: Mapping[int, int]
    guard: tuple[Key, ...]
    rules: tuple[Rule, ...]
    redirects: Mapping[int, tuple[tuple[Key, ...], ...]] = field(default_factory=dict)

    @property
    def prefs(self) -> tuple[int, int]:
        return self.pref, self.pref + 1

    @property
    def links(self) -> frozenset[int]:
        return links_of_rules(self.rules)


def links_of_rules(rules: Iterable[Rule]) -> frozenset[int]:
    return frozenset().union(*(rule.links for rule in rules))


@dataclass(frozen=True)
class DesiredTree:
    """What one device should have of ours. Filters carry the interface ids of the links that they serve.

    `filters` and `redirects` are lists, one filter after the other; what grows with the links is in the indexes.
    `admitted` says by remote address whose datagrams are admitted whole on the way to this tree, `programs` which
    program sits at which hook of the device.
    """

    device: Device
    major: int
    has_root: bool
    classes: tuple[HtbClass, ...] = ()  # parents first
    leaves: tuple[Qdisc, ...] = ()
    filters: Mapping[Filter, frozenset[int]] = field(default_factory=dict)
    indexes: tuple[Index, ...] = ()
    redirects: Mapping[Filter, frozenset[int]] = field(default_factory=dict)
    redirect_indexes: tuple[Index, ...] = ()
    admitted: Mapping[IPAddress, Admitted] = field(default_factory=dict)
    programs: Mapping[Handle, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Desired:
    """What the host should have. `ifb` None: no IFB at all, because nothing is to be redirected."""

    nics: tuple[DesiredTree, ...] = ()
    ifb: DesiredTree | None = None


@dataclass(frozen=True)
class Finding:
    """A problem and the limited links that are not enforced because of it (none: it is only a warning)."""

    problem: Problem
    links: frozenset[int] = frozenset()
