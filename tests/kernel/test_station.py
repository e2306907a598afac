"""Both ends of a test that sends, with real packets: who gets data, how much, until when, and what people are told."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

import station.user_end
import station.user_talk
from measuring.iproute import cleanup_stale
from measuring.netns import Namespace
from station.messages import Kind, Opening, OpeningCodec
from station.plan import Phase
from station.report import COMPLETED, CUT, ERROR, NOBODY
from tests.kernel.conftest import MISSING
from tests.kernel.station_bed import (
    AP,
    BOTH_WAYS,
    ID,
    KEY,
    PORT,
    PREFIX,
    TO_USER,
    USER,
    USER_TOO,
    VICTIM,
    Bed,
    report,
    station_bed,
)

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(MISSING is not None, reason=f"namespaces: {MISSING}")]
NOT_ROOT = 65_533


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    cleanup_stale(PREFIX)
    with station_bed() as made:
        yield made


@pytest.fixture(autouse=True)
def _clean(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A user's end gives up soon, and no child is left."""
    monkeypatch.setitem(station.user_talk.TRIES, Kind.HELLO, 4)
    yield
    bed.lab.stop_all()


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


def test_between_link_local_addresses(bed: Bed) -> None:
    """The attachment point's has the index of the interface; the user's has its name."""
    ap_ip, user_ip = (_link_local(one) for one in (bed.ap, bed.user))
    child = bed.start_ap(remote_ip=user_ip, ifindex=_index(bed.ap, "eth0"), local_ip=ap_ip)
    user = bed.run_user(ip=ap_ip, bind=f"{user_ip}%eth0")
    assert (user.outcome, report(child).outcome) == (COMPLETED, COMPLETED)
    child = bed.start_ap(remote_ip=user_ip, ifindex=_index(bed.ap, "eth1"))
    assert bed.run_user(ip=ap_ip, bind=f"{user_ip}%eth0").outcome == NOBODY  # it is another host's on that interface
    assert bed.run_user(ip=ap_ip).why == (
        f"{ap_ip} is a link-local address. Use --bind ADDRESS%INTERFACE, e.g. --bind fe80::1%eth0."
    )


def _link_local(host: Namespace) -> str:
    shown = host.ip("-6", "-o", "addr", "show", "dev", "eth0", "scope", "link")
    return shown.split()[3].partition("/")[0]


def _index(host: Namespace, dev: str) -> int:
    return int(host.ip("-o", "link", "show", "dev", dev).partition(":")[0])


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


@pytest.mark.parametrize(
    ("narrow", "mtu", "words"),
    [("home", 1300, "the interface of this host has a smaller MTU"), ("user", 1350, "a router refuses them")],
)
def test_what_blocks_large_packets_is_said(bed: Bed, narrow: str, mtu: int, words: str) -> None:
    search = (Phase(0, "mtu", "both", 200, 1452, 8000, 0),)
    host = bed.lab.namespaces[narrow]
    host.ip("link", "set", "eth0", "mtu", str(mtu))
    try:
        child = bed.start_ap(search)
        found = bed.run_user(search, host=bed.home).phases[0].mtu
        assert (found or (0, 0))[1] == mtu
        assert bed.told == [f"From here, packets of more than {mtu} bytes do not pass: {words}."]
        assert report(child).phases[0].mtu == found
    finally:
        host.ip("link", "set", "eth0", "mtu", "1500")


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


def test_what_was_recorded_opens_nothing_when_it_is_sent_again(bed: Bed) -> None:
    """All that a user's end sent, again from its own port and from another, to a second run of the same test."""
    with bed.tap(bed.ap) as from_user:
        assert bed.both()[0].outcome == COMPLETED
        recorded = [one.payload for one in from_user.frames()]
    kinds = [OpeningCodec(ID, KEY).read(one) for one in recorded[:2]]
    assert [one.kind for one in kinds if one] == [Kind.HELLO, Kind.RESPONSE]
    child = bed.start_ap()
    with bed.tap(bed.user) as tap:
        for payload in recorded[:30]:
            for port in (50_000, 50_001):
                bed.user.call(partial(send, (USER, port), payload))
        time.sleep(0.3)
        answers = tap.frames()
    assert [len(one.payload) for one in answers] == [69, 69]  # a challenge for each HELLO, as long as that
    assert not any(one.is_data for one in answers)
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


def test_the_users_end_says_why_nothing_answered(bed: Bed) -> None:
    assert bed.run_user().outcome == NOBODY
    assert bed.told == [
        "192.0.2.1, UDP port 30300, is closed: the attachment point answers, but its end of the test does not run. "
        "Its operator may have stopped tests, or its agent did not start it."
    ]
    child = bed.start_ap(remote_ip=USER_TOO)
    assert bed.run_user().outcome == NOBODY
    assert bed.told == [
        "No answer from 192.0.2.1, UDP port 30300. This host sends from 192.0.2.11; the attachment point answers "
        "only the registered address of this link. If that is another one, use --bind with it; if not, a firewall "
        "stops UDP."
    ]
    assert bed.run_user(bind=USER_TOO).outcome == COMPLETED
    assert report(child).peer is not None
    assert bed.run_user(bind="192.0.2.77").outcome == ERROR
    assert bed.told == ["This host has no address 192.0.2.77. Use --bind with an address of this host that is up."]
    assert bed.run_user(ip="2001:db8:9::1").outcome in {ERROR, NOBODY}
    assert bed.told == ["This host cannot send to 2001:db8:9::1: Network is unreachable. Check its routes."]


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


def test_capabilities_that_were_handed_on_are_given_up(bed: Bed) -> None:
    """As a service of systemd with AmbientCapabilities= has them: not root, and they pass to every child."""
    program = f"""
import ctypes, os
from pathlib import Path
from station.confine import confine
libc = ctypes.CDLL(None)
libc.prctl(8, 1, 0, 0, 0)  # PR_SET_KEEPCAPS
os.setresuid({NOT_ROOT}, {NOT_ROOT}, {NOT_ROOT})
libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(*[1 << 12] * 3))  # CAP_NET_ADMIN
assert libc.prctl(47, 2, 12, 0, 0) == 0  # PR_CAP_AMBIENT_RAISE
print(Path("/proc/self/status").read_text())
confine(5)
print(Path("/proc/self/status").read_text())
"""
    said = bed.ap.run(sys.executable, "-c", program)
    found = [int(line.split()[1], 16) for line in said.splitlines() if line.startswith(("CapPrm", "CapEff", "CapAmb"))]
    assert found == [1 << 12] * 3 + [0] * 3
