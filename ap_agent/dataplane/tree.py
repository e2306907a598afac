"""Our objects in the kernel, present or wanted, as dictionaries; and their difference as ordered operations. Pure.

    packets ─▶ hooks ─▶ keys ─▶ lanes ─▶ classes with leaves on two IFBs

An object is complete before anything refers to it, and is removed after its references.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address
from typing import Any, Final, Literal, NamedTuple

from ap_agent.dataplane.devices import DIRECTIONS, FROM_USER, IFB_NAMES, Direction
from ap_agent.dataplane.lanes import OWN_MAJOR, Lane, rate_of
from ap_agent.dataplane.program import FROM_USER_BIT
from ap_agent.dataplane.tc import HOOK_NAMES, HtbClass, leaf_bytes
from ap_agent.dataplane.wanted import LimitedLink, Wanted
from bandwidth_config import Limits, format_kbit

UNMATCHED: Final = 0xFFF  # in place of a link: unmatched traffic
_SHOWN = ("to the user", "from the user")

Table = Literal["ifb", "root", "class", "leaf", "lane", "key", "unmatched", "hook", "clsact", "stray"]
# By table and device (empty where there is one table of a kind), name -> value:
#   ifb        its name -> whether it is up                    lane       its number -> what is written of it, packed
#   root       its IFB's name -> True                          key        packed -> the lane to the user
#   class      minor -> HtbClass                               unmatched  0 -> unmatched traffic to the users
#   leaf       minor of its class -> its limit in bytes        clsact     interface number -> True, of one that is ours
#   hook       (interface number, direction) -> Hook
#   stray      interface number -> name, of an unneeded IFB of ours: it was renamed
Tree = dict[tuple[Table, str], dict[Any, Any]]

_ONCE: Final[tuple[Table, ...]] = ("ifb", "root", "lane", "key", "unmatched", "hook", "clsact", "stray")
_OF_EACH_IFB: Final[tuple[Table, ...]] = ("class", "leaf")


class Hook(NamedTuple):
    """Ids of the programs of its two filters (0: none, -1: unusable), whether the second redirects to the IFB of its
    direction, and whether they mark the clsact as ours."""

    program: int
    admitted: int
    is_redirected: bool
    is_with_clsact: bool


def new_tree() -> Tree:
    return {(table, ""): {} for table in _ONCE} | {(table, ifb): {} for table in _OF_EACH_IFB for ifb in IFB_NAMES}


def limits_of(tree: Tree, interface_id: int) -> Limits | None:
    """Limits of the program; None without lanes of this link."""
    both = [tree["lane", ""][one] for one in (2 * interface_id, 2 * interface_id + 1) if one in tree["lane", ""]]
    return Limits(rate_of(both[0]), rate_of(both[1])) if len(both) == 2 else None


def minor_of(interface_id: int, direction: Direction) -> int:
    return interface_id | (FROM_USER_BIT if direction == FROM_USER else 0)


# --- wanted tree -----------------------------------------------------------------------------------------------


class Target:
    """The tree of a `Wanted`, without hooks; updated incrementally."""

    def __init__(self) -> None:
        self.tree = new_tree()
        self._links: dict[int, LimitedLink] = {}

    def update(self, wanted: Wanted) -> tuple[Tree, Tree]:
        """Objects of changed links, before and after."""
        old, links = self._links, dict(wanted.links)
        if wanted.unmatched_kbit is not None:
            links[UNMATCHED] = LimitedLink(UNMATCHED, (), wanted.unmatched_kbit, wanted.unmatched_kbit)
        changed = [one for one, link in links.items() if old.get(one) != link]
        changed += old.keys() - links.keys()
        before = _part({one: old[one] for one in changed if one in old})
        after = _part({one: links[one] for one in changed if one in links})
        for table, entries in self.tree.items():
            for name in before[table].keys() - after[table].keys():
                del entries[name]
            entries.update(after[table])
        for part in (self.tree, before, after):
            part["ifb", ""] = part["root", ""] = dict.fromkeys(IFB_NAMES, True) if links else {}
        self._links = links
        return before, after


def _part(links: Mapping[int, LimitedLink]) -> Tree:
    tree = new_tree()
    for one, link in links.items():
        for direction, kbit in zip(DIRECTIONS, (link.to_user_kbit, link.from_user_kbit), strict=True):
            minor = minor_of(one, direction)
            tree["lane", ""][2 * one + direction] = Lane(kbit, minor, is_observed=link.is_observed).packed()
            if kbit:
                tree["class", IFB_NAMES[direction]][minor] = HtbClass.of(kbit)
                tree["leaf", IFB_NAMES[direction]][minor] = leaf_bytes(kbit)
        for key in link.keys:
            tree["key", ""][key.packed()] = 2 * one
    if UNMATCHED in links:
        tree["unmatched", ""][0] = 2 * UNMATCHED
    return tree


# --- operations ------------------------------------------------------------------------------------------------


class Operation(NamedTuple):
    """One step. `device` is empty for the program's memory. `name`, `now` and `then` as in `Tree`."""

    kind: Literal["add", "change", "remove"]
    table: Table
    device: str
    name: Any
    now: Any = None
    then: Any = None

    @property
    def links(self) -> frozenset[int]:
        """Interface ids that it affects; empty for all."""
        found: tuple[int, ...] = ()
        if self.table in ("class", "leaf"):
            found = (self.name & ~FROM_USER_BIT,)
        elif self.table == "lane":
            found = (self.name // 2,)
        elif self.table == "key":
            found = tuple(one // 2 for one in (self.now, self.then) if one is not None)
        return frozenset(found)

    def __str__(self) -> str:
        what = _TEXTS[self.table](self.name, self.now if self.then is None else self.then)
        return f"{f'{self.device}: ' if self.device else ''}{self.kind} {what}"


_TEXTS: Final[dict[Table, Callable[[Any, Any], str]]] = {
    "ifb": lambda *_: "IFB",
    "stray": lambda *_: "IFB",
    "root": lambda *_: f"root htb {OWN_MAJOR:x}:",
    "class": lambda minor, value: f"class {OWN_MAJOR:x}:{minor:x}, {format_kbit(value.rate_kbit)}",
    "leaf": lambda minor, value: f"queue of class {OWN_MAJOR:x}:{minor:x}, {value} B",
    "lane": lambda lane, value: f"limit of {_link_name(lane)} {_SHOWN[lane % 2]}, {format_kbit(rate_of(value))}",
    "key": lambda key, lane: f"packets of {_link_name(lane)}: {_key_text(key)}",
    "unmatched": lambda *_: "limit of unmatched traffic",
    "hook": lambda hook, _: f"filters at {HOOK_NAMES[hook[1]]}",
    "clsact": lambda *_: "clsact qdisc",
}


def _link_name(lane: int) -> str:
    return "unmatched traffic" if lane // 2 == UNMATCHED else f"link {lane // 2}"


def _address_text(packed: bytes) -> str:
    address = ip_address(packed[:16])
    return str(getattr(address, "ipv4_mapped", None) or address)


def _key_text(packed: bytes) -> str:
    remote_port, local_port = struct.unpack_from("!HH", packed, 36)
    text = _address_text(packed) + (f" port {remote_port}" if remote_port else "")
    local = [_address_text(packed[20:36])] if any(packed[20:36]) else []
    if local_port:
        local.append(f"port {local_port}")
    return f"{text} to {' '.join(local)}" if local else text


# Lower first in the program and last in HTB, raise in reverse: admitted packets are always paced.
_ORDER: Final = (
    *("put ifb", "put root", "lower lane", "put class", "put leaf", "put lane", "put key", "put unmatched", "put hook"),
    *("remove hook", "remove clsact", "remove unmatched", "remove key", "remove lane", "remove class", "remove ifb"),
    "remove stray",
)


def difference(now: Tree, then: Tree, names: Mapping[int, str]) -> list[Operation]:
    """Operations from `now` to `then`, ordered so that no packet of a link is ever unlimited. `names`: of devices.
    Roots and leaves are removed with their parents, and so are the classes of an IFB and the filters of a clsact."""
    found: dict[str, list[Operation]] = defaultdict(list)
    for table, wanted in then.items():
        for step, one in _changes(table, now[table], wanted, names):
            found[step].append(one)
    if not then["ifb", ""]:
        found["remove class"].clear()
    gone = {one.name for one in found["remove clsact"]}
    found["remove hook"] = [one for one in found["remove hook"] if one.name[0] not in gone]
    return [one for step in _ORDER for one in found[step]]


def _changes(
    table: tuple[Table, str], now: Mapping[Any, Any], then: Mapping[Any, Any], names: Mapping[int, str]
) -> Iterator[tuple[str, Operation]]:
    """(Step of `_ORDER`, operation) of each difference."""
    if now == then:
        return
    kind, device = table
    for name, new in then.items():
        old = now.get(name)
        if old != new:
            is_lower = kind == "lane" and old is not None and rate_of(new) < rate_of(old)
            where = device or _device(kind, name, names)
            one = Operation("add" if old is None else "change", kind, where, name, old, new)
            yield "lower lane" if is_lower else f"put {kind}", one
    for name, old in now.items():
        if name not in then:
            yield f"remove {kind}", Operation("remove", kind, device or _device(kind, name, names), name, old)


def _device(table: Table, name: Any, names: Mapping[int, str]) -> str:
    match table:
        case "ifb" | "root":
            return str(name)
        case "hook":
            return names.get(name[0], "?")
        case "clsact" | "stray":
            return names.get(name, "?")
    return ""
