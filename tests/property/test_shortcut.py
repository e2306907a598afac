"""A few limits changed and nothing else: the short way does what the whole way does, or does not begin."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ap_agent.common.errors import ApplyError
from ap_agent.model import IFB_NAME, EngineSettings, Handle, TcState, Tree
from ap_agent.ops import Op
from ap_agent.placement import Route
from ap_agent.reconcile import ATTEMPTS, CycleResult, TcEngine
from ap_agent.shortcut import MAX_CHANGED, changed_limits
from bandwidth_config import LinkInfo
from tests.property.fake_kernel import IFB_INDEX, FakeKernel
from tests.property.test_plan_properties import RATES, fresh_kernel, link_maps, modes

SETTINGS = EngineSettings()


class PartKernel:
    """The test kernel, which can also be asked for single objects; it counts how often all of it is read."""

    def __init__(self, kernel: FakeKernel | None = None) -> None:
        self.kernel = kernel or fresh_kernel()
        self.looks = 0
        self.refuse: Callable[[Op], bool] = lambda _op: False

    def observe(self) -> TcState:
        self.looks += 1
        return self.kernel.observe()

    def routes(self, queries: Sequence[object]) -> list[Route]:
        return self.kernel.routes(queries)  # type: ignore[arg-type]

    def apply(self, ops: Sequence[Op]) -> list[ApplyError | None]:
        return [ApplyError(str(op), 12) if self.refuse(op) else self.kernel.apply([op])[0] for op in ops]

    def ifb_in_service(self) -> int | None:
        return next((one.ifindex for one in self.kernel.observe().devices if one.name == IFB_NAME and one.is_up), None)

    def read_part(self, names: Mapping[int, Sequence[Handle]]) -> dict[int, Tree]:
        trees = self.kernel.observe().trees
        return {
            index: Tree(
                classes=tuple(one for one in trees[index].classes if one.handle in handles),
                leaves=tuple(one for one in trees[index].leaves if one.parent in handles),
            )
            for index, handles in names.items()
        }


def link(number: int, kbit: int, *, ip: str = "192.0.2.11", port: int | None = None) -> LinkInfo:
    return LinkInfo(number, 1, True, kbit, ipaddress.ip_address(ip), remote_port=port or 50000 + number)


def of(*links: LinkInfo) -> dict[int, LinkInfo]:
    return {one.interface_id: one for one in links}


TWO = of(link(1, 500), link(2, 800, ip="198.51.100.11"))


def change(before: dict[int, LinkInfo], after: dict[int, LinkInfo]) -> tuple[PartKernel, TcEngine, CycleResult, int]:
    """(kernel, engine, result of the second cycle, how often everything was read for it)."""
    kernel = PartKernel()
    engine = TcEngine(kernel)
    engine.reconcile(before, SETTINGS)
    looks = kernel.looks
    result = engine.reconcile(after, SETTINGS, is_settled=True)
    return kernel, engine, result, kernel.looks - looks


@pytest.mark.parametrize(("before", "after"), [(500, 800), (800, 500), (500, 0), (0, 500), (1, 100_000_000)])
def test_a_new_limit_is_set_without_reading_the_rest(before: int, after: int) -> None:
    _, engine, result, looks = change({**TWO, 1: link(1, before)}, {**TWO, 1: link(1, after)})
    assert looks == 0
    assert result.ok
    assert result.writes == len(result.plan.ops) > 0
    assert {op.links for op in result.plan.ops} == {frozenset({1})}
    states = {one.interface_id: one for one in result.links}
    assert (states[1].state, states[1].limits) == ("enforced", (after, after))
    assert states[1].to_user is not None
    assert states[1].to_user.rate_kbit == after
    assert states[2].limits == (800, 800)
    assert engine.reconcile({**TWO, 1: link(1, after)}, SETTINGS).writes == 0


def test_the_next_whole_cycle_takes_over_what_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads everything, and need not plan anew."""
    kernel, engine, _, _ = change(TWO, {**TWO, 1: link(1, 900)})
    monkeypatch.setattr("ap_agent.look.plan", None)
    looks = kernel.looks
    result = engine.reconcile({**TWO, 1: link(1, 900)}, SETTINGS)
    assert kernel.looks == looks + 1
    assert (result.ok, result.writes) == (True, 0)


