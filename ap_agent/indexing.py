"""From the tables of an index as they are to the rules as they should be: the operations. Pure.

What serves well enough is changed rule by rule: new ones first, what is to go later (`strip`). Otherwise the index is
built anew under the other of its two preferences, with nothing leading there until it is complete; then packets are
switched over, and the old one goes. So there is no moment at which a packet of a limited link meets half an index.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from ap_agent.draft import Draft, FilterList
from ap_agent.hashing import (
    BUCKETS,
    LINK_NODES,
    NODES_PER_ORDER,
    REBUILD_ABOVE,
    Spot,
    Table,
    byte_of,
    design,
    guard_of,
    longest,
    nodes_of,
    read,
    spread,
)
from ap_agent.model import (
    FIRST_ROOT_TABLE,
    IFB_NAME,
    Filter,
    Handle,
    Index,
    InstalledFilter,
    Key,
    Rule,
    Selector,
    filter_is_ours,
    link_of_class,
    links_of_rules,
)
from ap_agent.ops import FilterAdd, FilterDel, HeadSwitch, ListDel, Op, TableAdd, TableDel

NOBODY: frozenset[int] = frozenset()


class NoRoomError(Exception):
    """There are not enough node ids or table numbers for the rules of `links`."""

    def __init__(self, what: str, links: frozenset[int]) -> None:
        super().__init__(what)
        self.links = links


@dataclass
class _Shelf:
    """What one preference holds: filters by table and bucket, tables with their sizes."""

    key: FilterList
    roots: list[InstalledFilter] = field(default_factory=list)
    tables: dict[int, int] = field(default_factory=dict)
    nodes: dict[tuple[int, int], list[InstalledFilter]] = field(default_factory=lambda: defaultdict(list))

    @property
    def pref(self) -> int:
        return self.key[2]

    @property
    def is_empty(self) -> bool:
        return not (self.roots or self.tables or self.nodes)

    def all_nodes(self) -> Iterator[InstalledFilter]:
        for nodes in self.nodes.values():
            yield from nodes


def _shelf(draft: Draft, hook: Handle, pref: int) -> _Shelf:
    shelf = _Shelf((hook, 0, pref))
    shelf.tables = {number: one.buckets or 1 for number, one in draft.filters.tables.get(shelf.key, {}).items()}
    for one in draft.filters.lists.get(shelf.key, {}).values():
        if is_root(one):
            shelf.roots.append(one)
        else:
            shelf.nodes[one.table, one.bucket].append(one)
    return shelf


class IndexPlanner:
    """Plans one index on one device. `do` takes an operation and keeps `draft` in step."""

    def __init__(
        self,
        draft: Draft,
        index: Index,
        do: Callable[[Op], None],
        *,
        blocked: frozenset[int] = frozenset(),
        avoid: frozenset[int] = frozenset(),
    ) -> None:
        """`blocked` are preferences that somebody else has, `avoid` table numbers that the kernel does not give."""
        self._draft, self._index, self._do = draft, index, do
        self._prefs = [pref for pref in index.prefs if pref not in blocked]
        self._taken = draft.table_numbers(index.hook) | avoid
        self._everybody = index.links
        self._shelf = _Shelf((index.hook, 0, 0))  # where it will live
        self._is_built = False
        self._begin()

    def _begin(self) -> None:
        """With nothing planned yet."""
        self._numbers = (number for number in range(1, FIRST_ROOT_TABLE) if number not in self._taken)
        self._todo: list[Op] = []
        self._sinks: dict[int, int] = {}
        self._kept_tables: set[int] = set()
        self._kept_nodes: set[int] = set()
        self._is_switching = False

    @property
    def pref(self) -> int:
        """The first of the two preferences that it may live at."""
        return self._index.pref

    # --- building ---

    def build(self) -> None:
        """Raises `NoRoomError` before anything is done; what is there then stays as it is."""
        shelves = {pref: _shelf(self._draft, self._index.hook, pref) for pref in self._prefs}
        living = {pref: top for pref, shelf in shelves.items() if (top := self._read(shelf)) is not None}
        if not living:
            self._build_anew(shelves)
        else:
            # Two: killed while switching over. Either was complete, so which one stays does not matter to any packet.
            pref = min(living, key=lambda one: (self._misses(shelves[one]) if len(living) > 1 else 0, one))
            self._build_upon(shelves, pref, living[pref])
        for op in self._todo:
            self._do(op)
        self._is_built = True

    def _read(self, shelf: _Shelf) -> Table | None:
        return read(self._index, shelf.roots, shelf.tables, shelf.nodes)

    def _misses(self, shelf: _Shelf) -> int:
        """How many rules are not there."""
        have = {(one.meaning.keys, one.meaning.flowid) for one in shelf.all_nodes() if one.meaning is not None}
        return sum((rule.keys, rule.flowid) not in have for rule in self._index.rules)

    def _build_upon(self, shelves: dict[int, _Shelf], pref: int, top: Table) -> None:
        spots = spread(self._index, top)
        if longest(spots) > REBUILD_ABOVE and len(shelves) > 1:
            better = design(self._index)
            if 2 * longest(spread(self._index, better)) <= longest(spots):
                try:
                    self._is_switching = True
                    self._build_anew({other: shelves[other] for other in shelves if other != pref}, better)
                    return
                except NoRoomError:  # for both at a time: then it stays crowded, which costs time and nothing else
                    self._begin()
        self._grow(shelves[pref], top, spots)

    def _build_anew(self, shelves: dict[int, _Shelf], top: Table | None = None) -> None:
        pref = min(shelves, key=lambda one: (not shelves[one].is_empty, one))
        # Left there by somebody who was killed: nothing leads into it, or it is nothing that we build.
        clear_shelf(self._draft, shelves[pref].key, self._do)
        top = top or design(self._index)
        self._grow(_Shelf(shelves[pref].key), top, spread(self._index, top))
        head = HeadSwitch if self._is_switching else FilterAdd
        self._todo.append(head(self._draft.device, self._everybody, self._link_to(top, self._index.head)))

    def _grow(self, shelf: _Shelf, top: Table, spots: list[Spot]) -> None:
        """Add what is missing: a table before its rules, its rules before what leads to it."""
        self._shelf = shelf
        there = self._read_sinks()
        for order in sorted({rule.order for rule in self._index.rules} & set(self._index.redirects)):
            self._sinks[order] = there[order] if order in there else self._add_table(1, self._everybody)
        by_table: dict[int, list[Spot]] = defaultdict(list)
        for spot in spots:
            by_table[id(spot.table)].append(spot)
        self._grow_table(top, by_table)
        for order, number in self._sinks.items():
            self._fill_sink(number, self._index.redirects[order])

    def _grow_table(self, table: Table, spots: dict[int, list[Spot]]) -> None:
        if table.number is None:
            table.number = self._add_table(BUCKETS, self._served_by(table, spots))
        self._kept_tables.add(table.number)
        # What is asked first comes first: with the rest in front, packets of a new link would meet that for a moment.
        for bucket, branch in sorted(table.branches.items()):
            self._grow_table(branch, spots)
            self._link(table.number, bucket, branch, spots)
        for spot in sorted(spots.get(id(table), ()), key=lambda one: one.bucket):
            self._fill_bucket(table.number, spot)

    def _served_by(self, table: Table, spots: dict[int, list[Spot]]) -> frozenset[int]:
        """The links whose packets may come through that table."""
        return links_of_rules(rule for one in table.walk() for spot in spots.get(id(one), ()) for rule in spot.rules)

    def _link(self, number: int, bucket: int, branch: Table, spots: dict[int, list[Spot]]) -> None:
        there = self._shelf.nodes.get((number, bucket), [])
        wanted = self._link_to(branch, guard_of(self._index, branch.selector))
        old = next((one for one in there if one.meaning == wanted and one.node in LINK_NODES), None)
        if old is not None:
            self._kept_nodes.add(old.handle)
            return
        served = self._served_by(branch, spots)
        self._add(wanted, number, bucket, _free(LINK_NODES, {one.node for one in there}, served), served)

    def _fill_bucket(self, number: int, spot: Spot) -> None:
        there = self._shelf.nodes.get((number, spot.bucket), [])
        used, homeless = {one.node for one in there}, NOBODY
        for rule in sorted(spot.rules, key=lambda one: one.order):
            table = self._sinks[rule.order] if rule.flowid is None else None
            old = next((one for one in there if _does(one, rule, table)), None)
            if old is not None:
                self._kept_nodes.add(old.handle)
                continue
            try:
                node = _free(nodes_of(rule.order), used, rule.links)
            except NoRoomError:
                homeless |= rule.links
                continue
            used.add(node)
            wanted = self._filter(keys=rule.keys, flowid=rule.flowid, table=table)
            self._add(wanted, number, spot.bucket, node, rule.links)
        if homeless:
            raise NoRoomError("filters in one bucket", homeless)

    # --- redirects ---

    def _read_sinks(self) -> dict[int, int]:
        """The table of redirects for each order: the one to which most sources of that order lead."""
        votes: dict[int, Counter[int]] = defaultdict(Counter)
        for one in self._shelf.all_nodes():
            table = one.meaning.table if one.meaning is not None and one.meaning.selector is None else None
            if table is not None and self._shelf.tables.get(table) == 1:
                votes[one.node // NODES_PER_ORDER][table] += 1
        return {order: votes[order].most_common(1)[0][0] for order in self._index.redirects if order in votes}

    def _fill_sink(self, number: int, redirects: Iterable[tuple[Key, ...]]) -> None:
        self._kept_tables.add(number)
        there = self._shelf.nodes.get((number, 0), [])
        used = {one.node for one in there}
        for keys in redirects:
            wanted = self._filter(keys=keys, redirect_to=IFB_NAME)
            old = next((one for one in there if one.meaning == wanted), None)
            if old is not None:
                self._kept_nodes.add(old.handle)
                continue
            node = _free(nodes_of(0), used, self._everybody)
            used.add(node)
            self._add(wanted, number, 0, node, self._everybody)

    # --- small parts ---

    def _filter(
        self,
        *,
        keys: tuple[Key, ...],
        flowid: Handle | None = None,
        redirect_to: str | None = None,
        table: int | None = None,
        selector: Selector | None = None,
    ) -> Filter:
        index, pref = self._index, self._shelf.pref
        return Filter(index.hook, pref, index.protocol, keys, flowid, redirect_to, table=table, selector=selector)

    def _link_to(self, table: Table, keys: tuple[Key, ...]) -> Filter:
        return self._filter(keys=keys, table=table.number, selector=table.selector)

    def _add(self, one: Filter, table: int, bucket: int, node: int, links: frozenset[int]) -> None:
        handle = table << 20 | bucket << 12 | node
        self._kept_nodes.add(handle)
        self._todo.append(FilterAdd(self._draft.device, links, one, handle))

    def _add_table(self, buckets: int, links: frozenset[int]) -> int:
        number = next(self._numbers, None)
        if number is None:
            raise NoRoomError("hash tables", links)
        index = self._index
        new = InstalledFilter(index.hook, 0, self._shelf.pref, index.protocol, "u32", number << 20, buckets=buckets)
        self._todo.append(TableAdd(self._draft.device, links, new))
        return number

    # --- taking away ---

    def strip(self) -> None:
        """What `build` did not keep, at either preference."""
        if not self._is_built:
            return
        for pref in self._index.prefs:
            key = (self._index.hook, 0, pref)
            if key == self._shelf.key:
                self._strip_shelf(key)
            else:
                clear_shelf(self._draft, key, self._do, self._everybody if self._is_switching else NOBODY)

    def _strip_shelf(self, key: FilterList) -> None:
        doomed = set(self._draft.filters.tables.get(key, {})) - self._kept_tables
        # What is asked last goes first: nothing that was in its shadow is ever asked in its place.
        for one in sorted(self._draft.filters.lists.get(key, {}).values(), key=lambda one: -one.node):
            is_kept = is_root(one) or one.handle in self._kept_nodes or one.table in doomed
            if not is_kept and filter_is_ours(one):
                rests_on = self._successors.get(self._address_of(one.meaning.keys if one.meaning else ()), NOBODY)
                self._do(FilterDel(self._draft.device, links_of_filter(one), one, rests_on))
        _delete_tables(self._draft, key, doomed, self._do)

    @cached_property
    def _successors(self) -> dict[tuple[int | None, ...], frozenset[int]]:
        """The links that have rules now, by remote address: what such a rule replaces goes only when that is there."""
        found: dict[tuple[int | None, ...], frozenset[int]] = {}
        for rule in self._index.rules:
            address = self._address_of(rule.keys)
            found[address] = found.get(address, NOBODY) | rule.links
        return found

    def _address_of(self, keys: tuple[Key, ...]) -> tuple[int | None, ...]:
        return tuple(byte_of(keys, position) for position in self._index.address)


def _does(one: InstalledFilter, rule: Rule, table: int | None) -> bool:
    """Whether a filter in the rule's bucket is that rule, at a node of its order."""
    meaning = one.meaning
    return (
        meaning is not None
        and meaning.keys == rule.keys
        and meaning.flowid == rule.flowid
        and meaning.table == table
        and meaning.selector is None
        and meaning.redirect_to is None
        and one.node in nodes_of(rule.order)
    )


