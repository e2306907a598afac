"""A kernel in memory for the planner's tests: stricter than the real one, and written apart from the planner's draft.

It refuses what the real kernel refuses, and also what that accepts in silence although it does harm: a class without
its parent, a filter to a class that is not there or not a leaf, deleting a list that holds somebody else's filter.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ap_agent.common.errors import ApplyError
from ap_agent.model import (
    ETH_P_ALL,
    FIRST_ROOT_TABLE,
    GONE,
    IFB_ALIAS,
    IFB_NAME,
    INGRESS_HOOK,
    MARKER_CHAIN,
    Device,
    Filter,
    Handle,
    HtbClass,
    InstalledFilter,
    Qdisc,
    TcState,
    Tree,
    filter_is_ours,
    is_our_class,
)
from ap_agent.ops import (
    ClassAdd,
    ClassChange,
    ClassDel,
    ClsactAdd,
    ClsactDel,
    FilterAdd,
    FilterDel,
    IfbAdd,
    IfbDel,
    IfbUp,
    LeafAdd,
    LeafChange,
    LeafReplace,
    ListDel,
    Op,
    RootAdd,
    RootDel,
    TableAdd,
    TableDel,
)
from ap_agent.placement import Route, RouteQuery
from ap_agent.u32msg import MARKER
from bandwidth_config import IPAddress

IFB_INDEX = 900


@dataclass
class FakeTree:
    root: Qdisc | None = None
    ingress: str | None = None
    classes: dict[Handle, HtbClass] = field(default_factory=dict)
    leaves: dict[Handle, Qdisc] = field(default_factory=dict)
    filters: list[InstalledFilter] = field(default_factory=list)

    def frozen(self) -> Tree:
        return Tree(
            self.root,
            self.ingress,
            tuple(self.classes.values()),
            tuple(self.leaves.values()),
            tuple(self.filters),
        )

    def add_filter(self, new: Filter, handle: int, *, kind: str = "u32") -> None:
        """Handle 0: in the first table of its preference, which the kernel makes and numbers."""
        if not handle:
            roots = {one.list_key: one.table for one in self.filters if one.table >= FIRST_ROOT_TABLE}
            key = (new.hook, new.chain, new.pref)
            number = roots.get(key) or max(roots.values(), default=FIRST_ROOT_TABLE - 1) + 1
            if key not in roots:
                self._add_first_table(new, number)
            taken = {one.handle for one in self.filters if one.table == number}
            handle = next(one for one in itertools.count(number << 20 | 0x800) if one not in taken)
        targets = (new.redirect_to,) if new.redirect_to else ()
        self.filters.append(InstalledFilter(new.hook, new.chain, new.pref, new.protocol, kind, handle, new, targets))

    def _add_first_table(self, new: Filter | InstalledFilter, number: int) -> None:
        for handle, buckets in ((0, None), (number << 20, 1)):
            one = InstalledFilter(new.hook, new.chain, new.pref, new.protocol, "u32", handle, buckets=buckets)
            self.filters.append(one)

    def add_table(self, new: InstalledFilter) -> None:
        if not any(one.list_key == new.list_key and one.table >= FIRST_ROOT_TABLE for one in self.filters):
            used = {one.table for one in self.filters}
            self._add_first_table(new, next(n for n in itertools.count(FIRST_ROOT_TABLE) if n not in used))
        self.filters.append(new)

    def is_leaf(self, handle: Handle) -> bool:
        return handle in self.classes and all(one.parent != handle for one in self.classes.values())


class FakeKernel:
    """The `Kernel` of `reconcile` in memory; `routes` says where each destination leaves."""

    def __init__(
        self,
        devices: tuple[Device, ...],
        routes: Mapping[IPAddress, Route] | None = None,
        addresses: Mapping[IPAddress, tuple[int, ...]] | None = None,
    ) -> None:
        self.devices = {one.ifindex: one for one in devices}
        self.trees = {one.ifindex: FakeTree() for one in devices}
        self._routes, self.addresses = dict(routes or {}), dict(addresses or {})
        # Tables whose preference somebody deleted: no dump shows them, and their numbers stay taken.
        self.orphans: set[tuple[int, Handle, int]] = set()

    # --- the protocol ---

    def observe(self) -> TcState:
        devices = tuple(self.devices[index] for index in sorted(self.devices))
        trees = {index: tree.frozen() for index, tree in self.trees.items() if tree.root or tree.ingress}
        return TcState(devices, self.addresses, trees)

    def route(self, query: RouteQuery) -> Route:
        return self._routes.get(query.destination, Route("none"))

    def routes(self, queries: Sequence[RouteQuery]) -> list[Route]:
        return [self.route(one) for one in queries]

    def apply(self, ops: Sequence[Op]) -> list[ApplyError | None]:
        """Like the real one: what is refused is said, the rest is done."""
        answers: list[ApplyError | None] = []
        for op in ops:
            try:
                self.apply_one(op)
                answers.append(None)
            except ApplyError as error:
                answers.append(error)
        return answers

    def apply_one(self, op: Op) -> None:  # noqa: PLR0912, PLR0915 - one arm per operation
        def need(condition: object, number: int) -> None:
            if not condition:
                raise ApplyError(str(op), number)

        if isinstance(op, IfbAdd):
            need(self.ifb is None, errno.EEXIST)
            self.devices[IFB_INDEX] = Device(IFB_INDEX, IFB_NAME, kind="ifb", alias=IFB_ALIAS)
            self.trees[IFB_INDEX] = FakeTree()
            return
        index = op.device.ifindex or IFB_INDEX
        need(index in self.devices, errno.ENODEV)
        tree = self.trees[index]
        match op:
            case IfbUp():
                self.devices[index] = replace(self.devices[index], is_up=True)
            case IfbDel():
                self.delete_ifb()
            case RootAdd(new=root):
                need(tree.root is None, errno.EEXIST)
                tree.root = root
            case RootDel(handle=handle):
                need(tree.root is not None and tree.root.handle == handle, errno.ENOENT)
                assert all(is_our_class(one) for one in tree.classes), "a foreign class goes with the root"
                assert all(filter_is_ours(one) for one in tree.filters if one.hook == handle), "a foreign filter goes"
                self.delete_root(index)
            case ClassAdd(new=one):
                need(one.handle not in tree.classes, errno.EEXIST)
                need(
                    tree.root is not None and (one.parent == tree.root.handle or one.parent in tree.classes),
                    errno.ENOENT,
                )
                need(
                    not [f for f in tree.filters if f.meaning and f.meaning.flowid == one.parent and one.parent.minor],
                    errno.EINVAL,
                )
                tree.classes[one.handle] = one
            case ClassChange(old=old, new=one):
                need(tree.classes.get(one.handle) == old and old.parent == one.parent, errno.ENOENT)
                tree.classes[one.handle] = one
            case ClassDel(handle=handle):
                need(handle in tree.classes, errno.ENOENT)
                need(tree.is_leaf(handle), errno.EBUSY)
                need(not [f for f in tree.filters if f.meaning and f.meaning.flowid == handle], errno.EBUSY)
                del tree.classes[handle]
                tree.leaves.pop(handle, None)
            case LeafAdd(new=leaf):
                need(leaf.parent not in tree.leaves, errno.EEXIST)
                need(tree.is_leaf(leaf.parent), errno.ENOENT)
                tree.leaves[leaf.parent] = leaf
            case LeafChange(new=leaf):
                old_leaf = tree.leaves.get(leaf.parent)
                need(
                    old_leaf is not None and (old_leaf.kind, old_leaf.handle) == (leaf.kind, leaf.handle), errno.EINVAL
                )
                tree.leaves[leaf.parent] = leaf
            case LeafReplace(new=leaf):
                need(tree.is_leaf(leaf.parent), errno.ENOENT)
                tree.leaves[leaf.parent] = leaf
            case ClsactAdd():
                need(tree.ingress is None, errno.EEXIST)
                tree.ingress = "clsact"
                tree.add_filter(MARKER, 0)
            case ClsactDel():
                need(tree.ingress == "clsact", errno.ENOENT)
                assert all(filter_is_ours(f) for f in tree.filters if f.hook.major == 0xFFFF), "a foreign filter goes"
                self.delete_ingress(index)
            case TableAdd(new=table):
                at_hook = [f for f in tree.filters if f.hook == table.hook]
                need(not any(f.is_table and f.table == table.table for f in at_hook), errno.EEXIST)
                need((index, table.hook, table.table) not in self.orphans, errno.EEXIST)
                need(0 < table.table < FIRST_ROOT_TABLE, errno.EINVAL)
                tree.add_table(table)
            case TableDel(old=table):
                need(table in tree.filters, errno.ENOENT)
                links = [f for f in tree.filters if f.hook == table.hook and f.meaning and f.meaning.table]
                need(not any(f.meaning and f.meaning.table == table.table for f in links), errno.EBUSY)
                inside = [f for f in tree.filters if f.list_key == table.list_key and f.table == table.table]
                assert all(filter_is_ours(f) for f in inside), "a foreign filter goes with its table"
                tree.filters = [f for f in tree.filters if f not in inside]
            case FilterAdd(new=new, handle=handle):
                self._check_filter(tree, new, handle, need)
                tree.add_filter(new, handle)
            case FilterDel(old=old):
                need(old in tree.filters, errno.ENOENT)
                assert filter_is_ours(old), "a foreign filter is deleted"
                tree.filters.remove(old)
            case ListDel(old=old):
                going = [f for f in tree.filters if f.list_key == old.list_key]
                need(going, errno.ENOENT)
                assert not any(f.is_table for f in going), "tables stay behind, and no dump shows them any longer"
                assert all(filter_is_ours(f) for f in going), "a foreign filter goes with its list"
                tree.filters = [f for f in tree.filters if f not in going]
            case _:
                raise TypeError(op)

    def _check_filter(self, tree: FakeTree, new: Filter, handle: int, need: object) -> None:
        assert callable(need)
        need(tree.ingress if new.hook == INGRESS_HOOK else tree.root and tree.root.handle == new.hook, errno.EINVAL)
        same_list = [f for f in tree.filters if f.list_key == (new.hook, new.chain, new.pref)]
        need(all(f.kind == "u32" and f.protocol == new.protocol for f in same_list), errno.EINVAL)
        tables = {f.table: f for f in tree.filters if f.is_table and f.hook == new.hook}
        if handle:
            home = tables.get(handle >> 20)
            need(home is not None and (handle >> 12 & 0xFF) < (home.buckets or 0) and handle & 0xFFF, errno.EINVAL)
            assert home is not None
            assert home.list_key == (new.hook, new.chain, new.pref), "it would be shown under another preference"
            need(not any(f.handle == handle and f.hook == new.hook for f in tree.filters), errno.EEXIST)
        if new.table is not None:
            need(new.table in tables, errno.EINVAL)
        if new.redirect_to is not None:
            need(self.ifb is not None, errno.ENODEV)
        elif new.flowid is not None and new.flowid.minor:
            need(tree.is_leaf(new.flowid), errno.ENOENT)

    # --- what other people do ---

    @property
    def ifb(self) -> FakeTree | None:
        return self.trees.get(IFB_INDEX)

    def delete_list(self, index: int, key: tuple[Handle, int, int]) -> None:
        """A whole preference, without asking what is in it."""
        tree = self.trees[index]
        tables = {(index, one.hook, one.table) for one in tree.filters if one.list_key == key and one.is_table}
        tree.filters = [one for one in tree.filters if one.list_key != key]
        self.orphans |= tables
        if not any(one.hook == key[0] and one.kind == "u32" for one in tree.filters):
            self._free_orphans(index, key[0])  # the kernel keeps tables until the last preference at a hook is gone

    def _free_orphans(self, index: int, *hooks: Handle) -> None:
        self.orphans = {one for one in self.orphans if one[0] != index or (hooks and one[1] not in hooks)}

    def delete_ifb(self) -> None:
        self._free_orphans(IFB_INDEX)
        self.devices.pop(IFB_INDEX, None)
        self.trees.pop(IFB_INDEX, None)
        for tree in self.trees.values():
            tree.filters = [self._dead(one) for one in tree.filters]

    @staticmethod
    def _dead(one: InstalledFilter) -> InstalledFilter:
        if one.meaning is None or one.meaning.redirect_to != IFB_NAME:
            return one
        return replace(one, meaning=replace(one.meaning, redirect_to=GONE), redirects_to=(GONE,))

    def delete_root(self, index: int) -> None:
        tree = self.trees[index]
        self._free_orphans(index, *(() if tree.root is None else (tree.root.handle,)))
        tree.root, tree.classes, tree.leaves = None, {}, {}
        tree.filters = [one for one in tree.filters if one.hook.major == 0xFFFF]

    def delete_ingress(self, index: int) -> None:
        tree = self.trees[index]
        self._free_orphans(index, INGRESS_HOOK)
        tree.ingress = None
        tree.filters = [one for one in tree.filters if one.hook.major != 0xFFFF]


def foreign_objects(kernel: FakeKernel) -> set[object]:
    """Everything in it that we could not have made."""
    found: set[object] = set()
    for index, tree in kernel.trees.items():
        found |= {(index, one) for one in tree.filters if not filter_is_ours(one) and one.chain != MARKER_CHAIN}
        found |= {(index, one) for one in tree.classes.values() if not is_our_class(one.handle)}
        found |= {(index, one) for one in tree.leaves.values() if not is_our_class(one.parent)}
    return found


class Walker:
    """One hook of a tree as a packet meets it, by the rules of u32; a picture of the moment when it was made."""

    def __init__(self, tree: FakeTree, hook: Handle) -> None:
        self._roots: dict[int, tuple[int, int]] = {}  # the protocol and the first table of a preference
        self._buckets: dict[tuple[int, int], list[InstalledFilter]] = {}
        for one in tree.filters:
            if one.hook != hook or one.chain != 0 or one.kind != "u32":
                continue
            if one.table >= FIRST_ROOT_TABLE:
                self._roots[one.pref] = (one.protocol, one.table)
            if one.node:
                self._buckets.setdefault((one.table, one.bucket), []).append(one)
        for nodes in self._buckets.values():
            assert len({one.node for one in nodes}) == len(nodes)
            nodes.sort(key=lambda one: one.node)

    def verdict(self, protocol: int, packet: bytes) -> Filter | None:
        """The filter that decides. One that reads behind the packet's end ends the search in its preference."""
        for pref in sorted(self._roots):
            wanted, first = self._roots[pref]
            if wanted not in (protocol, ETH_P_ALL):
                continue
            try:
                found = self._walk(first, 0, packet, depth=0)
            except IndexError:
                continue
            if found is not None:
                return found
        return None

    def _walk(self, table: int, bucket: int, packet: bytes, *, depth: int) -> Filter | None:
        """Raises `IndexError` where the packet ends before a key or hash does."""
        assert depth <= 8, "TC_U32_MAXDEPTH"
        for one in self._buckets.get((table, bucket), ()):
            meaning = one.meaning
            if meaning is None or not all(_word(packet, key.offset) & key.mask == key.value for key in meaning.keys):
                continue
            if meaning.table is None:
                return meaning
            below = 0
            if meaning.selector is not None:
                _word(packet, meaning.selector.offset)
                below = packet[meaning.selector.position]
            found = self._walk(meaning.table, below, packet, depth=depth + 1)
            if found is not None:
                return found
        return None


def verdict(tree: FakeTree, hook: Handle, protocol: int, packet: bytes) -> Filter | None:
    """The filter that decides about one packet."""
    return Walker(tree, hook).verdict(protocol, packet)


def tables_without_use(kernel: FakeKernel) -> list[InstalledFilter]:
    """Tables to which no packet can come."""
    found = []
    for tree in kernel.trees.values():
        for hook in {one.hook for one in tree.filters}:
            own = [one for one in tree.filters if one.hook == hook]
            links = [(one.table, one.meaning.table) for one in own if one.meaning and one.meaning.table is not None]
            reached = {one.table for one in own if one.table >= FIRST_ROOT_TABLE}
            while more := {to for at, to in links if at in reached} - reached:
                reached |= more
            found += [one for one in own if one.is_table and one.table not in reached]
    return found


def _word(packet: bytes, offset: int) -> int:
    word = packet[offset : offset + 4]
    if len(word) < 4:
        raise IndexError(offset)
    return int.from_bytes(word)
