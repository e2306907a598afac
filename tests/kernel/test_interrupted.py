"""Killed after any operation, refused at any operation: the next cycle converges, and nothing passes unlimited."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import pytest

from ap_agent.errors import AgentError, ApplyError
from ap_agent.model import EngineSettings, TcState
from ap_agent.netlink import RtNetlink
from ap_agent.ops import ClassAdd, FilterAdd, IfbAdd, Op, RootAdd
from ap_agent.placement import Route, RouteQuery
from ap_agent.reconcile import CycleResult, reconcile
from bandwidth_config import LinkInfo
from tests.kernel.conftest import Host, entry, links

pytestmark = pytest.mark.kernel

FEW = links(l1=entry("192.0.2.11", 500), l2=entry("2001:db8:1::11", 800))
MORE = links(l1=entry("192.0.2.11", 0), l2=entry("2001:db8:1::11", 900, 50009), l3=entry("198.51.100.11", 100, None))


class KilledError(BaseException):
    """Like SIGKILL: nobody catches it."""


class Disturbed:
    """The real kernel, until `writes` operations are done; then we are dead, or one operation is refused."""

    def __init__(
        self, real: RtNetlink, writes: int | None = None, refuse: type[Op] | None = None, number: int = 0
    ) -> None:
        self.real, self.left, self.refuse, self.number = real, writes, refuse, number

    def observe(self) -> TcState:
        return self.real.observe()

    def routes(self, queries: Sequence[RouteQuery]) -> list[Route]:
        return self.real.routes(queries)

    def apply(self, ops: Sequence[Op]) -> list[ApplyError | None]:
        answers: list[ApplyError | None] = []
        for op in ops:
            if self.left == 0:
                raise KilledError
            if self.left is not None:
                self.left -= 1
            if self.refuse is not None and isinstance(op, self.refuse) and (1 in op.links or not op.links):
                answers.append(ApplyError(str(op), self.number or errno.ENOMEM, links=op.links))
            else:
                answers += self.real.apply([op])
        return answers


def killed_after(host: Host, wanted: dict[int, LinkInfo], writes: int) -> bool:
    """Whether the cycle was still at work after that many operations."""

    def cycle() -> bool:
        with RtNetlink() as real:
            try:
                reconcile(wanted, host.settings, kernel=Disturbed(real, writes))
            except KilledError:
                return True
        return False

    return host.inside(cycle)


def refused(host: Host, wanted: dict[int, LinkInfo], kind: type[Op], number: int = 0) -> CycleResult:
    def cycle() -> CycleResult:
        with RtNetlink() as real:
            return reconcile(wanted, host.settings, kernel=Disturbed(real, refuse=kind, number=number))

    return host.inside(cycle)


@pytest.mark.parametrize("step", ["build", "change", "remove"])
def test_killed_between_two_operations_the_next_cycle_converges(host: Host, step: str) -> None:
    start, end = {"build": ({}, FEW), "change": (FEW, MORE), "remove": (FEW, {})}[step]
    host.reconcile(end)
    whole = host.snapshot()
    host.reset()
    writes = expected = 0
    while True:
        assert host.reconcile(start).ok
        expected = len(host.plan(end).plan.ops)
        if not killed_after(host, end, writes):
            break
        result = host.reconcile(end)
        assert result.ok, (writes, result.problems)
        assert host.snapshot() == whole, writes
        host.reset()
        writes += 1
    assert writes == expected > 0


def test_a_refused_class_leaves_the_other_links_enforced(host: Host) -> None:
    result = refused(host, links(l1=entry("192.0.2.11", 500), l2=entry("192.0.2.11", 300, 50001)), ClassAdd)
    assert not result.ok
    assert {one.interface_id: one.state for one in result.links} == {1: "error", 2: "enforced"}
    assert [one.code for one in result.problems] == ["apply_failed"]
    assert "ENOMEM" in result.problems[0].message
    assert "add class 3:1 rate 500 kbit/s (link 1, from the user AS)" in result.problems[0].message
    assert host.reconcile(links(l1=entry("192.0.2.11", 500), l2=entry("192.0.2.11", 300, 50001))).ok


def test_a_refused_filter_is_named_with_its_link(host: Host) -> None:
    result = refused(host, FEW, FilterAdd)
    assert {one.interface_id: one.state for one in result.links} == {1: "error", 2: "enforced"}
    assert host.reconcile(FEW).ok


@pytest.mark.parametrize(
    ("kind", "number", "word"),
    [(RootAdd, errno.ENOENT, "htb"), (IfbAdd, errno.EOPNOTSUPP, "ifb"), (RootAdd, errno.EPERM, "CAP_NET_ADMIN")],
)
def test_a_kernel_that_cannot_or_may_not_is_said_in_words(host: Host, kind: type[Op], number: int, word: str) -> None:
    with pytest.raises(AgentError, match=word):
        refused(host, FEW, kind, number)


def test_without_the_capability_nothing_is_tried(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ap_agent.reconcile.has_net_admin", lambda: False)
    before = host.snapshot()
    with pytest.raises(AgentError, match="run the agent as root or with CAP_NET_ADMIN"):
        host.inside(lambda: reconcile(FEW, EngineSettings()))
    assert host.snapshot() == before