def is_root(one: InstalledFilter) -> bool:
    """Whether a filter is in the first table of its preference."""
    return one.handle < 0 or one.table >= FIRST_ROOT_TABLE


def _free(nodes: range, used: set[int], links: frozenset[int]) -> int:
    node = next((node for node in nodes if node not in used), None)
    if node is None:
        raise NoRoomError("filters in one bucket", links)
    return node


def clear_shelf(draft: Draft, key: FilterList, do: Callable[[Op], None], rests_on: frozenset[int] = NOBODY) -> None:
    """Remove what is ours at one preference: first what leads into tables, then these, then the preference itself."""
    book = draft.filters
    if key not in book.lists or not filter_is_ours(book.headers[key]):
        return
    tables = set(book.tables.get(key, {}))
    filters = list(book.lists[key].values())
    if tables:
        for one in [one for one in filters if one.table not in tables and filter_is_ours(one)]:
            do(FilterDel(draft.device, links_of_filter(one), one, rests_on))
        _delete_tables(draft, key, tables, do, rests_on)
    left = list(book.lists[key].values())
    if all(filter_is_ours(one) for one in left) and not book.tables.get(key):
        links = NOBODY.union(*(links_of_filter(one) for one in left))
        do(ListDel(draft.device, links, book.headers[key], len(left), rests_on))
        return
    for one in [one for one in left if filter_is_ours(one)]:
        do(FilterDel(draft.device, links_of_filter(one), one, rests_on))


def _delete_tables(
    draft: Draft, key: FilterList, doomed: set[int], do: Callable[[Op], None], rests_on: frozenset[int] = NOBODY
) -> None:
    """Those that lead to others first. One in which somebody else has a filter stays."""
    inside = {number: draft.filters.inside(key, number) for number in doomed}
    leads_to = {
        number: {one.meaning.table for one in inside[number] if one.meaning is not None} & doomed for number in doomed
    }
    ordered: list[int] = []

    def visit(number: int) -> None:
        if number not in ordered:
            for after in sorted(leads_to.pop(number, set()), key=lambda one: one or 0):
                if after is not None and after in leads_to:
                    visit(after)
            ordered.append(number)

    for number in sorted(doomed):
        visit(number)
    for number in reversed(ordered):
        if all(filter_is_ours(one) for one in inside[number]):
            do(TableDel(draft.device, NOBODY, draft.filters.tables[key][number], rests_on))


def links_of_filter(one: InstalledFilter) -> frozenset[int]:
    number = link_of_class(one.meaning.flowid) if one.meaning is not None else None
    return NOBODY if number is None else frozenset({number})
