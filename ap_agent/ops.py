"""The operations of a plan: one small change of the kernel each, printable, and nothing else.

Every operation is complete in itself: killed after any of them, the host is in a state from which the next cycle goes
on. Where two kernel messages must not be torn apart (a clsact and the note that it is ours, an IFB and its alias) they
are one operation, sent in one piece.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import Enum
from typing import ClassVar

from ap_agent.describe import PROTOCOLS, describe_keys
from ap_agent.model import (
    EXEMPT_MINOR,
    IFB_MAJOR,
    INGRESS_HOOK,
    NIC_MAJOR,
    UNMATCHED_MINOR,
    Device,
    Filter,
    Handle,
    HtbClass,
    InstalledFilter,
    LoadedProgram,
    Qdisc,
    link_of_class,
)

DIRECTIONS = {NIC_MAJOR: "to the user AS", IFB_MAJOR: "from the user AS"}


class Stage(Enum):
    """What a step may rest on. Steps of one stage are sent together; before the next stage the kernel's answers are in.

    So nothing is switched over to what was not built, and nothing is removed whose successor the kernel refused.
    """

    PREPARE = "prepare"  # a device: later steps need its number
    BUILD = "build"
    SWITCH = "switch"  # packets go another way from here on
    REMOVE = "remove"
    CLEAR = "clear"  # tables to which nothing leads any longer


@dataclass(frozen=True)
class Op(ABC):
    """`device.ifindex` 0 means our IFB, found by name when the operation is applied: it may not exist before.

    `links` are the limited links that this operation serves; empty where the whole device depends on it.
    """

    device: Device
    links: frozenset[int]
    kind: ClassVar[str] = ""
    busy_wait_s: ClassVar[float] = 0.0  # for how long EBUSY is no answer yet
    is_needed: ClassVar[bool] = True  # a limit rests on it

    def is_blocked_by(self, failed: frozenset[int]) -> bool:
        """Whether it rests on a step that the kernel refused to one of these links."""
        return bool(self.links & failed)

    @property
    def stage(self) -> Stage:
        """By default: what adds or changes something builds."""
        return Stage.REMOVE if self.kind.endswith("-del") else Stage.BUILD

    @property
    @abstractmethod
    def what(self) -> str:
        """The operation in words, without its device."""

    def __str__(self) -> str:
        return f"{self.device.name}: {self.what}"

    def to_json(self) -> dict[str, object]:
        own = {
            one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("device", "links", "rests_on")
        }
        return {
            "op": self.kind,
            "dev": self.device.name,
            "links": sorted(self.links),
            "text": str(self),
            **{name: _plain(value) for name, value in own.items()},
        }


def _plain(value: object) -> object:
    if isinstance(value, Handle):
        return str(value)
    if isinstance(value, Filter):
        return describe_filter(value)
    if isinstance(value, InstalledFilter):
        return f"{value.handle:x}"
    if isinstance(value, LoadedProgram):  # a descriptor means nothing to others
        return value.number
    if isinstance(value, HtbClass | Qdisc):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    return value


# --- the IFB ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IfbAdd(Op):
    kind: ClassVar[str] = "ifb-add"

    @property
    def stage(self) -> Stage:
        return Stage.PREPARE

    @property
    def what(self) -> str:
        return "create this IFB, marked as ours, and set it up"


@dataclass(frozen=True)
class IfbUp(Op):
    kind: ClassVar[str] = "ifb-up"

    @property
    def stage(self) -> Stage:
        return Stage.SWITCH

    @property
    def what(self) -> str:
        return "set up (a redirect to an IFB that is down drops everything)"


@dataclass(frozen=True)
class IfbDel(Op):
    kind: ClassVar[str] = "ifb-del"

    @property
    def what(self) -> str:
        return "delete this IFB with everything on it"


# --- qdiscs ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RootAdd(Op):
    new: Qdisc
    kind: ClassVar[str] = "root-add"

    @property
    def what(self) -> str:
        return f"add root {self.new.handle} htb, default {self.new.default_minor or 0:#x}"


@dataclass(frozen=True)
class RootDel(Op):
    handle: Handle
    kind: ClassVar[str] = "root-del"

    @property
    def what(self) -> str:
        return f"delete root {self.handle} with its classes and filters"


@dataclass(frozen=True)
class ClsactAdd(Op):
    kind: ClassVar[str] = "clsact-add"

    @property
    def what(self) -> str:
        return "add clsact, with a note in a chain of its own that it is ours"


@dataclass(frozen=True)
class ClsactDel(Op):
    kind: ClassVar[str] = "clsact-del"

    @property
    def what(self) -> str:
        return "delete our clsact with our redirects"


@dataclass(frozen=True)
class LeafAdd(Op):
    new: Qdisc
    kind: ClassVar[str] = "leaf-add"

    @property
    def what(self) -> str:
        return f"add leaf {self.new.handle} bfifo of {self.new.limit_bytes} B under {whose(self.new.parent)}"


@dataclass(frozen=True)
class LeafChange(Op):
    """In place: what waits in the queue stays."""

    old: Qdisc
    new: Qdisc
    kind: ClassVar[str] = "leaf-change"

    @property
    def what(self) -> str:
        limits = f"{self.old.limit_bytes} -> {self.new.limit_bytes} B"
        return f"leaf {self.new.handle} limit {limits} under {whose(self.new.parent)}"


@dataclass(frozen=True)
class LeafReplace(Op):
    """A fresh leaf in place of whatever is there: what waits in the old one is dropped."""

    new: Qdisc
    kind: ClassVar[str] = "leaf-replace"

    @property
    def what(self) -> str:
        return f"empty the queue of {whose(self.new.parent)}: new leaf {self.new.handle} of {self.new.limit_bytes} B"


# --- classes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClassAdd(Op):
    new: HtbClass
    kind: ClassVar[str] = "class-add"

    @property
    def what(self) -> str:
        return f"add class {self.new.handle} rate {_rate(self.new.rate_bytes_s)} kbit/s{note(self.new.handle)}"


@dataclass(frozen=True)
class ClassChange(Op):
    """In place: hitless."""

    old: HtbClass
    new: HtbClass
    kind: ClassVar[str] = "class-change"

    @property
    def what(self) -> str:
        return f"class {self.new.handle} {', '.join(self._changes())}{note(self.new.handle)}"

    def _changes(self) -> Iterable[str]:
        old, new = self.old, self.new
        if old.rate_bytes_s != new.rate_bytes_s:
            yield f"rate {_rate(old.rate_bytes_s)} -> {_rate(new.rate_bytes_s)} kbit/s"
        one_rate = old.rate_bytes_s == old.ceil_bytes_s and new.rate_bytes_s == new.ceil_bytes_s
        if old.ceil_bytes_s != new.ceil_bytes_s and not one_rate:
            yield f"ceil {_rate(old.ceil_bytes_s)} -> {_rate(new.ceil_bytes_s)} kbit/s"
        for name, before, after in (
            ("burst", old.burst_bytes, new.burst_bytes),
            ("cburst", old.cburst_bytes, new.cburst_bytes),
            ("quantum", old.quantum_bytes, new.quantum_bytes),
        ):
            if before != after:
                yield f"{name} {before} -> {after} B"
        if old.prio != new.prio:
            yield f"prio {old.prio} -> {new.prio}"
        if old.accounting != new.accounting:
            yield f"linklayer, overhead, mpu {old.accounting} -> {new.accounting}"


@dataclass(frozen=True)
class ClassDel(Op):
    """With its leaf qdisc and what waits in it."""

    handle: Handle
    kind: ClassVar[str] = "class-del"

    @property
    def what(self) -> str:
        return f"delete class {self.handle}{note(self.handle)}"


# --- filters ---------------------------------------------------------------------------------------------------


class _Successor(Op):
    """Takes away what another step has replaced: not before that was done for every link in `rests_on`."""

    rests_on: frozenset[int]

    def is_blocked_by(self, failed: frozenset[int]) -> bool:
        return bool((self.links | self.rests_on) & failed)


@dataclass(frozen=True)
class TableAdd(Op):
    """A hash table; nothing leads to it yet."""

    new: InstalledFilter
    kind: ClassVar[str] = "table-add"

    def is_blocked_by(self, failed: frozenset[int]) -> bool:  # noqa: ARG002 - what every operation is asked
        """Never: it leads nowhere yet, and the numbers that the kernel does not give are best known all at once."""
        return False

    @property
    def what(self) -> str:
        return f"add table {self.new.table:x}: of {self.new.buckets} buckets to {_list_of(self.new)}"


@dataclass(frozen=True)
class TableDel(_Successor):
    """With the filters in it. The kernel calls it busy for some milliseconds after the last filter that led there."""

    old: InstalledFilter
    rests_on: frozenset[int] = frozenset()
    kind: ClassVar[str] = "table-del"
    busy_wait_s: ClassVar[float] = 2.0

    @property
    def stage(self) -> Stage:
        return Stage.CLEAR

    @property
    def what(self) -> str:
        return f"delete table {self.old.table:x}: of {_list_of(self.old)}"


@dataclass(frozen=True)
class FilterAdd(Op):
    """`handle` is the node of a hash table; 0: in the first table of its preference, where the kernel numbers it."""

    new: Filter
    handle: int = 0
    kind: ClassVar[str] = "filter-add"

    @property
    def is_head(self) -> bool:
        """Whether it leads packets into the tables of an index, complete by then."""
        return self.new.table is not None and not self.handle

    @property
    def stage(self) -> Stage:
        return Stage.SWITCH if self.is_head or self.new.hook == INGRESS_HOOK else Stage.BUILD

    def is_blocked_by(self, failed: frozenset[int]) -> bool:
        """A filter into a class needs that link's class, one that leads packets on any link behind it."""
        target = link_of_class(self.new.flowid)
        return target in failed if target is not None else bool(self.links) and self.links <= failed

    @property
    def what(self) -> str:
        return f"add filter {describe_filter(self.new, self.handle)}"


