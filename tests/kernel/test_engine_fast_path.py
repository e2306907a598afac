"""A pass that writes only what has changed still reads back what it wrote, and looks at its interfaces."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address
from typing import Any

import pytest

from ap_agent.dataplane.lanes import Lanes
from ap_agent.dataplane.writing import Writer
from tests.kernel.engine_bed import U1, U2, EngineBed, link, wanted


def test_what_the_kernel_did_not_do_is_done_by_a_whole_pass(bed: EngineBed, monkeypatch: pytest.MonkeyPatch) -> None:
    bed.enforce(wanted(link(7, 500)))
    sent: list[int] = []

    def lost(self: Writer, operations: Sequence[Any], *rest: Any) -> Any:
        """Once, the kernel says that it did it, and did nothing."""
        sent.append(len(operations))
        return [None] * len(operations) if len(sent) == 1 else send(self, operations, *rest)

    send = Writer._send
    monkeypatch.setattr(Writer, "_send", lost)
    assert bed.enforce(wanted(link(7, 800)), is_settled=True).is_ok
    assert len(sent) > 1
    shown = bed.tc("class", "show", "dev", "slbw0") + bed.tc("class", "show", "dev", "slbw1")
    assert shown.count("rate 800Kbit") == 2
    assert "500Kbit" not in shown


def test_what_the_program_does_not_hold_is_written_by_a_whole_pass(
    bed: EngineBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.enforce(wanted(link(7, 500)))
    put, lost = Lanes.put, []

    def forgets(self: Lanes, number: int, packed: bytes) -> None:
        if lost:
            put(self, number, packed)
        lost.append(number)

    monkeypatch.setattr(Lanes, "put", forgets)
    assert bed.enforce(wanted(link(7, 0)), is_settled=True).is_ok
    assert len(lost) > 2
    assert bed.received_kbit(to_user=True) == 0
    assert bed.received_kbit(to_user=False) == 0


def test_other_interfaces_are_hooked_at_once(bed: EngineBed) -> None:
    bed.enforce(wanted(link(7, 500), interfaces=("eth0",)))
    assert bed.tc("filter", "show", "dev", "eth1", "ingress", check=False) == ""
    bed.enforce(wanted(link(7, 500), interfaces=("eth0", "eth1")), is_settled=True)
    for hook in ("ingress", "egress"):
        assert "pref" in bed.tc("filter", "show", "dev", "eth1", hook)
    bed.enforce(wanted(link(7, 500), interfaces=("eth1",)), is_settled=True)
    assert bed.tc("filter", "show", "dev", "eth0", "ingress", check=False) == ""


def test_an_address_without_a_link_is_a_bystanders_at_once(bed: EngineBed) -> None:
    """Else its fragments would be judged and counted until the next whole pass."""
    bed.enforce(wanted(link(7, 500), link(8, 500, ip=U2)))
    bed.enforce(wanted(link(7, 500)), is_settled=True)
    program = bed.engine._program
    assert program is not None
    addresses = program.fragments.keys()
    assert [IPv6Address(one[:16]).ipv4_mapped for one in addresses] == [ip_address(U1)]
