"""The messages about filters that run a program, byte for byte, and which of what a dump answers is ours."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ap_agent import tcmsg
from ap_agent.bpfmsg import pack_admission, pack_admission_name
from ap_agent.messages import messages
from ap_agent.model import EGRESS_HOOK, INGRESS_HOOK, Device, Handle, LoadedProgram, filter_is_ours
from ap_agent.u32msg import parse_filter
from ap_agent.whole.ops import AdmissionAttach, AdmissionDetach

ETH0 = Device(2, "eth0")
# struct tcmsg: family, ifindex 2, handle 1, parent ffff:fff3, preference 105 with ETH_P_ALL; then TCA_KIND
HEAD = bytes.fromhex("00000000 02000000 01000000 f3ffffff 00036900".replace(" ", "")) + b"\x08\x00\x01\x00bpf\0"
# TCA_OPTIONS: TCA_BPF_FD 9, TCA_BPF_NAME, TCA_BPF_FLAGS with direct action
OPTIONS = b"\x24\x00\x02\x00\x08\x00\x06\x00\x09\0\0\0\x0f\x00\x07\x00slbw-whole\0\0\x08\x00\x08\x00\x01\0\0\0"


def test_a_filter_is_attached_with_the_bytes_that_the_kernels_headers_prescribe() -> None:
    assert pack_admission(2, EGRESS_HOOK, 9) == HEAD + OPTIONS
    assert pack_admission_name(2, EGRESS_HOOK) == HEAD


def test_attaching_replaces_and_detaching_names_one_filter() -> None:
    attach = AdmissionAttach(ETH0, frozenset(), EGRESS_HOOK, LoadedProgram(17, 9))
    detach = AdmissionDetach(ETH0, frozenset(), EGRESS_HOOK)

    assert messages(attach, 2) == [(44, 0x500, HEAD + OPTIONS)]  # RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_REPLACE
    assert messages(detach, 2) == [(45, 0, HEAD)]  # RTM_DELTFILTER
    assert (str(attach), attach.to_json()["program"]) == ("eth0: admit whole datagrams at egress (ffff:fff3)", 17)
    assert str(replace(attach, old=16)) == "eth0: load anew what admits whole datagrams at egress (ffff:fff3)"


def dumped(name: str = "slbw-whole", flags: int = 1, number: int | None = 17, hook: Handle = EGRESS_HOOK) -> bytes:
    """What the kernel says of such a filter: no descriptor, but the program's number and tag."""
    options = tcmsg.text(7, name) + tcmsg.u32(8, flags) + tcmsg.u32(9, 0)
    if number is not None:
        options += tcmsg.attribute(10, bytes(8)) + tcmsg.u32(11, number)
    head = tcmsg.tcmsg(2, 1, int(hook), 105 << 16 | 0x0300)
    return head + tcmsg.text(1, "bpf") + tcmsg.attribute(2, options)


def test_a_dump_says_which_program_sits_where() -> None:
    found = parse_filter(dumped(), {})

    assert (found.kind, found.hook, found.pref, found.handle) == ("bpf", EGRESS_HOOK, 105, 1)
    assert found.program is not None
    assert found.program.number == 17
    assert filter_is_ours(found)


@pytest.mark.parametrize(
    "other",
    [dumped(name="cil_to_netdev"), dumped(flags=0), dumped(number=None), dumped(hook=Handle(1))],
    ids=["name", "not direct", "classic bytecode", "in a tree"],
)
def test_others_programs_are_theirs(other: bytes) -> None:
    assert not filter_is_ours(parse_filter(other, {}))


@pytest.mark.parametrize("change", [{"pref": 104}, {"chain": 1}, {"handle": 2}, {"protocol": 0x0800}])
def test_our_name_elsewhere_is_somebody_elses(change: dict[str, int]) -> None:
    ours = parse_filter(dumped(hook=INGRESS_HOOK), {})
    assert filter_is_ours(ours)
    assert not filter_is_ours(replace(ours, **change))  # type: ignore[arg-type]  # all are numbers