@dataclass(frozen=True)
class HeadSwitch(FilterAdd):
    """Leads packets into tables that take the place of others: every one of them must be complete."""

    kind: ClassVar[str] = "head-switch"

    def is_blocked_by(self, failed: frozenset[int]) -> bool:
        return bool(self.links & failed)


@dataclass(frozen=True)
class FilterDel(_Successor):
    old: InstalledFilter
    rests_on: frozenset[int] = frozenset()
    kind: ClassVar[str] = "filter-del"

    @property
    def what(self) -> str:
        described = describe_filter(self.old.meaning, self.old.handle) if self.old.meaning else f"pref {self.old.pref}"
        return f"delete filter {described}"


@dataclass(frozen=True)
class ListDel(_Successor):
    """A whole preference: all of its filters are ours and none is wanted (the kernel keeps empty lists otherwise)."""

    old: InstalledFilter
    count: int
    rests_on: frozenset[int] = frozenset()
    kind: ClassVar[str] = "list-del"

    @property
    def what(self) -> str:
        return f"delete all filters of {_list_of(self.old)} ({self.count})"


# --- words -----------------------------------------------------------------------------------------------------


def _rate(rate_bytes_s: int) -> str:
    whole, rest = divmod(rate_bytes_s * 8, 1000)
    return str(whole) if not rest else f"{whole}.{rest:03d}".rstrip("0")


