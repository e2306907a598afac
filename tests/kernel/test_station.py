"""Both ends of a test that sends, with real packets: who gets data, how much, until when, and what people are told."""

from __future__ import annotations

import socket
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

import station.user_end
from station.messages import Kind, Opening, OpeningCodec
from station.plan import Phase
from station.report import COMPLETED, CUT, NOBODY
from tests.kernel.station_bed import AP, BOTH_WAYS, ID, KEY, PORT, TO_USER, VICTIM, Bed, _clean, bed, report

__all__ = ["_clean", "bed"]  # fixtures


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# --- what works -------------------------------------------------------------------------------------------------------


def test_every_kind_of_phase_both_ways(bed: Bed) -> None:
    phases = (
        *BOTH_WAYS,
        Phase(2, "echo", "both", 16, 48, 500, 5),
        Phase(3, "mtu", "both", 200, 1452, 5000, 0),
    )
    ap, user = bed.both(phases)
    assert (ap.outcome, user.outcome, ap.why, user.why, bed.told) == (COMPLETED, COMPLETED, "", "", [])
    for mine, theirs in zip(ap.phases, user.phases, strict=True):
        assert (mine.sent_packets, mine.sent_bytes) == (theirs.received_packets, theirs.received_bytes)
        assert (theirs.sent_packets, theirs.sent_bytes) == (mine.received_packets, mine.received_bytes)
        assert abs(mine.begins_at_ms - theirs.begins_at_ms) < 500
    assert [one.sent_packets for one in ap.phases[:3]] == [93, 0, 5]  # 542 bytes at 1 Mbit/s for 0.4 s: 92.25
    assert (ap.phases[3].mtu, user.phases[3].mtu) == ((1500, 1500), (1500, 1500))
    assert user.phases[2].rtt_us is not None


def test_behind_nat_and_the_path_mtu_is_found_both_ways(bed: Bed) -> None:
    """The registered address is that of the NAT, the port is whichever comes. A router refuses what is longer than 1400
    bytes on its way to the user, and drops it in silence on its way from there."""
    phases = (*BOTH_WAYS, Phase(2, "mtu", "both", 200, 1452, 8000, 0))
    child = bed.start_ap(phases)
    user, ap = bed.run_user(phases, host=bed.home), report(child)
    assert (user.outcome, ap.outcome) == (COMPLETED, COMPLETED)
    assert user.phases[0].received_packets == ap.phases[0].sent_packets == 93
    assert (ap.phases[2].mtu, user.phases[2].mtu) == ((1400, 1400), (1400, 1400))
    assert bed.told == ["From here, packets of more than 1400 bytes do not pass: they vanish."]


def test_the_clock_of_the_user_may_be_wrong_by_an_hour(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service's answer has its time, so the client knows by how much. Here the answer is for in half a second."""
    for off_ms in (3_600_000, -3_600_000):
        wrong = SimpleNamespace(
            time_ns=lambda off_ms=off_ms: time.time_ns() - off_ms * 1_000_000,
            monotonic=time.monotonic,
            sleep=time.sleep,
        )
        monkeypatch.setattr(station.user_end, "time", wrong)
        begins_ms = now_ms() + 500
        child = bed.start_ap(from_ms=begins_ms)
        user = bed.run_user(from_ms=begins_ms, until_ms=begins_ms + 8000, clock_off_ms=off_ms)
        assert (user.outcome, report(child).outcome) == (COMPLETED, COMPLETED)
        assert 0 <= user.phases[0].begins_at_ms - begins_ms < 1000


# --- who gets no data -------------------------------------------------------------------------------------------------


def send(source: tuple[str, int], payload: bytes) -> None:
    """A datagram to the port of the test."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(source)
        sock.sendto(payload, (AP, PORT))


def test_who_has_the_wrong_key_or_comes_early_or_late_gets_no_packet(bed: Bed) -> None:
    for of_ap, of_user in (
        ({}, {"key": bytes(32)}),
        ({}, {"test_id": "f" * 32}),
        ({"from_ms": now_ms() + 60_000, "until_ms": now_ms() + 70_000}, {}),
        ({"until_ms": now_ms() - 1}, {}),
    ):
        with bed.tap(bed.user) as tap:
            child = bed.start_ap(**of_ap)
            user = bed.run_user(**of_user)
            assert (user.outcome, tap.frames()) == (NOBODY, [])
            bed.lab.stop(child)


def test_a_registered_address_that_is_somebody_elses_gets_no_data_and_no_more_than_was_sent_in_its_name(
    bed: Bed,
) -> None:
    """The user has the key and the victim's address, also as the source of what he sends."""
    bed.user.ip("addr", "add", f"{VICTIM}/32", "dev", "lo")
    child = bed.start_ap(TO_USER, remote_ip=VICTIM)
    try:
        with bed.tap(bed.victim) as tap, bed.tap(bed.user) as own:
            assert bed.run_user(TO_USER).outcome == NOBODY  # from his own address
            assert bed.run_user(TO_USER, bind=VICTIM).outcome == NOBODY  # from the victim's
            codec = OpeningCodec(ID, KEY)
            hello = codec.pack(Opening(Kind.HELLO, bytes(16)))
            guess = codec.pack(Opening(Kind.RESPONSE, bytes(16), bytes(16)))
            for packet in (hello, guess):
                bed.user.call(partial(send, (VICTIM, 50_000), packet))
            time.sleep(0.3)
            frames = tap.frames()
            assert (own.frames(), [one for one in frames if one.is_data]) == ([], [])
            assert {len(one.payload) for one in frames} == {len(hello)}
            assert len(frames) <= 4 + 1  # as many as were sent in its name
    finally:
        bed.user.ip("addr", "del", f"{VICTIM}/32", "dev", "lo")
        bed.lab.stop(child)


# --- how much, and until when -----------------------------------------------------------------------------------------


@pytest.mark.alone  # it times the end, to 5 ms
def test_nothing_leaves_after_until_and_the_child_is_gone(bed: Bed) -> None:
    until_ms = now_ms() + 2500
    child = bed.start_ap(TO_USER, until_ms=until_ms)
    with bed.tap(bed.user) as tap:
        user = bed.run_user(TO_USER)
        frames = tap.frames()
    found = report(child, wait_s=1)
    assert found.why == "The time of the test has ended."
    left_s = (until_ms - now_ms()) / 1000
    assert time.monotonic() + left_s - 0.1 < [one for one in frames if one.is_data][-1].at
    assert frames[-1].at <= time.monotonic() + left_s + 0.005
    assert (found.outcome, user.outcome) == (CUT, CUT)


# --- what people are told ---------------------------------------------------------------------------------------------


# --- what the child may ----------------------------------------------------------------------------------------------


def test_the_child_has_no_right_and_bounds(bed: Bed) -> None:
    child = bed.start_ap()
    lines = Path(f"/proc/{child.pid}/status").read_text(encoding="ascii").splitlines()
    status = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    assert (status["Uid"], status["Gid"], status["Groups"]) == (["65534"] * 4, ["65534"] * 4, [])
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name][0], 16) == 0, name
    assert status["NoNewPrivs"] == ["1"]
    limits = Path(f"/proc/{child.pid}/limits").read_text(encoding="ascii")
    for words in (
        "Max cpu time              90                   90 ",
        "Max open files            32                   32 ",
        "Max address space         536870912            536870912 ",
        "Max core file size        0                    0 ",
    ):
        assert words in limits
    bed.lab.stop(child)
