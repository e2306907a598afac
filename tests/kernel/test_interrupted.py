"""Operations that the kernel refuses: the other links are enforced, the next cycle converges. Crashes: test_crash."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import pytest

from ap_agent.common.errors import AgentError, ApplyError
from ap_agent.model import EngineSettings, TcState
from ap_agent.netlink import RtNetlink
from ap_agent.ops import ClassAdd, FilterAdd, IfbAdd, Op, RootAdd
from ap_agent.placement import Route, RouteQuery
from ap_agent.reconcile import CycleResult, reconcile
from bandwidth_config import LinkInfo
from tests.kernel.conftest import Host, entry, links

pytestmark = pytest.mark.kernel

FEW = links(l1=entry("192.0.2.11", 500), l2=entry("2001:db8:1::11", 800))


class Refusing:
    """The real kernel, but for operations of one kind that concern link 1 or all links."""

    def __init__(self, real: RtNetlink, refuse: type[Op], number: int) -> None:
        self.real, self.refuse, self.number = real, refuse, number

    def observe(self) -> TcState:
        return self.real.observe()

    def routes(self, queries: Sequence[RouteQuery]) -> list[Route]:
        return self.real.routes(queries)

    def apply(self, ops: Sequence[Op]) -> list[ApplyError | None]:
        answers: list[ApplyError | None] = []
        for op in ops:
            if isinstance(op, self.refuse) and (1 in op.links or not op.links):
                answers.append(ApplyError(str(op), self.number or errno.ENOMEM, links=op.links))
            else:
                answers += self.real.apply([op])
        return answers


def refused(host: Host, wanted: dict[int, LinkInfo], kind: type[Op], number: int = 0) -> CycleResult:
    def cycle() -> CycleResult:
        with RtNetlink() as real:
            return reconcile(wanted, host.settings, kernel=Refusing(real, kind, number))

    return host.inside(cycle)


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
