"""How an index is spread over u32's hash tables: reading the tables that are there, and designing new ones. Pure.

    first table ── head ──▶ table by one byte of the remote address ──▶ table by another byte ──▶ bucket: the rules
                                                                                  └──▶ table by a byte of the port …

Two levels cost the same at one link and at ten thousand, as long as buckets stay short (docs/performance.md). By which
bytes is decided when an index is built: those in which the addresses differ most, because u32 hashes consecutive bits
only, and IPv6 addresses that differ elsewhere would pile up in one bucket. A bucket that is long all the same (many
links behind one address) gets tables of its own. Tables that serve well enough stay when links come and go.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ap_agent.model import Index, InstalledFilter, Key, Rule, Selector

BUCKETS = 256  # the most that u32 knows
SPLIT_ABOVE = 16  # rules in one bucket of a new design; each that does not match costs a packet about 5 ns
REBUILD_ABOVE = 32  # from here a design that at least halves the longest bucket is worth building
MAX_SPLITS = 3  # u32 follows eight links at most (TC_U32_MAXDEPTH)
# u32 asks the nodes of a bucket in the order of their ids: the link to the next table, then rules by their order.
LINK_NODES = range(1, 16)
NODES_PER_ORDER = 0x200

Nodes = Mapping[tuple[int, int], Sequence[InstalledFilter]]  # by table and bucket


@dataclass
class Table:
    """One hash table. `number` is None until it gets one; with `below` every bucket leads to a table hashed by that."""

    selector: Selector
    number: int | None = None
    branches: dict[int, Table] = field(default_factory=dict)
    below: Selector | None = None

    def walk(self) -> Iterator[Table]:
        yield self
        for branch in self.branches.values():
            yield from branch.walk()


@dataclass
class Spot:
    """A bucket and the rules that belong into it."""

    table: Table
    bucket: int
    rules: list[Rule] = field(default_factory=list)


def spread(index: Index, top: Table) -> list[Spot]:
    """Where each rule belongs. Second-level tables that are missing are added to `top`."""
    spots: dict[tuple[int, int], Spot] = {}
    for rule in index.rules:
        table, bucket = _spot(index, top, rule)
        spots.setdefault((id(table), bucket), Spot(table, bucket)).rules.append(rule)
    return list(spots.values())


def longest(spots: Iterable[Spot]) -> int:
    return max((len(spot.rules) for spot in spots), default=0)


def _spot(index: Index, table: Table, rule: Rule) -> tuple[Table, int]:
    while True:
        bucket = byte_of(rule.keys, table.selector.position)
        if bucket is None:
            raise ValueError(f"{rule} leaves byte {table.selector.position} open")
        branch = table.branches.get(bucket)
        if branch is None and table.below is not None:
            branch = table.branches[bucket] = Table(table.below)
        if branch is None or not _enters(index, branch.selector, rule):
            return table, bucket
        table = branch


def _enters(index: Index, selector: Selector, rule: Rule) -> bool:
    """Whether a rule belongs behind a link of that selector; those behind it are asked before those beside it."""
    position = selector.position
    return position in index.address or rule.order <= index.splits.get(position, -1)


def byte_of(keys: Iterable[Key], position: int) -> int | None:
    """The value that the keys demand of that byte; None if they leave any of it open."""
    word, shift = position & ~3, 8 * (3 - position % 4)
    for key in keys:
        if key.offset == word:
            return key.value >> shift & 0xFF if key.mask >> shift & 0xFF == 0xFF else None
    return None


def guard_of(index: Index, selector: Selector) -> tuple[Key, ...]:
    """The keys of the link to a table of that selector: no byte of a port is read where there may be none."""
    return () if selector.position in index.address else index.guard


def nodes_of(order: int) -> range:
    """The node ids for rules of that order."""
    return range(max(order * NODES_PER_ORDER, LINK_NODES.stop), (order + 1) * NODES_PER_ORDER)


# --- designing -------------------------------------------------------------------------------------------------


def design(index: Index) -> Table:
    """Tables without numbers, best for the rules that there are now."""
    addresses = list({tuple(byte_of(rule.keys, at) or 0 for at in index.address) for rule in index.rules})
    places = range(len(index.address))
    one = min(places, key=lambda at: (_crowding(address[at] for address in addresses), -at))
    two = _second(addresses, one)
    # The byte with fewer values comes first: fewer tables.
    first, second = sorted((one, two), key=lambda at: (len({address[at] for address in addresses}), at))
    top = Table(Selector(index.address[first]), below=Selector(index.address[second]))
    for spot in spread(index, top):
        if len(spot.rules) > SPLIT_ABOVE:
            used = frozenset({index.address[first], index.address[second]})
            branch = _split(index, spot.rules, used, MAX_SPLITS)
            if branch is not None:
                spot.table.branches[spot.bucket] = branch
    return top


def _second(addresses: Sequence[tuple[int, ...]], first: int) -> int:
    others = [at for at in range(len(addresses[0])) if at != first]
    return min(others, key=lambda at: (_crowding((address[first], address[at]) for address in addresses), -at))


def _crowding(values: Iterable[object]) -> int:
    """How many others an item meets in its bucket, summed over all items."""
    return sum(count * count for count in Counter(values).values())


def _split(index: Index, rules: list[Rule], used: frozenset[int], splits_left: int) -> Table | None:
    """A table for the rules of one crowded bucket, None where no byte tells them apart."""
    positions = [at for at in (*index.address, *index.splits) if at not in used]
    costs = {at: _cost_of_split(index, rules, at) for at in positions}
    if not splits_left or not costs:
        return None
    best = min(costs, key=lambda at: costs[at])
    if costs[best] >= len(rules) ** 2:
        return None
    table = Table(Selector(best))
    groups = defaultdict(list)
    for rule in rules:
        if _enters(index, table.selector, rule):
            groups[byte_of(rule.keys, best)].append(rule)
    for bucket, group in groups.items():
        branch = _split(index, group, used | {best}, splits_left - 1) if len(group) > SPLIT_ABOVE else None
        if branch is not None and bucket is not None:
            table.branches[bucket] = branch
    return table


def _cost_of_split(index: Index, rules: list[Rule], position: int) -> int:
    entering = [rule for rule in rules if _enters(index, Selector(position), rule)]
    staying = len(rules) - len(entering)
    return _crowding(byte_of(rule.keys, position) for rule in entering) + staying * len(rules)


# --- reading ---------------------------------------------------------------------------------------------------


def read(index: Index, roots: Sequence[InstalledFilter], tables: Mapping[int, int], nodes: Nodes) -> Table | None:
    """The tables of this index as they are; None if packets are not led into any.

    `roots` are the filters in the first table of a preference, `tables` the others' numbers of buckets.
    """
    if len(roots) != 1:
        return None
    top = _follow(index, roots[0], None, tables)
    if top is None or top.selector.position not in index.address:
        return None
    reader = _Reader(index, tables, nodes)
    reader.grow(top)
    top.below = next((branch.selector for branch in top.branches.values()), None)
    if top.below is None:
        addresses = [tuple(byte_of(rule.keys, at) or 0 for at in index.address) for rule in index.rules]
        second = _second(addresses, index.address.index(top.selector.position))
        top.below = Selector(index.address[second])
    return top


def _follow(index: Index, one: InstalledFilter, parent: Table | None, tables: Mapping[int, int]) -> Table | None:
    """The table that a link of ours leads to."""
    meaning = one.meaning
    if meaning is None or meaning.table is None or meaning.selector is None:
        return None
    selector = meaning.selector
    is_known = selector.position in index.address or (parent is not None and selector.position in index.splits)
    guard = index.head if parent is None else guard_of(index, selector)
    if not is_known or tables.get(meaning.table) != BUCKETS or meaning.keys != guard:
        return None
    return Table(selector, meaning.table)


class _Reader:
    """Follows each table once, so that a circle that somebody made does not catch us."""

    def __init__(self, index: Index, tables: Mapping[int, int], nodes: Nodes) -> None:
        self._index, self._tables, self._nodes = index, tables, nodes
        self._buckets: dict[int, list[int]] = defaultdict(list)
        for table, bucket in nodes:
            self._buckets[table].append(bucket)
        self._seen: set[int | None] = set()

    def grow(self, table: Table, *, is_top: bool = True) -> None:
        self._seen.add(table.number)
        for bucket in self._buckets[table.number or 0]:
            link = next((one for one in self._nodes[table.number or 0, bucket] if one.node in LINK_NODES), None)
            branch = _follow(self._index, link, table, self._tables) if link is not None else None
            if branch is None or branch.number in self._seen:
                continue
            if is_top and branch.selector.position not in self._index.address:
                continue
            table.branches[bucket] = branch
            self.grow(branch, is_top=False)
