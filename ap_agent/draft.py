"""A working copy of one device's tree that follows the operations of a plan while it is being made. Pure.

The planner asks it what will be there by now; it never decides.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from ap_agent.model import (
    ADMISSION_HANDLE,
    ADMISSION_NAME,
    ADMISSION_PREF,
    EGRESS_HOOK,
    EMPTY_TREE,
    ETH_P_ALL,
    GONE,
    INDEX_PREFS,
    INGRESS_HOOK,
    MARKER_CHAIN,
    Device,
    Filter,
    Handle,
    HtbClass,
    InstalledFilter,
    Program,
    Tree,
    filter_is_ours,
    is_admission,
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
from ap_agent.whole.ops import AdmissionAttach, AdmissionDetach

FilterList = tuple[Handle, int, int]  # hook, chain, preference


class FilterBook:
    """The filters of one device, kept so that each of thousands is found and removed at once."""

    def __init__(self, filters: Iterable[InstalledFilter] = ()) -> None:
        self.headers: dict[FilterList, InstalledFilter] = {}
        self.lists: dict[FilterList, dict[int, InstalledFilter]] = {}  # by handle
        self.foreign: dict[FilterList, dict[int, InstalledFilter]] = {}  # those of them that are not ours
        self.tables: dict[FilterList, dict[int, InstalledFilter]] = {}  # by number
        self.leading_to: Counter[tuple[Handle, Handle]] = Counter()  # how many at that hook lead to that class
        self._inside: dict[tuple[FilterList, int], set[int]] = defaultdict(set)  # handles, by table
        self._new = itertools.count(-1, -1)
        for one in filters:
            self.add(one)

    def next_handle(self) -> int:
        """For one whose node the kernel picks: no delete meets it, because a plan deletes only what was there."""
        return next(self._new)

    def add(self, one: InstalledFilter) -> None:
        key = one.list_key
        self.headers.setdefault(key, one)
        filters = self.lists.setdefault(key, {})
        if one.is_table:
            self.tables.setdefault(key, {})[one.table] = one
        elif one.handle and one.buckets is None:
            filters[one.handle] = one
            self._inside[key, one.table].add(one.handle)
            if not filter_is_ours(one):
                self.foreign.setdefault(key, {})[one.handle] = one
            if one.meaning is not None and one.meaning.flowid is not None:
                self.leading_to[one.hook, one.meaning.flowid] += 1

    def remove(self, one: InstalledFilter) -> None:
        key = one.list_key
        del self.lists[key][one.handle]
        self.foreign.get(key, {}).pop(one.handle, None)
        self._inside[key, one.table].discard(one.handle)
        if one.meaning is not None and one.meaning.flowid is not None:
            self.leading_to[one.hook, one.meaning.flowid] -= 1

    def inside(self, key: FilterList, table: int) -> list[InstalledFilter]:
        return [self.lists[key][handle] for handle in sorted(self._inside[key, table])]

    def remove_table(self, table: InstalledFilter) -> None:
        for one in self.inside(table.list_key, table.table):
            self.remove(one)
        del self.tables[table.list_key][table.table]

    def drop(self, keys: Iterable[FilterList]) -> None:
        for key in keys:
            for one in list(self.lists.pop(key, {}).values()):
                self._inside[key, one.table].discard(one.handle)
                if one.meaning is not None and one.meaning.flowid is not None:
                    self.leading_to[one.hook, one.meaning.flowid] -= 1
            for kept in (self.headers, self.foreign, self.tables):
                kept.pop(key, None)


class Draft:
    """What one device will have after the operations so far."""

    def __init__(self, device: Device, major: int, tree: Tree = EMPTY_TREE) -> None:
        self.device, self.major = device, major
        self._load(tree)

    def _load(self, tree: Tree) -> None:
        self.root, self.ingress = tree.root, tree.ingress
        self.leaves = {one.parent: one for one in tree.leaves}
        self.filters = FilterBook(tree.filters)
        self._load_classes(tree.classes)

    def _load_classes(self, classes: Iterable[HtbClass]) -> None:
        self.classes: dict[Handle, HtbClass] = {}
        self._children: dict[Handle, set[Handle]] = defaultdict(set)
        for one in classes:
            self._put_class(one)

    def _put_class(self, one: HtbClass) -> None:
        self.classes[one.handle] = one
        self._children[one.parent].add(one.handle)

    @property
    def hook(self) -> Handle:
        return Handle(self.major)

    # --- questions ---

    def _at(self, *hooks: Handle) -> Iterator[InstalledFilter]:
        for key in sorted(self.filters.lists):
            if key[0] in hooks:
                yield from self.filters.lists[key].values()

    def dead_redirects(self) -> list[InstalledFilter]:
        """Ours, to a device that is gone."""
        ours = (one for one in self._at(INGRESS_HOOK) if one.redirects_to == (GONE,) and filter_is_ours(one))
        return [one for one in ours if one.chain == 0]

    def foreign_filters(self, *hooks: Handle) -> list[InstalledFilter]:
        """With lists of other kinds that are empty: these too occupy their preference."""
        book = self.filters
        empty = [book.headers[key] for key, filters in book.lists.items() if key[0] in hooks and not filters]
        others = (book.foreign[key].values() for key in sorted(book.foreign) if key[0] in hooks)
        return [*itertools.chain.from_iterable(others), *(one for one in empty if not filter_is_ours(one))]

    def listed_filters(self, hook: Handle) -> list[InstalledFilter]:
        """Ours that belong to no index and admit no datagrams."""
        keys = [key for key in sorted(self.filters.lists) if key[:2] == (hook, 0) and key[2] not in INDEX_PREFS]
        found = (one for key in keys for one in self.filters.lists[key].values() if filter_is_ours(one))
        return [one for one in found if not is_admission(one)]

    def admission(self, hook: Handle) -> InstalledFilter | None:
        """The filter at this hook that admits whole datagrams."""
        one = self.filters.lists.get((hook, 0, ADMISSION_PREF), {}).get(ADMISSION_HANDLE)
        return one if one is not None and is_admission(one) else None

    def meanings(self, hook: Handle) -> set[Filter]:
        return {one.meaning for one in self.listed_filters(hook) if one.meaning is not None}

    def index_lists(self, hook: Handle) -> list[FilterList]:
        """Preferences where an index of ours is or was."""
        return [
            key
            for key in sorted(self.filters.lists)
            if key[:2] == (hook, 0) and key[2] in INDEX_PREFS and filter_is_ours(self.filters.headers[key])
        ]

    def table_numbers(self, hook: Handle) -> set[int]:
        """All that are taken at this hook, whoever made them: the kernel counts them for all preferences together."""
        return {number for key, tables in self.filters.tables.items() if key[0] == hook for number in tables}

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
            (key, self.filters.headers[key])
            for key in sorted(self.filters.lists)
            if key[:2] == (hook, 0)
            and not self.filters.lists[key]
            and key[2] not in INDEX_PREFS
            and filter_is_ours(self.filters.headers[key])
        ]

    def filters_into(self, handles: Collection[Handle]) -> list[InstalledFilter]:
        return [one for one in self._at(self.hook) if one.meaning is not None and one.meaning.flowid in handles]

    def is_in_use(self, handle: Handle) -> bool:
        """Whether a class has children, or filters that lead to it."""
        return bool(self._children[handle]) or self.filters.leading_to[self.hook, handle] > 0

    def descendants(self, handle: Handle) -> list[Handle]:
        """Of ours, the deepest first."""
        children = [one for one in sorted(self._children[handle]) if is_our_class(one)]
        return [each for child in children for each in (*self.descendants(child), child)]

    def has_foreign(self) -> bool:
        """Classes, filters, or qdiscs at places that are not ours, inside our root."""
        return (
            any(not is_our_class(handle) for handle in self.classes)
            or bool(self.foreign_filters(self.hook))
            or any(parent.major == self.major and not is_our_class(parent) for parent in self.leaves)
        )

    def redirects_to(self, name: str) -> bool:
        return any(name in one.redirects_to for filters in self.filters.lists.values() for one in filters.values())

    @property
    def marker(self) -> InstalledFilter | None:
        found = (one for key, one in self.filters.headers.items() if key[1] == MARKER_CHAIN and filter_is_ours(one))
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
        self.root, self.leaves = None, {}
        self._load_classes(())
        self.filters.drop([key for key in self.filters.lists if key[0] == self.hook])

    def _on_clsact_del(self, _op: ClsactDel) -> None:
        self.ingress = None
        self.filters.drop([key for key in self.filters.lists if key[0] in (INGRESS_HOOK, EGRESS_HOOK)])

    def _on_class_del(self, op: ClassDel) -> None:
        self._children[self.classes.pop(op.handle).parent].discard(op.handle)
        self.leaves.pop(op.handle, None)

    def _on_filter_add(self, op: FilterAdd) -> None:
        new, handle = op.new, op.handle or self.filters.next_handle()
        targets = (new.redirect_to,) if new.redirect_to else ()
        self.filters.add(InstalledFilter(new.hook, new.chain, new.pref, new.protocol, "u32", handle, new, targets))

    def _on_admission_attach(self, op: AdmissionAttach) -> None:
        self._on_admission_detach(op)
        place = (op.hook, 0, ADMISSION_PREF, ETH_P_ALL)
        program = Program(ADMISSION_NAME, op.program.number, is_direct=True)
        self.filters.add(InstalledFilter(*place, "bpf", ADMISSION_HANDLE, program=program))

    def _on_admission_detach(self, op: AdmissionAttach | AdmissionDetach) -> None:
        old = self.admission(op.hook)
        if old is not None:
            self.filters.remove(old)


# By type, because a plan may have eighty thousand of them.
_STEPS: dict[type, Callable[[Draft, Any], object]] = {
    IfbAdd: lambda _draft, _op: None,
    IfbUp: lambda _draft, _op: None,
    IfbDel: lambda draft, _op: draft._load(EMPTY_TREE),
    RootAdd: lambda draft, op: setattr(draft, "root", op.new),
    RootDel: Draft._on_root_del,
    ClsactAdd: lambda draft, _op: setattr(draft, "ingress", "clsact"),
    ClsactDel: Draft._on_clsact_del,
    ClassAdd: lambda draft, op: draft._put_class(op.new),
    ClassChange: lambda draft, op: draft._put_class(op.new),
    ClassDel: Draft._on_class_del,
    LeafAdd: lambda draft, op: draft.leaves.__setitem__(op.new.parent, op.new),
    LeafChange: lambda draft, op: draft.leaves.__setitem__(op.new.parent, op.new),
    LeafReplace: lambda draft, op: draft.leaves.__setitem__(op.new.parent, op.new),
    TableAdd: lambda draft, op: draft.filters.add(op.new),
    TableDel: lambda draft, op: draft.filters.remove_table(op.old),
    FilterAdd: Draft._on_filter_add,
    FilterDel: lambda draft, op: draft.filters.remove(op.old),
    ListDel: lambda draft, op: draft.filters.drop([op.old.list_key]),
    AdmissionAttach: Draft._on_admission_attach,
    AdmissionDetach: Draft._on_admission_detach,
}
