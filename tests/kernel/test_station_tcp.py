"""Both ends of a test of TCP, with real packets: who gets a byte, how much, until when, and what a limit leaves."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest

from measuring.netns import Namespace
from station.messages import ConversationCodec
from station.plan import Phase, ap_bytes
from station.report import COMPLETED, CUT, REFUSED, PhaseReport
from tests.kernel.station_bed import AP, PORT, USER, USER_TOO, VICTIM, Bed, _clean, bed, report
from tests.support.waiting import until

__all__ = ["_clean", "bed"]  # fixtures
pytestmark = pytest.mark.measured


def tcp(direction: str, duration_ms: int = 600, kbit: int = 2000, flows: int = 1, number: int = 0) -> Phase:
    return Phase(number, "tcp", direction, kbit, 1448, duration_ms, flows)


BOTH_WAYS = (tcp("to_user", flows=2), tcp("from_user", flows=2, number=1))


def arrived(phase: PhaseReport) -> int:
    return sum(rows[-1][1] for rows in phase.tcp or () if rows)


def connect(host: Namespace, source: str, words: bytes = b"", port: int = 0, *, most: int = 1 << 30) -> bytes:
    """What comes over a connection to the test port until it ends, is silent for 0.3 s, or was so much."""

    def talk() -> bytes:
        found = b""
        with contextlib.suppress(OSError), socket.socket() as sock:
            sock.bind((source, port))
            sock.settimeout(0.3)
            sock.connect((AP, PORT))
            sock.sendall(words)
            while len(found) < most and (more := sock.recv(65_536)):
                found += more
        return found

    return host.call(talk)


def listens(bed: Bed) -> bool:
    return f":{PORT} " in bed.ap.run("ss", "-Htln")


# --- what works -------------------------------------------------------------------------------------------------------


def test_both_ways_over_two_connections_and_both_ends_tell_the_same(bed: Bed) -> None:
    ap, user = bed.both(BOTH_WAYS)
    assert (ap.outcome, user.outcome, ap.why, user.why, bed.told) == (COMPLETED, COMPLETED, "", "", [])
    for sender, receiver in ((ap.phases[0], user.phases[0]), (user.phases[1], ap.phases[1])):
        assert sender.tcp is not None
        assert receiver.tcp is not None
        assert [len(rows[0]) for rows in (*sender.tcp, *receiver.tcp)] == [6, 6, 2, 2]
        assert receiver.received_bytes == arrived(receiver)
        assert [round(row[0] / 250) for row in receiver.tcp[0][:2]] == [1, 2]
        for rows in sender.tcp:
            assert all(rtt_us > 0 and cwnd > 0 for _, _, rtt_us, cwnd, _, _ in rows)
        assert arrived(receiver) == pytest.approx(2000 * 600 / 8, rel=0.1)  # no limit here but what it is given
        assert arrived(receiver) <= 2000 * 600 / 8
        assert receiver.tcp[1][-1][1] == pytest.approx(arrived(receiver) / 2, rel=0.3)
    assert not listens(bed)


# --- who gets no byte -------------------------------------------------------------------------------------------------


def test_nobody_but_the_user_gets_a_byte_while_a_test_runs(bed: Bed) -> None:
    """Neither from another address, nor from the registered one without the token, and the test goes on."""
    plan = (tcp("to_user", 3000),)
    child = bed.start_ap(plan)
    assert not listens(bed), "before anybody has shown the key"
    ends: list[PhaseReport] = []
    talk = threading.Thread(target=lambda: ends.extend(bed.run_user(plan).phases))
    talk.start()
    until(lambda: listens(bed))
    assert connect(bed.victim, VICTIM) == b""
    assert connect(bed.user, USER_TOO, bytes(32)) == b""
    assert connect(bed.user, USER, bytes(32)) == b""
    assert connect(bed.user, USER, bytes(31)) == b""
    assert connect(bed.user, USER) == b""
    talk.join()
    assert report(child).outcome == COMPLETED
    assert arrived(ends[0]) > 600_000


def test_a_token_opens_nothing_from_another_address_and_the_address_nothing_without_the_token(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the user's own connection does not come about, so that its place is free."""
    tokens = []
    token_of = ConversationCodec.token

    def kept(codec: ConversationCodec, number: int, connection: int) -> bytes:
        tokens.append(token_of(codec, number, connection))
        return tokens[-1]

    monkeypatch.setattr(ConversationCodec, "token", kept)
    bed.user.run("nft", "add table inet cut; add chain inet cut out { type filter hook output priority 0; }; "
                 f"add rule inet cut out tcp dport {PORT} tcp sport != 41000-41099 drop")  # fmt: skip
    child = bed.start_ap((tcp("to_user", 8000),))
    talk = threading.Thread(target=lambda: bed.run_user((tcp("to_user", 8000),)))
    try:
        talk.start()
        until(lambda: bool(tokens) and listens(bed))
        assert connect(bed.user, USER_TOO, tokens[0], 41_000) == b""
        assert connect(bed.victim, VICTIM, tokens[0]) == b""
        assert connect(bed.user, USER, bytes(32), 41_001) == b""
        assert connect(bed.user, USER, tokens[0][:31] + bytes(1), 41_002) == b""
        assert len(connect(bed.user, USER, tokens[0], 41_003, most=1000)) >= 1000, "the control"
    finally:
        talk.join()
        bed.user.run("nft", "delete table inet cut")
        bed.lab.stop(child)