def note(handle: Handle) -> str:
    """` (link 1, to the user AS)`; what a class is for."""
    special = {EXEMPT_MINOR: "exempt traffic", UNMATCHED_MINOR: "unmatched traffic"}
    if handle.minor in special:
        return f" ({special[handle.minor]})"
    link = link_of_class(handle)
    if link is None:
        return ""
    part = {0: "", 0x1000: ", data", 0x2000: ", heartbeats"}[handle.minor & 0xF000]
    return f" (link {link}{part}, {DIRECTIONS.get(handle.major, '?')})"


def whose(handle: Handle) -> str:
    return f"class {handle}{note(handle)}"


def describe_filter(one: Filter, handle: int = 0) -> str:
    """`ip pref 112 at 1: 4:7:10 dst 192.0.2.7 udp dport 50000 -> 1:1001 (link 1, data, to the user AS)`."""
    protocol = PROTOCOLS.get(one.protocol, hex(one.protocol))
    chain = f" chain {one.chain:#x}" if one.chain else ""
    node = f" {handle >> 20:x}:{handle >> 12 & 0xFF:x}:{handle & 0xFFF:x}" if handle else ""
    place = f"{protocol} pref {one.pref}{chain} at {one.hook}{node}"
    return f"{place} {describe_keys(one.protocol, one.keys)} -> {_target(one)}"


def _target(one: Filter) -> str:
    if one.table is not None:
        by = f" by byte {one.selector.position}" if one.selector is not None else ""
        return f"table {one.table:x}:{by}"
    if one.redirect_to:
        return f"redirect to {one.redirect_to}"
    flowid = one.flowid or Handle(0)
    return f"{flowid}{note(flowid)}" if flowid.minor else f"{flowid} (passes directly)"


def _list_of(one: InstalledFilter) -> str:
    return f"{PROTOCOLS.get(one.protocol, hex(one.protocol))} pref {one.pref} at {one.hook}"
