"""A working copy of one device's tree that follows the operations of a plan while it is being made. Pure.

The planner asks it what will be there by now; it never decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from ap_agent.model import (
    EGRESS_HOOK,
    EMPTY_TREE,
    INDEX_PREFS,
    INGRESS_HOOK,
    MARKER_CHAIN,
    Device,
    Filter,
    Handle,
    InstalledFilter,
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

FilterList = tuple[Handle, int, int]  # hook, chain, preference


class Draft:
    """What one device will have after the operations so far."""

    def __init__(self, device: Device, major: int, tree: Tree = EMPTY_TREE) -> None:
        self.device, self.major = device, major
        self._load(tree)

    def _load(self, tree: Tree) -> None:
        self.root, self.ingress = tree.root, tree.ingress
        self.classes = {one.handle: one for one in tree.classes}
        self.leaves = {one.parent: one for one in tree.leaves}
        self.lists: dict[FilterList, list[InstalledFilter]] = {}
        self.headers: dict[FilterList, InstalledFilter] = {}
        self.tables: dict[FilterList, dict[int, InstalledFilter]] = {}
        for one in tree.filters:
            self._load_filter(one)

    def _load_filter(self, one: InstalledFilter) -> None:
        self.headers.setdefault(one.list_key, one)
        filters = self.lists.setdefault(one.list_key, [])
        if one.is_table:
            self.tables.setdefault(one.list_key, {})[one.table] = one
        elif one.handle and one.buckets is None:
            filters.append(one)

    @property
    def hook(self) -> Handle:
        return Handle(self.major)

    # --- questions ---

    def _at(self, *hooks: Handle) -> Iterator[InstalledFilter]:
        for key in sorted(self.lists):
            if key[0] in hooks:
                yield from self.lists[key]

    def our_filters(self, hook: Handle) -> list[InstalledFilter]:
        return [one for one in self._at(hook) if one.chain == 0 and filter_is_ours(one)]

    def foreign_filters(self, *hooks: Handle) -> list[InstalledFilter]:
        """With lists of other kinds that are empty: these too occupy their preference."""
        empty = (self.headers[key] for key, filters in self.lists.items() if key[0] in hooks and not filters)
        return [one for one in (*self._at(*hooks), *empty) if not filter_is_ours(one)]

    def listed_filters(self, hook: Handle) -> list[InstalledFilter]:
        """Ours that belong to no index."""
        return [one for one in self.our_filters(hook) if one.pref not in INDEX_PREFS]

    def meanings(self, hook: Handle) -> set[Filter]:
        return {one.meaning for one in self.listed_filters(hook) if one.meaning is not None}

    def index_lists(self, hook: Handle) -> list[FilterList]:
        """Preferences where an index of ours is or was."""
        return [
            key
            for key in sorted(self.lists)
            if key[0] == hook and key[1] == 0 and key[2] in INDEX_PREFS and filter_is_ours(self.headers[key])
        ]

    def table_numbers(self, hook: Handle) -> set[int]:
        """All that are taken at this hook, whoever made them: the kernel counts them for all preferences together."""
        return {number for key, tables in self.tables.items() if key[0] == hook for number in tables}

    def surplus_filters(self, hook: Handle, wanted: Collection[Filter]) -> list[InstalledFilter]:
        """Ours that are not wanted, and all but one of those that are there twice."""
        seen: set[Filter] = set()
        surplus = []
        for one in self.listed_filters(hook):
            if one.meaning is None or one.meaning not in wanted or one.meaning in seen:
                surplus.append(one)
            else:
                seen.add(one.meaning)
        return surplus

    def empty_lists(self, hook: Handle) -> list[tuple[FilterList, InstalledFilter]]:
        return [
            (key, self.headers[key])
            for key in sorted(self.lists)
            if key[0] == hook
            and not self.lists[key]
            and key[1] == 0
            and key[2] not in INDEX_PREFS
            and filter_is_ours(self.headers[key])
        ]

    def filters_into(self, handles: Collection[Handle]) -> list[InstalledFilter]:
        return [one for one in self._at(self.hook) if one.meaning is not None and one.meaning.flowid in handles]

    def descendants(self, handle: Handle) -> list[Handle]:
        """Of ours, the deepest first."""
        children = [one.handle for one in self.classes.values() if one.parent == handle and is_our_class(one.handle)]
        return [each for child in children for each in (*self.descendants(child), child)]

    def has_foreign(self) -> bool:
        """Classes, filters, or qdiscs at places that are not ours, inside our root."""
        return (
            any(not is_our_class(handle) for handle in self.classes)
            or bool(self.foreign_filters(self.hook))
            or any(parent.major == self.major and not is_our_class(parent) for parent in self.leaves)
        )

    def redirects_to(self, name: str) -> bool:
        return any(name in one.redirects_to for filters in self.lists.values() for one in filters)

    @property
    def marker(self) -> InstalledFilter | None:
        found = (one for key, one in self.headers.items() if key[1] == MARKER_CHAIN and filter_is_ours(one))
        return next(found, None)

    def has_foreign_ingress_filters(self) -> bool:
        return bool(self.foreign_filters(INGRESS_HOOK, EGRESS_HOOK))

    # --- following the operations ---

    def apply(self, op: Op) -> None:
        for kind in type(op).__mro__:  # a head that is switched is a filter that is added
            step = _STEPS.get(kind)
            if step is not None:
                step(self, op)
                return
        raise TypeError(f"unknown operation {op!r}")

    def _on_root_del(self, _op: RootDel) -> None:
        self.root, self.classes, self.leaves = None, {}, {}
        self._drop_lists([key for key in self.lists if key[0] == self.hook])

    def _on_clsact_del(self, _op: ClsactDel) -> None:
        self.ingress = None
        self._drop_lists([key for key in self.lists if key[0] in (INGRESS_HOOK, EGRESS_HOOK)])

    def _on_class_del(self, op: ClassDel) -> None:
        del self.classes[op.handle]
        self.leaves.pop(op.handle, None)

    def _on_table_del(self, op: TableDel) -> None:
        key = op.old.list_key
        del self.tables[key][op.old.table]
        self.lists[key] = [one for one in self.lists[key] if one.table != op.old.table]

    def _add_filter(self, new: Filter, handle: int) -> None:
        targets = (new.redirect_to,) if new.redirect_to else ()
        # Where the kernel picks the node, -1 never meets a delete: a plan deletes only what was there before it.
        one = InstalledFilter(new.hook, new.chain, new.pref, new.protocol, "u32", handle or -1, new, targets)
        self._load_filter(one)

    def _drop_lists(self, keys: Iterable[FilterList]) -> None:
        for key in keys:
            for kept in (self.lists, self.headers, self.tables):
                kept.pop(key, None)


# By type, because a plan may have eighty thousand of them.
_STEPS: dict[type, Callable[[Draft, Any], object]] = {
    IfbAdd: lambda _draft, _op: None,
    IfbUp: lambda _draft, _op: None,
    IfbDel: lambda draft, _op: draft._load(EMPTY_TREE),
    RootAdd: lambda draft, op: setattr(draft, "root", op.new),
    RootDel: Draft._on_root_del,
    ClsactAdd: lambda draft, _op: setattr(draft, "ingress", "clsact"),
    ClsactDel: Draft._on_clsact_del,
    ClassAdd: lambda draft, op: draft.classes.__setitem__(op.new.handle, op.new),
    ClassChange: lambda draft, op: draft.classes.__setitem__(op.new.handle, op.new),
    ClassDel: Draft._on_class_del,
    LeafAdd: lambda draft, op: draft.leaves.__setitem__(op.new.parent, op.new),
    LeafChange: lambda draft, op: draft.leaves.__setitem__(op.new.parent, op.new),
    LeafReplace: lambda draft, op: draft.leaves.__setitem__(op.new.parent, op.new),
    TableAdd: lambda draft, op: draft._load_filter(op.new),
    TableDel: Draft._on_table_del,
    FilterAdd: lambda draft, op: draft._add_filter(op.new, op.handle),
    FilterDel: lambda draft, op: draft.lists[op.old.list_key].remove(op.old),
    ListDel: lambda draft, op: draft._drop_lists([op.old.list_key]),
}
