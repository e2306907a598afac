"""The verdict of a test of TCP: a link of 1000 kbit/s, of which headers leave 956.4 for payload, and phases that ended
early, after 5 s of 10."""

from __future__ import annotations

from typing import Any

import pytest

from scionlab.linktests.sending_verdict import sending_verdict
from tests.linktests.test_sending_verdict import BEGAN, LIMIT, SECONDS, samples

PAYLOAD = 119_550  # of 125 000 bytes a second, in full segments
SENT = PAYLOAD * 102 // 100  # two packets of 100 are sent again


def planned(kbit: int = 1250) -> list[dict[str, Any]]:
    rest = {"kind": "tcp", "kbit": kbit, "payload_bytes": 1448, "duration_ms": 10_000, "count": 1}
    return [{"number": number, "direction": name, **rest} for number, name in enumerate(BEGAN)]


def end(sends: str, *, sent: int = SENT, received: int = PAYLOAD, began: bool = True) -> dict[str, Any]:
    """Report of the end that sends in that direction: payload in each second, acknowledged as it was received."""
    phases = []
    for one in planned():
        is_sender = one["direction"] == sends
        of_sender = (38_000, 12, 2, 1912) if is_sender else ()
        rows = [(250 * at, received * at // 4, *of_sender) for at in range(1, 4 * SECONDS + 1)]
        counted = [0, sent, 0, 0] if is_sender else [0, 0, 0, received]
        phases.append(
            {
                **one,
                "begins_at_ms": BEGAN[one["direction"]],
                **dict.fromkeys(("sent_packets", "received_packets", "lost_packets"), 0),
                "sent_bytes": sent * SECONDS if is_sender else 0,
                "received_bytes": 0 if is_sender else received * SECONDS,
                "seconds": [counted] * SECONDS if began else [],
                "tcp": [rows if began else []],
                "rtt_us": None,
                "mtu": None,
            }
        )
    return {"outcome": "completed", "phases": phases}


def judged(
    passed: int = 100,
    dropped: float = 2,
    *,
    kbit: int = 1250,
    ap: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
    limits: dict[int, int] | None = None,
    is_ipv6: bool = False,
) -> Any:
    """By default the class passes its limit, and all of it arrives."""
    rows = samples(dict.fromkeys(BEGAN, passed), dict.fromkeys(BEGAN, dropped), limits or {0: LIMIT})
    return sending_verdict(planned(kbit), rows, ap=ap or end("to_user"), user=user or end("from_user"), is_ipv6=is_ipv6)


HALF = {"sent": PAYLOAD // 2, "received": PAYLOAD // 2}


@pytest.mark.parametrize(
    ("name", "given", "code", "words"),
    [
        (
            "as wanted",
            {},
            "enforced",
            "enforced. 1 000 kbit/s of 1 000 kbit/s arrived; 2 % of the traffic was dropped. TCP got 956 kbit/s "
            "of payload over 1 connection, > 99 % of what headers leave of the limit",
        ),
        ("nothing dropped: TCP saw the queue grow", {"dropped": 0}, "enforced", "2 retransmissions"),
        (
            "half of it, and the class dropped some",
            {"passed": 50, "dropped": 0.4, "ap": end("to_user", **HALF), "user": end("from_user", **HALF)},
            "mixed",
            "TCP got 478 kbit/s of payload over 1 connection, 50 % of what headers leave of the limit",
        ),
        (
            "half of it, and the class dropped nothing",
            {"passed": 50, "dropped": 0, "ap": end("to_user", **HALF), "user": end("from_user", **HALF)},
            "limited_elsewhere",
            "500 kbit/s left the attachment point, 500 kbit/s arrived. TCP got 478 kbit/s",
        ),
        (
            "a limit above what any test may send",
            {"passed": 50, "dropped": 0, "kbit": 500, "ap": end("to_user", **HALF), "user": end("from_user", **HALF)},
            "not_enough",
            "TCP got 478 kbit/s",
        ),
        ("twice the limit passed", {"passed": 200, "dropped": 0}, "over_the_limit", "over the limit. 2 000 kbit/s"),
        (
            "no TCP connection was made",
            {"passed": 0, "dropped": 0, "ap": end("", began=False), "user": end("", began=False)},
            "no_result",
            "no TCP connection was made",
        ),
    ],
)
def test_verdict_of_tcp(name: str, given: dict[str, Any], code: str, words: str) -> None:
    found = judged(**given)
    text = " ".join(found.text.split())
    assert ([side.code for side in found.sides], words in text) == ([code, code], True), (name, text)


@pytest.mark.parametrize(("passed", "code"), [(114, "enforced"), (130, "over_the_limit")])
def test_tcp_may_pass_one_packet_of_many_segments_beyond_the_limit(passed: int, code: str) -> None:
    """In three seconds 427 500 bytes: 375 000, a queue of 20 000, and a part of the 70 000 of one such packet."""
    ap, user = (end(sends, sent=PAYLOAD * passed // 100) for sends in BEGAN)
    assert [side.code for side in judged(passed, 0, ap=ap, user=user).sides] == [code, code]


def test_what_the_class_counts_in_the_first_second_of_tcp_is_not_judged_nor_after_its_end() -> None:
    """A phase that ended after 2 s of 10 has one whole second of the clock after the first."""
    ap = end("to_user")
    for one in ap["phases"]:
        one["tcp"] = [rows[:12] for rows in one["tcp"]]  # 3 s
    found = judged(ap=ap)
    assert [side.steps[0].tcp.took_ms for side in found.sides][1] == 3000
    assert found.to_user.steps[0].passed_kbit == 1000
    assert found.to_user.steps[0].tcp.is_early


def test_first_second_in_which_tcp_looks_for_its_rate_is_not_judged() -> None:
    """The phase began a second of the clock before the class passed anything."""
    ap = end("to_user")
    for one in ap["phases"]:
        one["begins_at_ms"] -= 1000
    found = judged(ap=ap)
    assert [side.code for side in found.sides] == ["enforced", "enforced"]


def test_share_is_of_what_headers_leave_of_the_version() -> None:
    found = judged(is_ipv6=True)
    assert found.to_user.steps[0].tcp.share_percent == pytest.approx(100 * 1448 / 1428, abs=0.1)


def test_a_limit_that_changed_has_no_share() -> None:
    step = judged(limits={0: LIMIT, 13: 900}).to_user.steps[0]
    assert (step.is_stepped, step.tcp.share_percent) == (True, None)


def test_what_only_the_sending_end_reported_is_what_was_acknowledged() -> None:
    rows = samples(dict.fromkeys(BEGAN, 100), {}, {0: LIMIT})
    found = sending_verdict(planned(), rows, ap=end("to_user"), user=None, is_ipv6=False)
    assert (found.to_user.code, round(found.to_user.steps[0].tcp.kbit)) == ("enforced", 956)
    assert found.from_user.steps[0].tcp.rtt_us is None


def test_a_user_that_claims_more_than_passed_is_not_believed() -> None:
    found = judged(user=end("from_user", received=2 * PAYLOAD))
    step = found.to_user.steps[0]
    assert (step.is_contradicted, found.to_user.code, round(step.tcp.kbit)) == (True, "enforced", 956)
