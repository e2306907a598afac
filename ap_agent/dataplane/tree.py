"""What the kernel has of ours, or should have, as dictionaries; and their difference, as operations in order. Pure.

    packets ─▶ hooks ─▶ keys ─▶ lanes ─▶ classes with leaves on two IFBs

Everything is complete before anything leads there, and nothing goes before what leads there is gone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Final, Literal, NamedTuple, TypeVar

from ap_agent.dataplane.devices import DIRECTIONS, FROM_USER, IFB_NAMES, Direction
from ap_agent.dataplane.program import FROM_USER_BIT, OWN_MAJOR, Lane, rate_of
from ap_agent.dataplane.tc import HOOK_NAMES, HtbClass, leaf_bytes
from ap_agent.dataplane.wanted import LimitedLink, Wanted
from bandwidth_config import Limits, format_kbit

UNMATCHED: Final = 0xFFF  # stands for a link where everything that no link has is limited
_SHOWN = ("to the user", "from the user")
K = TypeVar("K")
V = TypeVar("V")


class Ifb(NamedTuple):
    is_up: bool
    has_root: bool


class Hook(NamedTuple):
    """Numbers of the programs of its two filters (0: none, -1: one of no use), and whether the second leads to the
    IFB of its direction."""

    program: int
    admitted: int
    is_redirected: bool


class Clsact(NamedTuple):
    """On a device where we have or want filters. `is_ours`: it came with them, and nobody else has filters there."""

    is_ours: bool


@dataclass
class Tree:
    """Lane 2 N of link N is to the user, the next one from the user; its class has the minor of `minor_of`."""

    ifbs: dict[Direction, Ifb] = field(default_factory=dict)
    classes: dict[Direction, dict[int, HtbClass]] = field(default_factory=lambda: {0: {}, 1: {}})
    leaves: dict[Direction, dict[int, int]] = field(default_factory=lambda: {0: {}, 1: {}})  # limits in bytes
    lanes: dict[int, bytes] = field(default_factory=dict)
    keys: dict[bytes, int] = field(default_factory=dict)  # packed key -> lane to the user
    addresses: dict[bytes, int] = field(default_factory=dict)  # packed address -> the kinds of its keys, as bits
    is_unmatched_limited: bool = False
    hooks: dict[tuple[int, Direction], Hook] = field(default_factory=dict)  # by interface number
    clsacts: dict[int, Clsact] = field(default_factory=dict)
    strays: dict[int, str] = field(default_factory=dict)  # IFBs of ours that nobody needs: somebody renamed one

    def limits_of(self, interface_id: int) -> Limits | None:
        """What the program admits; None where it has no lanes of this link."""
        both = [self.lanes.get(2 * interface_id + direction) for direction in DIRECTIONS]
        return None if both[0] is None or both[1] is None else Limits(rate_of(both[0]), rate_of(both[1]))


def minor_of(interface_id: int, direction: Direction) -> int:
    return interface_id | (FROM_USER_BIT if direction == FROM_USER else 0)


# --- what is wanted --------------------------------------------------------------------------------------------


class Target:
    """The tree that a `Wanted` asks for. Only what differs from the `Wanted` before is worked out."""

    def __init__(self) -> None:
        self.tree = Tree()
        self._links: dict[int, LimitedLink] = {}
        self._kinds: dict[bytes, list[int]] = {}  # address -> how many keys of each kind

    def update(self, wanted: Wanted) -> tuple[Tree, Tree]:
        """What changed links have had, and have from now on; hooks and IFBs are not in it."""
        links = dict(wanted.links)
        if wanted.unmatched_kbit is not None:
            links[UNMATCHED] = LimitedLink(UNMATCHED, (), wanted.unmatched_kbit, wanted.unmatched_kbit)
        old = self._links
        changed = [
            one
            for one in old.keys() | links.keys()
            if old.get(one) is not links.get(one) and old.get(one) != links.get(one)
        ]
        before, after = Tree(), Tree()
        touched = {
            key.address for one in changed for link in (old.get(one), links.get(one)) if link for key in link.keys
        }
        before.addresses = {one: self.tree.addresses[one] for one in touched if one in self.tree.addresses}
        for one in changed:
            if one in old:
                self._add(before, old[one], -1)
        for one in changed:
            if one in links:
                self._add(after, links[one], 1)
        after.addresses = {one: bits for one in touched if (bits := self._bits(one))}
        before.is_unmatched_limited, after.is_unmatched_limited = UNMATCHED in old, UNMATCHED in links
        self._links = links
        self._replace(before, after)
        return before, after

    def _add(self, tree: Tree, link: LimitedLink, count: int) -> None:
        number = 2 * link.interface_id
        for direction, kbit in zip(DIRECTIONS, (link.to_user_kbit, link.from_user_kbit), strict=True):
            minor = minor_of(link.interface_id, direction)
            tree.lanes[number + direction] = Lane(kbit, minor, is_observed=link.is_observed).packed()
            if kbit:
                tree.classes[direction][minor] = HtbClass.of(kbit)
                tree.leaves[direction][minor] = leaf_bytes(kbit)
        for key in link.keys:
            tree.keys[key.packed()] = number
            self._kinds.setdefault(key.address, [0] * 8)[key.kind] += count

    def _bits(self, address: bytes) -> int:
        bits = sum(1 << kind for kind, count in enumerate(self._kinds[address]) if count)
        if not bits:
            del self._kinds[address]
        return bits

    def _replace(self, before: Tree, after: Tree) -> None:
        tree = self.tree
        pairs: Iterable[tuple[dict[Any, Any], Mapping[Any, Any], Mapping[Any, Any]]] = (
            *((tree.classes[one], before.classes[one], after.classes[one]) for one in DIRECTIONS),
            *((tree.leaves[one], before.leaves[one], after.leaves[one]) for one in DIRECTIONS),
            (tree.lanes, before.lanes, after.lanes),
            (tree.keys, before.keys, after.keys),
            (tree.addresses, before.addresses, after.addresses),
        )
        for ours, old, new in pairs:
            _exchange(ours, old, new)
        tree.is_unmatched_limited = after.is_unmatched_limited
        tree.ifbs = {one: Ifb(True, True) for one in DIRECTIONS} if self._links else {}
        before.ifbs = after.ifbs = tree.ifbs


def _exchange(ours: dict[Any, Any], old: Mapping[Any, Any], new: Mapping[Any, Any]) -> None:
    for one in old.keys() - new.keys():
        del ours[one]
    ours.update(new)


# --- operations ------------------------------------------------------------------------------------------------

Table = Literal["ifb", "root", "class", "leaf", "lane", "key", "address", "unmatched", "hook", "clsact", "stray"]


class Operation(NamedTuple):
    """One step. `device` is empty for what is in the program's memory. `name`, `now` and `then` as in `Tree`."""

    kind: Literal["add", "change", "remove"]
    table: Table
    device: str
    name: Any
    now: Any = None
    then: Any = None

    @property
    def links(self) -> frozenset[int]:
        """Interface ids that it serves; empty for what serves all of them."""
        if self.table in ("class", "leaf"):
            return frozenset({self.name[1] & ~FROM_USER_BIT})
        if self.table == "lane":
            return frozenset({self.name // 2})
        if self.table == "key":
            return frozenset(one // 2 for one in (self.now, self.then) if one is not None)
        return frozenset()

    def __str__(self) -> str:
        where = f"{self.device}: " if self.device else ""
        return f"{where}{self.kind} {self._what()}"

    def _what(self) -> str:
        if self.table in ("class", "leaf"):
            return _shown_class(self.table, self.name[1], self.then)
        if self.table == "lane":
            number, direction = divmod(self.name, 2)
            rate = f", {format_kbit(rate_of(self.then))}" if self.then else ""
            return f"limit of {_link_name(number)} {_SHOWN[direction]}{rate}"
        if self.table == "key":
            lane = self.now if self.then is None else self.then
            return f"packets of {_link_name(lane // 2)}: {_key_text(self.name)}"
        if self.table == "address":
            return f"address {_address_text(self.name)}"
        return f"filters at {HOOK_NAMES[self.name[1]]}" if self.table == "hook" else _NOUNS[self.table]


_NOUNS: Final = {
    "ifb": "IFB",
    "stray": "IFB",
    "root": f"root htb {OWN_MAJOR:x}:",
    "clsact": "clsact qdisc",
    "unmatched": "limit of everything that no link has",
}


def _shown_class(table: str, minor: int, then: Any) -> str:
    name = f"class {OWN_MAJOR:x}:{minor:x}"
    if table == "leaf":
        return f"queue of {name}, {then} B"
    return name if then is None else f"{name}, {format_kbit(then.rate_kbit)}"


def _link_name(interface_id: int) -> str:
    return "what no link has" if interface_id == UNMATCHED else f"link {interface_id}"


def _address_text(packed: bytes) -> str:
    address = ip_address(packed[:16])
    return str(getattr(address, "ipv4_mapped", None) or address)


def _key_text(packed: bytes) -> str:
    remote_port, local_port = struct.unpack_from("!HH", packed, 36)
    ends = ((packed[:16], remote_port, ""), (packed[20:36], local_port, "to "))
    shown = [f"{word}{_address_text(one)}{f' port {port}' if port else ''}" for one, port, word in ends if any(one)]
    return " ".join(shown if any(packed[20:36]) or not local_port else [*shown, f"to port {local_port}"])


def difference(now: Tree, then: Tree, names: Mapping[int, str]) -> list[Operation]:
    """What makes `then` of `now`, in an order in which no packet of a link is ever free. `names`: of devices."""
    lanes = _differing(now.lanes, then.lanes)
    keys = _differing(now.keys, then.keys)
    hooks = [
        Operation(
            "add" if one not in now.hooks else "change", "hook", names.get(one[0], "?"), one, now.hooks.get(one), new
        )
        for one, new in then.hooks.items()
        if now.hooks.get(one) != new
    ]
    return [
        *_ifbs(now, then),
        *(_lane(one, old, new) for one, old, new in lanes if old and new and _is_lower(new, old)),
        *_classes(now, then),
        *(_lane(one, old, new) for one, old, new in lanes if new and not (old and _is_lower(new, old))),
        *(_entry("key", one, old, new) for one, old, new in keys if new is not None),
        *_growing(now.addresses, then.addresses),
        *_unmatched(now, then, is_limited=True),
        *(Operation("add", "clsact", names.get(one, "?"), one) for one in then.clsacts if one not in now.clsacts),
        *hooks,
        *(
            Operation("remove", "hook", names.get(one[0], "?"), one, now.hooks[one])
            for one in now.hooks
            if one not in then.hooks
        ),
        *_clsacts_gone(now, then, names),
        *_unmatched(now, then, is_limited=False),
        *(_entry("key", one, old, None) for one, old, new in keys if new is None),
        *_shrinking(now.addresses, then.addresses),
        *(Operation("remove", "lane", "", one, old) for one, old, new in lanes if new is None),
        *_classes_gone(now, then),
        *(Operation("remove", "ifb", IFB_NAMES[one], one) for one in now.ifbs if one not in then.ifbs),
        *(Operation("remove", "stray", name, one) for one, name in now.strays.items()),
    ]


def _differing(now: Mapping[K, V], then: Mapping[K, V]) -> list[tuple[K, V | None, V | None]]:
    """(Name, what is, what is to be) of all that differs; None: nothing."""
    if now == then:
        return []
    found: list[tuple[K, V | None, V | None]] = [
        (name, now.get(name), new) for name, new in then.items() if now.get(name) != new
    ]
    return found + [(name, old, None) for name, old in now.items() if name not in then]


def _is_lower(new: bytes, old: bytes) -> bool:
    return rate_of(new) < rate_of(old)


def _lane(number: int, old: bytes | None, new: bytes) -> Operation:
    return Operation("add" if old is None else "change", "lane", "", number, old, new)


def _entry(table: Table, name: bytes, old: int | None, new: int | None) -> Operation:
    kind: Literal["add", "change", "remove"] = "remove" if new is None else "add" if old is None else "change"
    return Operation(kind, table, "", name, old, new)


def _ifbs(now: Tree, then: Tree) -> Iterator[Operation]:
    for direction in then.ifbs:
        found, device = now.ifbs.get(direction), IFB_NAMES[direction]
        if found is None:
            yield Operation("add", "ifb", device, direction)
        elif not found.is_up:
            yield Operation("change", "ifb", device, direction)
        if found is None or not found.has_root:
            yield Operation("add", "root", device, direction)


def _classes(now: Tree, then: Tree) -> Iterator[Operation]:
    for direction in then.ifbs:
        device = IFB_NAMES[direction]
        for table, ours, wanted in (
            ("class", now.classes[direction], then.classes[direction]),
            ("leaf", now.leaves[direction], then.leaves[direction]),
        ):
            for minor, old, new in _differing(ours, wanted):
                if new is not None:
                    yield Operation(
                        "add" if old is None else "change",
                        "class" if table == "class" else "leaf",
                        device,
                        (direction, minor),
                        old,
                        new,
                    )


def _classes_gone(now: Tree, then: Tree) -> Iterator[Operation]:
    """An IFB that goes takes them along, and a class its leaf."""
    for direction in then.ifbs:
        for minor, old, new in _differing(now.classes[direction], then.classes[direction]):
            if new is None:
                yield Operation("remove", "class", IFB_NAMES[direction], (direction, minor), old)


def _growing(now: Mapping[bytes, int], then: Mapping[bytes, int]) -> Iterator[Operation]:
    """Kinds that an address gets are known as soon as there are such keys; those that it loses, after they are gone."""
    for address, old, new in _differing(now, then):
        if new is not None and new & ~(old or 0):
            yield _entry("address", address, old, new | (old or 0))


def _shrinking(now: Mapping[bytes, int], then: Mapping[bytes, int]) -> Iterator[Operation]:
    for address, old, new in _differing(now, then):
        if old is not None and (new is None or old & ~new):
            yield _entry("address", address, old, new)


def _unmatched(now: Tree, then: Tree, *, is_limited: bool) -> Iterator[Operation]:
    if then.is_unmatched_limited is is_limited is not now.is_unmatched_limited:
        yield Operation("add" if is_limited else "remove", "unmatched", "", None, None, is_limited)


def _clsacts_gone(now: Tree, then: Tree, names: Mapping[int, str]) -> Iterable[Operation]:
    return [
        Operation("remove", "clsact", names.get(one, "?"), one)
        for one, found in now.clsacts.items()
        if one not in then.clsacts and found.is_ours
    ]
