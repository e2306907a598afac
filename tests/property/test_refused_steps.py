"""A step that the kernel refuses costs what rests on it, never the limit of a link that had one."""

from __future__ import annotations

import errno
import ipaddress
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from ap_agent.applying import Failures, apply_plan
from ap_agent.classify import match_key
from ap_agent.common.errors import ApplyError
from ap_agent.model import EngineSettings
from ap_agent.ops import HeadSwitch, Op, Stage
from ap_agent.reconcile import plan_cycle, reconcile
from bandwidth_config import LinkInfo
from tests.property.fake_kernel import FakeKernel
from tests.property.test_plan_properties import _is_limited, fresh_kernel, link_maps

ADDRESS = ipaddress.ip_address("192.0.2.11")


class Refusing:
    """A kernel that refuses one operation, once."""

    def __init__(self, kernel: FakeKernel, refused: Op) -> None:
        self._kernel, self._refused = kernel, refused

    def __getattr__(self, name: str) -> object:
        return getattr(self._kernel, name)

    def apply(self, ops: Sequence[Op]) -> list[ApplyError | None]:
        answers: list[ApplyError | None] = []
        for op in ops:
            if op == self._refused:
                answers.append(ApplyError(str(op), errno.ENOMEM))
                continue
            answers += self._kernel.apply([op])
        return answers


def refuse(kernel: FakeKernel, links: dict[int, LinkInfo], choice: int) -> Op | None:
    """Carry out a cycle's plan but for one step that adds or changes something, as the agent would."""
    todo = plan_cycle(links, EngineSettings(), kernel=kernel).plan
    candidates = [op for op in todo.ops if op.stage in (Stage.BUILD, Stage.SWITCH)]
    if not candidates:
        return None
    refused = candidates[choice % len(candidates)]
    apply_plan(Refusing(kernel, refused), todo, Failures())  # type: ignore[arg-type]  # the rest is delegated
    return refused


@settings(max_examples=200, deadline=None)
@given(old=link_maps(), new=link_maps(), choice=st.integers(0, 1000))
def test_a_limited_link_stays_limited_whatever_step_is_refused(
    old: dict[int, LinkInfo], new: dict[int, LinkInfo], choice: int
) -> None:
    kernel = fresh_kernel()
    reconcile(old, EngineSettings(), kernel=kernel)
    keys = {match_key(link) for link in old.values() if link.is_user_as}
    staying = [link for link in new.values() if link.is_user_as and match_key(link) in keys]
    ceilings = [link.bandwidth_kbit for link in (*old.values(), *new.values())]
    refused = refuse(kernel, new, choice)
    for link in staying:
        assert _is_limited(kernel, link, max(ceilings)), (str(refused), link)
    assert reconcile(new, EngineSettings(), kernel=kernel).writes >= 0
    assert plan_cycle(new, EngineSettings(), kernel=kernel).plan.ops == ()


def crowd(first: int, last: int) -> dict[int, LinkInfo]:
    return {n: LinkInfo(n, 1, True, 500, ADDRESS, remote_port=1000 + n) for n in range(first, last + 1)}


@settings(max_examples=60, deadline=None)
@given(choice=st.integers(0, 10_000))
def test_packets_are_not_switched_over_to_tables_in_which_anything_is_missing(choice: int) -> None:
    kernel = fresh_kernel()
    old = crowd(1, 10)
    reconcile(old, EngineSettings(), kernel=kernel)
    new = old | crowd(11, 50)
    planned = plan_cycle(new, EngineSettings(), kernel=kernel).plan.ops
    assert any(isinstance(op, HeadSwitch) for op in planned)
    refused = refuse(kernel, new, choice)
    for link in old.values():
        assert _is_limited(kernel, link, 500), (str(refused), link)
    reconcile(new, EngineSettings(), kernel=kernel)
    assert plan_cycle(new, EngineSettings(), kernel=kernel).plan.ops == ()


def test_a_link_that_takes_over_an_address_leaves_the_other_in_force_when_it_is_refused() -> None:
    kernel = fresh_kernel()
    before = crowd(1, 1)
    reconcile(before, EngineSettings(), kernel=kernel)
    after = {2: replace(before[1], interface_id=2)}
    todo = plan_cycle(after, EngineSettings(), kernel=kernel).plan
    leads = [op for op in todo.ops if op.kind == "filter-add" and op.links == {2} and op.device.name == "eth0"]
    data = next(op for op in leads if op.new.flowid is not None and op.new.flowid.minor == 0x1002)  # type: ignore[attr-defined]
    apply_plan(Refusing(kernel, data), todo, Failures())  # type: ignore[arg-type]  # the rest is delegated
    assert _is_limited(kernel, before[1], 500)
