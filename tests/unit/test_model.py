"""Handles and what is ours: the words that everything else is written in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ap_agent.model import (
    ARPHRD_ETHER,
    AT_ROOT,
    GONE,
    IFB_ALIAS,
    INDEX_PREFS,
    INGRESS_HOOK,
    MARKER_CHAIN,
    OUR_PREFS,
    Device,
    Filter,
    Handle,
    Index,
    InstalledFilter,
    Qdisc,
    Selector,
    TcState,
    data_class,
    filter_is_ours,
    heartbeat_class,
    inner_class,
    is_our_class,
    is_our_ifb,
    leaf_handle,
    link_of_class,
    root_is_ours,
)


@given(st.integers(0, 0xFFFF_FFFF))
def test_a_handle_survives_its_number_and_its_text(number: int) -> None:
    handle = Handle.from_int(number)
    assert int(handle) == number
    assert Handle.parse(str(handle)) == handle


def test_handles_are_written_like_tc_does() -> None:
    assert str(Handle(1, 0x1001)) == "1:1001"
    assert str(Handle(0x2001)) == "2001:"
    assert str(INGRESS_HOOK) == "ffff:fff2"


@given(st.integers(1, 4094), st.sampled_from([1, 3]))
def test_classes_of_a_link_never_meet_those_of_another(interface_id: int, major: int) -> None:
    handles = [make(major, interface_id) for make in (inner_class, data_class, heartbeat_class)]
    assert [link_of_class(one) for one in handles] == [interface_id] * 3
    assert len(set(handles)) == 3
    assert all(is_our_class(one) for one in handles)


@pytest.mark.parametrize("minor", [0, 0xFFF, 0x1000, 0x2000, 0x1FFF, 0x3001, 0x5000, 0x9999, 0xFFFC, 0xFFFF])
def test_other_minors_are_not_ours(minor: int) -> None:
    assert not is_our_class(Handle(1, minor))
    assert link_of_class(Handle(1, minor)) is None


def test_leaves_have_the_minor_of_their_class_and_stay_below_the_kernels_own_handles() -> None:
    assert leaf_handle(Handle(1, 0x1001)) == Handle(0x1001)
    handles = {leaf_handle(Handle(1, minor)) for minor in (*range(0x1001, 0x1FFF), 0x2001, 0xFFFD, 0xFFFE)}
    assert len(handles) == 0xFFE + 3
    assert all(one.major | 0x4000 < 0x8000 for one in handles)  # the kernel hands out 8001: and up


@pytest.mark.parametrize(
    ("root", "is_ours"),
    [
        (Qdisc("htb", Handle(1), AT_ROOT, default_minor=0xFFFE), True),
        (Qdisc("htb", Handle(1), AT_ROOT, default_minor=0x9999), False),
        (Qdisc("htb", Handle(1), AT_ROOT, default_minor=0), False),
        (Qdisc("htb", Handle(3), AT_ROOT, default_minor=0xFFFE), False),
        (Qdisc("pfifo", Handle(1), AT_ROOT), False),
    ],
)
def test_a_root_is_ours_only_with_the_whole_mark(root: Qdisc, is_ours: bool) -> None:
    assert root_is_ours(root, 1) is is_ours


@pytest.mark.parametrize(
    ("device", "is_ours"),
    [
        (Device(9, "slbw0", kind="ifb", alias=IFB_ALIAS), True),
        (Device(9, "slbw0", kind="ifb"), False),
        (Device(9, "slbw0", kind="veth", alias=IFB_ALIAS), False),
        (Device(9, "ifb0", kind="ifb", alias=IFB_ALIAS), False),
    ],
)
def test_an_ifb_is_ours_by_name_kind_and_alias(device: Device, is_ours: bool) -> None:
    assert is_our_ifb(device) is is_ours
    assert (TcState((device,)).ifb == device) is is_ours


def test_frames_count_the_ethernet_header_only_where_there_is_one() -> None:
    assert Device(2, "eth0", 1500, ARPHRD_ETHER).frame_bytes == 1514
    assert Device(3, "tun0", 1500, 65534).frame_bytes == 1500


NIC_HOOK = Handle(1)


def test_a_filters_handle_is_table_bucket_and_node() -> None:
    one = installed(None, handle=0x7FFA1B23)
    assert (one.table, one.bucket, one.node) == (0x7FF, 0xA1, 0xB23)


def test_only_what_somebody_made_counts_as_a_table() -> None:
    """The first table of a preference comes and goes with it, and cannot be deleted."""
    assert installed(None, handle=0x7FF00000, buckets=256).is_table
    assert not installed(None, handle=0x80000000, buckets=1).is_table
    assert not installed(None, handle=0x00100010).is_table


@pytest.mark.parametrize(
    ("position", "offset", "mask"), [(16, 16, 0xFF000000), (17, 16, 0xFF0000), (18, 16, 0xFF00), (39, 36, 0xFF)]
)
def test_a_selector_is_one_byte_of_an_aligned_word(position: int, offset: int, mask: int) -> None:
    assert (Selector(position).offset, Selector(position).mask) == (offset, mask)


def test_an_index_has_two_preferences_and_all_of_them_are_ours() -> None:
    index = Index(NIC_HOOK, 0x800, 112, (), (16, 17, 18, 19), {}, (), ())
    assert index.prefs == (112, 113)
    assert set(OUR_PREFS) >= INDEX_PREFS
    assert not INDEX_PREFS & {100, 101, 102, 150}  # lists of one filter after the other


def installed(
    meaning: Filter | None, *, handle: int = 0x80000800, kind: str = "u32", **place: object
) -> InstalledFilter:
    where = {"hook": NIC_HOOK, "chain": 0, "pref": 117, "protocol": 0x800, **place}
    return InstalledFilter(**where, kind=kind, handle=handle, meaning=meaning)  # type: ignore[arg-type]


def to(flowid: Handle) -> Filter:
    return Filter(NIC_HOOK, 117, 0x800, (), flowid)


def redirect(device: str) -> Filter:
    return Filter(INGRESS_HOOK, 110, 0x800, (), redirect_to=device)


@pytest.mark.parametrize(
    ("one", "is_ours"),
    [
        (installed(to(Handle(1, 0x1001))), True),
        (installed(to(Handle(1))), True),
        (installed(to(Handle(1, 0xFFFE))), True),
        (installed(to(Handle(1, 0x5000))), False),
        (installed(to(Handle(3, 0x1001))), False),
        (installed(None), False),
        (installed(Filter(NIC_HOOK, 117, 0x800, (), table=5)), True),
        (installed(Filter(NIC_HOOK, 117, 0x800, (), table=5), pref=7), False),
        (installed(None, handle=0x00500000, buckets=256), True),
        (installed(None, handle=0x00500000, buckets=256, pref=7), False),
        (installed(None, handle=0), True),
        (installed(None, handle=0, kind="flower"), False),
        (installed(to(Handle(1, 0x1001)), pref=OUR_PREFS[-1] + 1), False),
        (installed(to(Handle(1, 0x1001)), chain=5), False),
        (installed(redirect("slbw0"), hook=INGRESS_HOOK, pref=110), True),
        (installed(redirect(GONE), hook=INGRESS_HOOK, pref=110), True),
        (installed(redirect("ifb7"), hook=INGRESS_HOOK, pref=110), False),
        (installed(None, hook=INGRESS_HOOK, pref=100, chain=MARKER_CHAIN), True),
        (installed(None, hook=INGRESS_HOOK, pref=101, chain=MARKER_CHAIN), False),
    ],
)
def test_a_filter_is_ours_by_its_place_and_its_meaning(one: InstalledFilter, is_ours: bool) -> None:
    assert filter_is_ours(one) is is_ours