def test_with_another_key_nobody_listens_and_nothing_is_sent(bed: Bed) -> None:
    child = bed.start_ap(BOTH_WAYS)
    user = bed.run_user(BOTH_WAYS, key=bytes(32))
    assert (user.phases, listens(bed)) == ((), False)
    bed.lab.stop(child)


# --- how much, and until when -----------------------------------------------------------------------------------------


def test_the_byte_budget_holds_with_what_is_sent_again(bed: Bed) -> None:
    """One segment in ten is lost; those sent again are known to 250 ms."""
    plan = (tcp("to_user", 5000, 400),)
    child = bed.start_ap(plan, max_bytes=100_000)
    bed.user.run("nft", "add table inet cut; add chain inet cut in { type filter hook input priority 0; }; "
                 f"add rule inet cut in tcp sport {PORT} numgen inc mod 10 0 drop")  # fmt: skip
    try:
        user, ap = bed.run_user(plan), report(child)
    finally:
        bed.user.run("nft", "delete table inet cut")
    assert 80_000 < arrived(user.phases[0]) < 95_000
    assert 90_000 < ap.phases[0].sent_bytes <= 105_000
    assert (ap.outcome, ap.why) == (CUT, "100000 bytes, the maximum that this test may send, were reached.")
    assert ap_bytes(plan) == 250_000


@pytest.mark.alone  # it times the end
def test_nothing_is_left_after_the_time_of_the_test(bed: Bed) -> None:
    until_ms = time.time_ns() // 1_000_000 + 2500
    plan = (tcp("to_user", 8000),)
    child = bed.start_ap(plan, until_ms=until_ms)
    user = bed.run_user(plan, until_ms=until_ms)
    found = report(child, wait_s=1)
    assert (found.outcome, found.why, user.outcome) == (CUT, "The time of the test has ended.", CUT)
    assert not listens(bed)
    assert str(PORT) not in bed.ap.run("ss", "-Htn")


def test_a_test_that_is_not_one_of_tcp_opens_no_tcp_port(bed: Bed) -> None:
    child = bed.start_ap(BOTH_WAYS, tcp=False)
    user, ap = bed.run_user(BOTH_WAYS), report(child)
    assert (user.outcome, ap.outcome) == (REFUSED, REFUSED)
    assert ap.why == "Phase 0 cannot begin: this test is not one of TCP."
    assert not listens(bed)