def test_one_change_after_the_other() -> None:
    kernel, engine, _, _ = change(TWO, {**TWO, 1: link(1, 900)})
    wanted = {**TWO, 1: link(1, 900)}
    looks = kernel.looks
    for number, kbit in ((2, 5), (1, 0), (2, 7), (1, 1000)):
        wanted = {**wanted, number: replace(wanted[number], bandwidth_kbit=kbit)}
        assert engine.reconcile(wanted, SETTINGS, is_settled=True).ok
    assert kernel.looks == looks
    assert engine.reconcile(wanted, SETTINGS).writes == 0
    assert [one.limits.lowest_kbit for one in engine.read_links(SETTINGS, wanted)] == [1000, 7]


SHARED = of(link(1, 500, port=50001), link(2, 800, port=50002), link(3, 900, port=50003))


@pytest.mark.parametrize(
    ("number", "kbit", "looks"),
    [
        (2, 700, 0),  # the strictest of the address stays the strictest
        (1, 400, 0),
        (2, 400, 2),  # fragments of the address must go to another link now
        (1, 850, 2),
        (1, 0, 2),  # a blocked link is not the strictest where others are not blocked
    ],
)
def test_where_fragments_go_to_another_link_the_whole_way_is_gone(number: int, kbit: int, looks: int) -> None:
    after = {**SHARED, number: replace(SHARED[number], bandwidth_kbit=kbit)}
    _, engine, result, taken = change(SHARED, after)
    assert (taken, result.ok) == (looks, True)
    assert engine.reconcile(after, SETTINGS).writes == 0


def test_of_two_links_that_match_the_same_the_stricter_may_be_another_one_now() -> None:
    alike = of(link(1, 500, port=50001), link(2, 800, port=50001))
    _, engine, result, looks = change(alike, {**alike, 1: link(1, 900, port=50001)})
    assert looks > 0
    assert [(one.interface_id, one.state) for one in result.links] == [(1, "error"), (2, "error")]
    assert "800" in str(result.problems)
    assert engine.reconcile({**alike, 1: link(1, 900, port=50001)}, SETTINGS).writes == 0


def test_a_step_that_is_refused_again_and_again_is_not_tried_for_ever() -> None:
    kernel = PartKernel()
    kernel.refuse = lambda op: op.kind == "root-add" and op.device.name == "eth0"
    result = TcEngine(kernel).reconcile(TWO, SETTINGS)
    assert not result.ok
    assert kernel.looks <= ATTEMPTS  # one before the first attempt, one after each: the last attempt was spared


@pytest.mark.parametrize(
    "after",
    [
        {1: TWO[1]},
        {**TWO, 3: link(3, 500)},
        {**TWO, 1: link(1, 900, port=50009)},
        {**TWO, 1: replace(TWO[1], bandwidth_kbit=900, is_user_as=False)},
        TWO,
    ],
    ids=["removed", "added", "another port", "no user AS any more", "nothing changed"],
)
def test_anything_but_a_limit_takes_the_whole_way(after: dict[int, LinkInfo]) -> None:
    _, engine, result, looks = change(TWO, after)
    assert looks > 0
    assert result.ok
    assert engine.reconcile(after, SETTINGS).writes == 0


def test_without_word_that_nothing_else_changed_everything_is_read() -> None:
    kernel = PartKernel()
    engine = TcEngine(kernel)
    engine.reconcile(TWO, SETTINGS)
    looks = kernel.looks
    engine.reconcile({**TWO, 1: link(1, 900)}, SETTINGS)
    assert kernel.looks > looks


def test_other_settings_take_the_whole_way() -> None:
    kernel = PartKernel()
    engine = TcEngine(kernel)
    engine.reconcile(TWO, SETTINGS)
    looks = kernel.looks
    result = engine.reconcile({**TWO, 1: link(1, 900)}, EngineSettings(unmatched="default"), is_settled=True)
    assert kernel.looks > looks
    assert result.ok


