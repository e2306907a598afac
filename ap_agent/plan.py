"""From what is there to what should be: the ordered operations, and what stands in the way. Pure.

The order of the whole (docs/adr/0002): dead redirects go first, because they drop everything; the IFB and its tree are
complete before anything is redirected there; each interface's tree is built or changed in place; then redirects; then
what is no longer wanted goes, in the opposite order: redirects, the interfaces, the IFB. Within a tree the draft below
is kept in step with each operation that is emitted, so that every later decision sees what will be there by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ap_agent.draft import Draft, FilterList
from ap_agent.indexing import IndexPlanner, NoRoomError, clear_shelf, links_of_filter
from ap_agent.model import (
    AT_ROOT,
    EGRESS_HOOK,
    EMPTY_TREE,
    ETH_P_ALL,
    ETH_P_IP,
    ETH_P_IPV6,
    EXEMPT_MINOR,
    IFB_MAJOR,
    IFB_NAME,
    INDEX_PREFS,
    INGRESS_HOOK,
    MARKER_CHAIN,
    NIC_MAJOR,
    OUR_PREFS,
    UNMATCHED_MINOR,
    Desired,
    DesiredTree,
    Device,
    Filter,
    Finding,
    Handle,
    HtbClass,
    Index,
    InstalledFilter,
    LoadedProgram,
    Problem,
    Qdisc,
    TcState,
    Tree,
    filter_is_ours,
    is_inner,
    is_our_class,
    is_our_ifb,
    link_of_class,
    root_is_ours,
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
)
from ap_agent.whole.ops import AdmissionAttach, AdmissionDetach

NOBODY: frozenset[int] = frozenset()
NOTHING: frozenset[tuple[str, Handle, int]] = frozenset()
NO_PROGRAMS: Mapping[int, LoadedProgram] = {}
WALKED_PROTOCOLS = (ETH_P_ALL, ETH_P_IP, ETH_P_IPV6)  # of filters that see a link's packets at all


@dataclass(frozen=True)
class Plan:
    """What would be done, in this order, and what was found that we may not or cannot do."""

    ops: tuple[Op, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.ops

    def render_text(self) -> str:
        lines = [str(op) for op in self.ops] or ["Nothing to do: the kernel has what it should have."]
        return "\n".join([*lines, *(f"! {finding.problem.message}" for finding in self.findings)])

    def to_json(self) -> dict[str, object]:
        problems = [
            {"code": one.problem.code, "subject": one.problem.subject, "message": one.problem.message}
            for one in self.findings
        ]
        return {"ops": [op.to_json() for op in self.ops], "problems": problems}


def plan(
    state: TcState,
    wanted: Desired,
    avoid: frozenset[tuple[str, Handle, int]] = NOTHING,
    programs: Mapping[int, LoadedProgram] = NO_PROGRAMS,
) -> Plan:
    """`plan(s, d)` is empty if and only if `s` has of ours exactly `d`. Foreign objects are never in an operation.

    A part of a state and the same part of what is wanted make a plan too: what neither mentions is in no operation.
    `avoid` are table numbers (device, hook, number) that the kernel did not give although none is seen there.
    `programs` are those of this process that are wanted at hooks, by their slot; where one is not known any of ours
    will do, and none is put there.
    """
    return _Planner(state, wanted, avoid, programs).run()


@dataclass
class _Planner:
    state: TcState
    wanted: Desired
    avoid: frozenset[tuple[str, Handle, int]] = NOTHING
    programs: Mapping[int, LoadedProgram] = field(default_factory=dict)
    indexes: dict[tuple[int, Handle], list[IndexPlanner]] = field(default_factory=dict)
    reported: set[tuple[int, Handle, int]] = field(default_factory=set)
    ops: list[Op] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def run(self) -> Plan:
        want_of = {one.device.ifindex: one for one in self.wanted.nics}
        nics = [
            (Draft(device, NIC_MAJOR, self.state.trees.get(device.ifindex, EMPTY_TREE)), want_of.get(device.ifindex))
            for device in sorted(self.state.devices, key=lambda one: one.ifindex)
            if device.name != IFB_NAME and (device.ifindex in want_of or device.ifindex in self.state.trees)
        ]
        for draft, _ in nics:
            self._drop_dead_redirects(draft)
        ifb = self._build_ifb()
        for draft, want in nics:
            if want is not None:
                self._build_tree(draft, want)
        for draft, want in nics:
            if want is not None and ifb is not None:
                self._redirect(draft, want)
        for draft, want in nics:
            if ifb is not None or self.wanted.ifb is None:
                self._unredirect(draft, want)
        for draft, want in nics:
            self._strip_tree(draft, want if want is not None else DesiredTree(draft.device, NIC_MAJOR, has_root=False))
        self._strip_ifb(ifb, [draft for draft, _ in nics])
        return Plan(tuple(self.ops), tuple(sorted(set(self.findings), key=lambda one: one.problem)))

    def _do(self, draft: Draft, op: Op) -> None:
        self.ops.append(op)
        draft.apply(op)

    def _found(self, code: str, subject: str, message: str, links: frozenset[int] = NOBODY) -> None:
        self.findings.append(Finding(Problem(code, subject, message), links))

    # --- the IFB ---

    def _build_ifb(self) -> Draft | None:
        """The IFB with a complete tree, or None when there is or can be none."""
        want, device = self.wanted.ifb, self.state.named(IFB_NAME)
        if device is not None and not is_our_ifb(device):
            if want is not None:
                message = (
                    f'A device named {IFB_NAME} exists that does not carry our mark (alias "scionlab-bw"), so nothing '
                    f"can be limited from the user ASes; rename or delete it."
                )
                self._found("foreign_device", IFB_NAME, message, _links_of(want))
            return None
        # Named by ifindex 0: it may have to be created first, and then nobody knows its number yet.
        stand_in = replace(device or Device(0, IFB_NAME), ifindex=0)
        tree = self.state.trees.get(device.ifindex, EMPTY_TREE) if device is not None else EMPTY_TREE
        if want is None:
            return Draft(stand_in, IFB_MAJOR, tree) if device is not None else None
        draft = Draft(stand_in, IFB_MAJOR, tree)
        if device is None:
            self._do(draft, IfbAdd(stand_in, NOBODY))
        self._build_tree(draft, want)
        # Only now: down it drops everything, up with half a tree it would let everything through.
        if device is not None and not device.is_up:
            self._do(draft, IfbUp(stand_in, NOBODY))
        return draft if draft.root is not None and root_is_ours(draft.root, IFB_MAJOR) else None

    def _strip_ifb(self, ifb: Draft | None, nics: Iterable[Draft]) -> None:
        if self.wanted.ifb is not None:
            if ifb is not None:
                self._strip_tree(ifb, self.wanted.ifb)
            return
        if ifb is None:
            return
        users = sorted({draft.device.name for draft in nics if draft.redirects_to(IFB_NAME)})
        if users or (ifb.root is not None and not root_is_ours(ifb.root, IFB_MAJOR)) or ifb.has_foreign():
            self._strip_tree(ifb, DesiredTree(ifb.device, IFB_MAJOR, has_root=False))
            why = f"{', '.join(users)} has redirects to it" if users else "it has classes, filters or a root"
            message = f"{IFB_NAME} is kept because {why} that are not ours; remove them and run reset again."
            self._found("foreign_uses_ifb", IFB_NAME, message)
            return
        self._do(ifb, IfbDel(ifb.device, NOBODY))

    # --- trees ---

    def _build_tree(self, draft: Draft, want: DesiredTree) -> None:
        """Everything that is missing or different, in place where that is possible; nothing is taken away."""
        if not want.has_root:
            return
        if draft.root is None:
            root = Qdisc("htb", Handle(want.major), AT_ROOT, default_minor=UNMATCHED_MINOR)
            self._do(draft, RootAdd(draft.device, NOBODY, root))
        elif not root_is_ours(draft.root, want.major):
            self._foreign_root(draft, want)
            return
        self._tear_misplaced(draft, want)
        groups = _groups(want)
        for number, (classes, leaves) in groups.items():
            if number is not None:
                self._build_classes(draft, classes, leaves, frozenset({number}))
        blocked = self._blocked_prefs(draft, draft.hook, want.filters, want)
        # Exempt before unmatched: the moment that class exists it takes ARP too.
        self._build_shared(draft, groups, EXEMPT_MINOR)
        self._add_filters(draft, draft.hook, want.filters, blocked)
        self._build_shared(draft, groups, UNMATCHED_MINOR)
        self._build_indexes(draft, draft.hook, want.indexes, want)
        self._warn_of_filters_in_front(draft, draft.hook, _last_pref(want.filters, want.indexes))

    def _build_shared(self, draft: Draft, groups: Mapping[int | None, Group], minor: int) -> None:
        classes, leaves = groups.get(None, ([], []))
        own = [one for one in classes if one.handle.minor == minor]
        self._build_classes(draft, own, [one for one in leaves if one.parent.minor == minor], NOBODY)

    def _foreign_root(self, draft: Draft, want: DesiredTree) -> None:
        root, name = draft.root, draft.device.name
        shown = f"{root.kind} {root.handle}" if root is not None else ""
        message = (
            f"{name} has the root qdisc {shown} that is not ours, so nothing is limited there; "
            f"remove it (tc qdisc del dev {name} root) or leave {name} out of `interfaces`."
        )
        self._found("foreign_root", name, message, _links_of(want))

    def _build_classes(self, draft: Draft, classes: list[HtbClass], leaves: list[Qdisc], links: frozenset[int]) -> None:
        device, leaf_of = draft.device, {leaf.parent: leaf for leaf in leaves}
        changed: list[tuple[HtbClass, HtbClass]] = []
        stale: list[Qdisc] = []
        for one in classes:  # parents first
            old, leaf = draft.classes.get(one.handle), leaf_of.get(one.handle)
            if old is None:
                self._do(draft, ClassAdd(device, links, one))
            elif old != one:
                changed.append((old, one))
            if leaf is not None and one.handle not in draft.leaves:
                self._do(draft, LeafAdd(device, links, leaf))
            elif leaf is not None and draft.leaves[one.handle] != leaf:
                stale.append(leaf)
        class_ops = [ClassChange(device, links, old, new) for old, new in _by_direction(changed)]
        leaf_ops = [_leaf_op(draft, leaf, links) for leaf in stale]
        # Blocking: the leaves drop everything before the classes become slow. Unblocking: the other way round.
        is_blocking = any(leaf.limit_bytes == 0 for leaf in stale)
        ordered: list[Op] = [*leaf_ops, *class_ops] if is_blocking else [*class_ops, *leaf_ops]
        for op in ordered:
            self._do(draft, op)

    def _tear_misplaced(self, draft: Draft, want: DesiredTree) -> None:
        """A class of ours under another parent cannot be moved: take it down, to be built anew."""
        for one in want.classes:
            old = draft.classes.get(one.handle)
            if old is not None and old.parent != one.parent:
                doomed = [*draft.descendants(one.handle), one.handle]
                self._delete_filters(draft, [f for f in draft.filters_into(doomed) if filter_is_ours(f)])
                for handle in doomed:
                    self._delete_class(draft, handle)

    def _strip_tree(self, draft: Draft, want: DesiredTree) -> None:
        """What is ours and no longer wanted: filters, then leaf classes, then inner classes, then the root."""
        if draft.root is None or not root_is_ours(draft.root, draft.major):
            return
        if not want.has_root and not draft.has_foreign():
            self._do(draft, RootDel(draft.device, NOBODY, draft.root.handle))
            return
        self._strip_indexes(draft, draft.hook, want.indexes)
        surplus = draft.surplus_filters(draft.hook, want.filters)
        exempt = [one for one in surplus if one.meaning and one.meaning.flowid == Handle(draft.major, EXEMPT_MINOR)]
        self._delete_filters(draft, [one for one in surplus if one not in exempt])
        wanted = {one.handle for one in want.classes}
        doomed = [one for one in draft.classes if is_our_class(one) and one not in wanted]
        # The unmatched class goes before the exemptions from it, and children before their parents.
        for handle in sorted(doomed, key=lambda one: (one.minor != UNMATCHED_MINOR, is_inner(one), one)):
            if handle.minor != EXEMPT_MINOR:
                self._delete_class(draft, handle)
        self._delete_filters(draft, exempt)
        if Handle(draft.major, EXEMPT_MINOR) in doomed:
            self._delete_class(draft, Handle(draft.major, EXEMPT_MINOR))
        self._delete_empty_lists(draft, draft.hook, want.filters)
        if not want.has_root:
            message = (
                f"The root qdisc of {draft.device.name} is kept because it holds classes or filters that are not ours; "
                f"remove them and run reset again."
            )
            self._found("foreign_in_root", draft.device.name, message)

    def _delete_class(self, draft: Draft, handle: Handle) -> None:
        number = link_of_class(handle)
        links = NOBODY if number is None else frozenset({number})
        if draft.is_in_use(handle):
            message = (
                f"Class {handle} of {draft.device.name} cannot be deleted because classes or filters that are not ours "
                f"use it; remove them."
            )
            self._found("foreign_in_root", draft.device.name, message, links)
            return
        self._do(draft, ClassDel(draft.device, links, handle))

    # --- filters ---

    def _build_indexes(self, draft: Draft, hook: Handle, wanted: Iterable[Index], want: DesiredTree) -> None:
        for index in wanted:
            blocked = self._foreign_prefs(draft, hook, dict.fromkeys(index.prefs, index.protocol))
            if len(blocked) == len(index.prefs):
                self._blocked(draft, hook, min(blocked), index.links, want)
                self.reported |= {(id(draft), hook, pref) for pref in blocked}
                continue
            avoid = frozenset(number for dev, at, number in self.avoid if (dev, at) == (draft.device.name, hook))
            self._build_index(draft, index, blocked, avoid)

    def _build_index(self, draft: Draft, index: Index, blocked: frozenset[int], avoid: frozenset[int]) -> None:
        """For all links that there is room for; the others are named."""
        while index.rules:
            planner = IndexPlanner(draft, index, lambda op: self._do(draft, op), blocked=blocked, avoid=avoid)
            try:
                planner.build()
            except NoRoomError as exc:
                message = (
                    f"{draft.device.name} has no room for more {exc} at {index.hook}, so these links are not limited "
                    f"there; spread them over more addresses."
                )
                self._found("too_many_alike", draft.device.name, message, exc.links)
                index = replace(index, rules=tuple(rule for rule in index.rules if not rule.links <= exc.links))
                continue
            self.indexes.setdefault((id(draft), index.hook), []).append(planner)
            return

    def _strip_indexes(self, draft: Draft, hook: Handle, wanted: Iterable[Index]) -> None:
        """What is asked last goes first: nothing that was in its shadow is ever asked in its place."""
        planners = {planner.pref: planner for planner in self.indexes.get((id(draft), hook), [])}
        prefs = {pref for index in wanted for pref in index.prefs}
        unwanted = {key[2]: key for key in draft.index_lists(hook) if key[2] not in prefs}
        for pref in sorted({*planners, *unwanted}, reverse=True):
            if pref in planners:
                planners[pref].strip()
            else:
                clear_shelf(draft, unwanted[pref], lambda op: self._do(draft, op))

    def _add_filters(
        self, draft: Draft, hook: Handle, wanted: Mapping[Filter, frozenset[int]], blocked: frozenset[int]
    ) -> None:
        have = draft.meanings(hook)
        for one in sorted(wanted, key=lambda each: each.sort_key):
            if one not in have and one.pref not in blocked:
                self._do(draft, FilterAdd(draft.device, wanted[one], one))

    def _delete_filters(self, draft: Draft, doomed: list[InstalledFilter]) -> None:
        """The last rank first; a list that is left without filters goes as a whole, in one operation."""
        by_list: dict[FilterList, list[InstalledFilter]] = {}
        for one in doomed:
            by_list.setdefault(one.list_key, []).append(one)
        for key in sorted(by_list, key=lambda one: one[2], reverse=True):
            going = by_list[key]
            if len(going) == len(draft.filters.lists[key]) and key[2] not in INDEX_PREFS:
                links = NOBODY.union(*(links_of_filter(one) for one in going))
                self._do(draft, ListDel(draft.device, links, going[0], len(going)))
                continue
            for one in going:
                self._do(draft, FilterDel(draft.device, links_of_filter(one), one))

    def _delete_empty_lists(self, draft: Draft, hook: Handle, wanted: Iterable[Filter]) -> None:
        wanted_prefs = {one.pref for one in wanted}
        for key, header in draft.empty_lists(hook):
            if key[2] not in wanted_prefs:
                self._do(draft, ListDel(draft.device, NOBODY, header, 0))

    def _blocked_prefs(
        self, draft: Draft, hook: Handle, wanted: Mapping[Filter, frozenset[int]], want: DesiredTree
    ) -> frozenset[int]:
        """Preferences of our lists that somebody else occupies."""
        blocked = self._foreign_prefs(draft, hook, {one.pref: one.protocol for one in wanted})
        for pref in sorted(blocked):
            links = NOBODY.union(*(served for one, served in wanted.items() if one.pref == pref))
            self._blocked(draft, hook, pref, links, want)
        return blocked

    def _foreign_prefs(self, draft: Draft, hook: Handle, protocols: Mapping[int, int]) -> frozenset[int]:
        return frozenset(
            one.pref
            for one in draft.foreign_filters(hook)
            if one.chain == 0 and one.pref in protocols and (one.kind != "u32" or one.protocol != protocols[one.pref])
        )

    def _blocked(self, draft: Draft, hook: Handle, pref: int, links: frozenset[int], want: DesiredTree) -> None:
        message = (
            f"A filter that is not ours sits on preference {pref} at {hook} of {draft.device.name}, where ours must "
            f"be; move it to another preference than {OUR_PREFS[0]} to {OUR_PREFS[-1]}."
        )
        self._found("foreign_filter", draft.device.name, message, links or _links_of(want))
        self.reported.add((id(draft), hook, pref))

    def _warn_of_filters_in_front(self, draft: Draft, hook: Handle, last_pref: int) -> None:
        in_front = sorted(
            {
                one.pref
                for one in draft.foreign_filters(hook)
                if one.handle
                and one.chain == 0
                and one.pref <= last_pref
                and one.protocol in WALKED_PROTOCOLS
                and not self._is_reported(draft, hook, one.pref)
            }
        )
        if in_front:
            shown = ", ".join(str(pref) for pref in in_front)
            message = (
                f"{draft.device.name} has filters that are not ours at {hook} in front of ours or among them "
                f"(preference {shown}); what they catch is not limited, so check that they leave the links' packets "
                f"alone."
            )
            self._found("foreign_filter_in_front", draft.device.name, message)

    def _is_reported(self, draft: Draft, hook: Handle, pref: int) -> bool:
        return (id(draft), hook, pref) in self.reported

    # --- redirects ---

    def _drop_dead_redirects(self, draft: Draft) -> None:
        self._delete_filters(draft, draft.dead_redirects())

    def _redirect(self, draft: Draft, want: DesiredTree) -> None:
        if not (want.redirects or want.redirect_indexes):
            return
        if draft.ingress is None:
            self._do(draft, ClsactAdd(draft.device, NOBODY))
        blocked = self._blocked_prefs(draft, INGRESS_HOOK, want.redirects, want)
        self._add_filters(draft, INGRESS_HOOK, want.redirects, blocked)
        self._build_indexes(draft, INGRESS_HOOK, want.redirect_indexes, want)
        self._warn_of_filters_in_front(draft, INGRESS_HOOK, _last_pref(want.redirects, want.redirect_indexes))
        self._admit(draft, want.programs)

    def _admit(self, draft: Draft, wanted: Mapping[Handle, int]) -> None:
        for hook, slot in sorted(wanted.items()):
            program, have = self.programs.get(slot), draft.admission(hook)
            old = have.program.number if have is not None and have.program is not None else None
            if program is not None and old != program.number:
                self._do(draft, AdmissionAttach(draft.device, NOBODY, hook, program, old))

    def _dismiss(self, draft: Draft, wanted: Mapping[Handle, int]) -> None:
        for hook in (INGRESS_HOOK, EGRESS_HOOK):
            if hook not in wanted and draft.admission(hook) is not None:
                self._do(draft, AdmissionDetach(draft.device, NOBODY, hook))

    def _unredirect(self, draft: Draft, want: DesiredTree | None) -> None:
        if draft.ingress is None:
            return
        redirects, indexes = (want.redirects, want.redirect_indexes) if want is not None else ({}, ())
        is_wanted, marker = bool(redirects or indexes), draft.marker
        if not is_wanted and marker is not None and not draft.has_foreign_ingress_filters():
            self._do(draft, ClsactDel(draft.device, NOBODY))
            return
        self._dismiss(draft, want.programs if want is not None else {})
        self._strip_indexes(draft, INGRESS_HOOK, indexes)
        self._delete_filters(draft, draft.surplus_filters(INGRESS_HOOK, redirects))
        self._delete_empty_lists(draft, INGRESS_HOOK, redirects)
        if not is_wanted and marker is not None:
            self._do(draft, ListDel(draft.device, NOBODY, marker, 1))


# --- small decisions -------------------------------------------------------------------------------------------

Group = tuple[list[HtbClass], list[Qdisc]]


def _groups(want: DesiredTree) -> dict[int | None, Group]:
    """Classes and leaves by link; None is what no link owns."""
    groups: dict[int | None, Group] = {}
    for one in want.classes:
        groups.setdefault(link_of_class(one.handle), ([], []))[0].append(one)
    for leaf in want.leaves:
        groups.setdefault(link_of_class(leaf.parent), ([], []))[1].append(leaf)
    return groups


def _last_pref(filters: Iterable[Filter], indexes: Iterable[Index]) -> int:
    return max((*(one.pref for one in filters), *(pref for index in indexes for pref in index.prefs)), default=0)


def _by_direction(changed: list[tuple[HtbClass, HtbClass]]) -> Iterator[tuple[HtbClass, HtbClass]]:
    """Raising: the parent first. Lowering: the children first. So the children's rates always fit."""
    is_lowering = any(new.ceil_bytes_s < old.ceil_bytes_s for old, new in changed)
    return iter(sorted(changed, key=lambda pair: is_inner(pair[1].handle) == is_lowering))


def _leaf_op(draft: Draft, leaf: Qdisc, links: frozenset[int]) -> Op:
    old = draft.leaves[leaf.parent]
    # A smaller limit does not shorten the queue: what waits in a leaf that is blocked would trickle out for minutes.
    if old.kind == leaf.kind and old.handle == leaf.handle and leaf.limit_bytes != 0:
        return LeafChange(draft.device, links, old, leaf)
    return LeafReplace(draft.device, links, leaf)


def _links_of(want: DesiredTree) -> frozenset[int]:
    numbers = (link_of_class(one.handle) for one in want.classes)
    own = frozenset(number for number in numbers if number is not None)
    indexed = (index.links for index in want.redirect_indexes)
    return own if own else own.union(*want.redirects.values(), *indexed)


def trees_in_use(state: TcState) -> Iterator[tuple[Device, Tree]]:
    """Devices that carry anything of ours."""
    for device in state.devices:
        tree = state.trees.get(device.ifindex, EMPTY_TREE)
        if any(one.chain == MARKER_CHAIN or filter_is_ours(one) for one in tree.filters) or (
            tree.root is not None and root_is_ours(tree.root, IFB_MAJOR if device.name == IFB_NAME else NIC_MAJOR)
        ):
            yield device, tree