def test_what_is_unlike_the_last_look_takes_the_whole_way_in_the_same_cycle() -> None:
    """Somebody deleted the class although no event told so."""
    kernel = PartKernel()
    engine = TcEngine(kernel)
    engine.reconcile(TWO, SETTINGS)
    tree = kernel.kernel.trees[2]
    del tree.classes[Handle(1, 0x1001)]
    tree.leaves.pop(Handle(1, 0x1001))
    after = {**TWO, 1: link(1, 900)}
    result = engine.reconcile(after, SETTINGS, is_settled=True)
    assert result.ok, result.problems
    assert engine.reconcile(after, SETTINGS).writes == 0


def test_an_ifb_that_is_gone_takes_the_whole_way() -> None:
    kernel = PartKernel()
    engine = TcEngine(kernel)
    engine.reconcile(TWO, SETTINGS)
    kernel.kernel.delete_ifb()
    result = engine.reconcile({**TWO, 1: link(1, 900)}, SETTINGS, is_settled=True)
    assert result.ok, result.problems
    assert kernel.kernel.trees[IFB_INDEX].classes


def test_a_refusal_is_followed_by_the_whole_way_and_every_write_is_counted() -> None:
    kernel = PartKernel()
    engine = TcEngine(kernel)
    engine.reconcile(TWO, SETTINGS)
    left = [1]

    def once(op: Op) -> bool:
        is_hit = op.device.name == "eth0" and op.kind == "class-change" and bool(left)
        if is_hit:
            left.pop()
        return is_hit

    kernel.refuse = once
    after = {**TWO, 1: link(1, 900)}
    result = engine.reconcile(after, SETTINGS, is_settled=True)
    assert result.ok, result.problems
    assert result.writes == len(result.plan.ops) - 1
    assert kernel.kernel.trees[2].classes[Handle(1, 1)].rate_bytes_s == 900 * 125
    assert [one.to_user and one.to_user.rate_kbit for one in result.links] == [900, 800]
    assert engine.reconcile(after, SETTINGS).writes == 0


def test_an_error_of_the_kernel_makes_the_engine_start_afresh() -> None:
    kernel = PartKernel()
    engine = TcEngine(kernel)
    engine.reconcile(TWO, SETTINGS)

    def broken(_names: object) -> dict[int, Tree]:
        raise OSError(5, "the socket is broken")

    whole, kernel.read_part = kernel.read_part, broken  # type: ignore[method-assign]
    with pytest.raises(OSError, match="broken"):
        engine.reconcile({**TWO, 1: link(1, 900)}, SETTINGS, is_settled=True)
    kernel.read_part = whole  # type: ignore[method-assign]
    looks = kernel.looks
    assert engine.reconcile({**TWO, 1: link(1, 900)}, SETTINGS, is_settled=True).ok
    assert kernel.looks > looks


@settings(max_examples=150, deadline=None)
@given(link_maps(), modes, st.data())
def test_the_short_way_leads_where_the_whole_way_leads(
    before: dict[int, LinkInfo], mode: EngineSettings, data: st.DataObject
) -> None:
    assume(before)
    after = {
        number: replace(one, bandwidth_kbit=data.draw(st.sampled_from(RATES))) if data.draw(st.booleans()) else one
        for number, one in before.items()
    }
    short, whole = PartKernel(), PartKernel()
    engine, other = TcEngine(short), TcEngine(whole)
    for each in (engine, other):
        each.reconcile(before, mode)
    result, expected = engine.reconcile(after, mode, is_settled=True), other.reconcile(after, mode)
    assert result.links == expected.links
    assert (result.ok, result.problems, result.ifb) == (expected.ok, expected.problems, expected.ifb)
    for index, tree in whole.kernel.observe().trees.items():
        found = short.kernel.observe().trees[index]
        assert sorted(found.classes) == sorted(tree.classes)
        assert set(found.leaves) == set(tree.leaves)
    assert engine.reconcile(after, mode).writes == other.reconcile(after, mode).writes


def test_too_many_changes_are_no_small_change() -> None:
    before = of(*(link(number, 500) for number in range(1, MAX_CHANGED + 2)))
    after = of(*(link(number, 600) for number in range(1, MAX_CHANGED + 2)))
    assert changed_limits(before, after) == frozenset()
    after[1] = before[1]
    assert changed_limits(before, after) == frozenset(range(2, MAX_CHANGED + 2))
