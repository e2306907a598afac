"""The verdict of a test that sends: a link of 1000 kbit/s, phases of 5 s, packets of 1250 bytes as a limit counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from scionlab.linktests.sending_steps import Evidence
from scionlab.linktests.sending_verdict import sending_verdict
from tests.cases import case

LIMIT = 1000  # kbit/s: 125 000 bytes, 100 packets a second
FRAME, PAYLOAD = 1250, 1208  # with 14 + 20 + 8 bytes of headers
SECONDS = 5
BEGAN = {"to_user": 10_400, "from_user": 17_400}  # ms; samples are taken at whole seconds
END = 25
COMPLETED = {"outcome": "completed"}


def phases() -> list[dict[str, Any]]:
    rest = {"kind": "stream", "kbit": 1500, "payload_bytes": PAYLOAD, "duration_ms": 1000 * SECONDS, "count": 0}
    return [{"number": number, "direction": name, **rest} for number, name in enumerate(BEGAN)]


def report(*, sent: int = 0, received: int = 0, seconds: int = SECONDS, **more: Any) -> dict[str, Any]:
    """Of one phase: packets in each second."""
    return {
        "sent_packets": sent * seconds,
        "received_packets": received * seconds,
        "lost_packets": 0,
        "seconds": [[sent, sent * PAYLOAD, received, received * PAYLOAD]] * seconds,
        "rtt_us": None,
        "mtu": None,
        **more,
    }


def _at(second: int, value: float | dict[int, float]) -> float:
    """The value in that second, of one or of several by the second in which they begin."""
    steps = value if isinstance(value, dict) else {-1: value}
    return next((one for begin, one in sorted(steps.items(), reverse=True) if begin <= second), 0)


def samples(
    passed: Mapping[str, Any],
    dropped: Mapping[str, Any],
    limits: dict[int, int],
    *,
    in_force: bool = True,
    late: Mapping[int, int] | None = None,
) -> list[list[Any]]:
    """Packets that the class passes and drops in each second of the phase of its direction; `limits` by second;
    `late`: by how many ms a sample is."""
    rows: list[list[Any]] = []
    counted = {name: [0.0, 0.0] for name in BEGAN}
    last_ms = 0
    for second in range(END):
        at_ms = 1000 * second + (late or {}).get(second, 0)
        for name, began_ms in BEGAN.items():
            for ms in range(max(last_ms, began_ms), min(at_ms, began_ms + 1000 * SECONDS), 100):
                counted[name][0] += _at(ms // 1000, passed.get(name, 0)) / 10
                counted[name][1] += _at(ms // 1000, dropped.get(name, 0)) / 10
        last_ms = at_ms
        sides = []
        for name in BEGAN:
            done, lost = (round(one, 1) for one in counted[name])
            sides.append(["0" * 16, _at(second, dict(limits)), done * FRAME, done, lost * FRAME, lost, 0])
        rows.append([at_ms, at_ms, in_force, *sides])
    return rows


def judged(
    *,
    passed: dict[str, Any] | None = None,
    dropped: dict[str, Any] | None = None,
    limits: dict[int, int] | None = None,
    ap: tuple[dict[str, Any], dict[str, Any]] | None = None,
    user: tuple[dict[str, Any], dict[str, Any]] | None = None,
    in_force: bool = True,
    late: dict[int, int] | None = None,
    outcome: str = "completed",
) -> Any:
    """By default both directions offer 150 packets a second, 100 pass and arrive, 50 are dropped."""
    both = dict.fromkeys(BEGAN, 100)
    rows = samples(
        both | (passed or {}),
        dict.fromkeys(BEGAN, 50) | (dropped or {}),
        limits or {0: LIMIT},
        in_force=in_force,
        late=late,
    )
    of_ap = ap or (report(sent=150), report(received=100))
    of_user = user or (report(received=100), report(sent=150))
    ends = []
    for found in (of_ap, of_user):
        rows_of = [
            {**planned, "begins_at_ms": BEGAN[planned["direction"]], **one}
            for planned, one in zip(phases(), found, strict=True)
        ]
        ends.append({"outcome": outcome, "phases": [one for one in rows_of if one["seconds"]]})
    return sending_verdict(phases(), rows, ap=ends[0], user=None if user == () else ends[1], is_ipv6=False)


NOTHING = report(seconds=0)
ARRIVES_100 = report(received=100)


@pytest.mark.parametrize(
    ("name", "given", "codes", "text"),
    [
        ("as wanted", {}, "enforced enforced", "To your AS: enforced. 1 000 kbit/s of 1 000 kbit/s arrived; 33 % of"),
        ("95 %", {"passed": {"to_user": 95}, "user": (report(received=95), report(sent=150))}, "enforced enforced", ""),
        (
            "94 %, dropped",
            {"passed": {"from_user": 92}, "ap": (report(sent=150), report(received=92))},
            "enforced mixed",
            "From your AS: mixed. 920 kbit/s of 1 000 kbit/s passed; 35 % of the traffic was dropped.",
        ),
        (
            "92 % of it, nothing dropped",
            {"passed": {"from_user": 92}, "dropped": {"from_user": 0}, "ap": (report(sent=150), report(received=92))},
            "enforced limited_elsewhere",
            "Your end sent 1 500 kbit/s, 920 kbit/s reached the attachment point, which dropped none.",
        ),
        (
            "lost behind the limit",
            {"user": (report(received=90), report(sent=150))},
            "limited_elsewhere enforced",
            "1 000 kbit/s left the attachment point, 900 kbit/s arrived.",
        ),
        (
            "half of it was other traffic: 50 of ours passed and arrived",
            {
                "passed": {"to_user": 100},
                "dropped": {"to_user": 100},
                "user": (report(received=51), report(sent=150)),
                "ap": (report(sent=150), ARRIVES_100),
            },
            "enforced enforced",
            "",
        ),
        (
            "too little sent",
            {
                "passed": {"to_user": 50},
                "dropped": {"to_user": 0},
                "ap": (report(sent=50), ARRIVES_100),
                "user": (report(received=50), report(sent=150)),
            },
            "not_enough enforced",
            "not enough was sent to tell: 500 kbit/s, where 1 000 kbit/s is the limit.",
        ),
        ("the class passes twice", {"passed": {"from_user": 200}}, "enforced over_the_limit", "over the limit"),
        (
            "received behind a class that counts little",
            {"passed": {"from_user": 0}, "dropped": {"from_user": 0}, "ap": (report(sent=150), report(received=150))},
            "enforced over_the_limit",
            "1 500 kbit/s passed where 1 000 kbit/s is the limit.",
        ),
        (
            "the class does not count what is sent",
            {"passed": {"to_user": 0}, "dropped": {"to_user": 0}},
            "no_result enforced",
            "the limiter counted",
        ),
        ("observed", {"in_force": False}, "no_result no_result", "the limit was not enforced then"),
        ("the user's end is silent, a full class says enough", {"user": (NOTHING, NOTHING)}, "enforced enforced", ""),
        (
            "the user's end is silent, and the class is not full",
            {"user": (NOTHING, NOTHING), "passed": {"from_user": 50}, "dropped": {"from_user": 0}},
            "enforced no_result",
            "From your AS: no result: the sending end did not report what it sent.",
        ),
        (
            "a client that claims more than passed does not raise an alarm, and is told",
            {"user": (report(received=150), report(sent=150))},
            "enforced enforced",
            "Your end reported more than the link passed; its figure is ignored.",
        ),
        (
            "a step of a timed limit in between is marked",
            {
                "limits": {0: LIMIT, 13: 2 * LIMIT},
                "passed": {"to_user": {0: 100, 13: 150}, "from_user": 200},
                "dropped": {"to_user": {0: 50, 13: 0}, "from_user": 50},
                "ap": (report(sent=150), report(received=200)),
                "user": (report(received=124), report(sent=250)),
            },
            "enforced enforced",
            "The limit changed meanwhile.",
        ),
    ],
)
def test_verdict_of_each_direction(
    subtests: pytest.Subtests, name: str, given: dict[str, Any], codes: str, text: str
) -> None:
    with case(subtests, name):
        found = judged(**given)
        told = found.text.replace("\N{NO-BREAK SPACE}", " ")
        assert (" ".join(side.code for side in found.sides), text in told) == (codes, True), told


MEANWHILE = "The limit changed meanwhile."


@pytest.mark.parametrize(
    ("name", "given", "codes", "text"),
    [
        (
            "raised after a sample: the second carries the new limit",
            {
                "limits": {0: LIMIT, 20: 3 * LIMIT},
                "passed": {"from_user": {0: 100, 19: 300}},
                "dropped": {"from_user": {0: 300, 19: 100}},
                "ap": (report(sent=150), report(received=236)),
                "user": (ARRIVES_100, report(sent=400)),
            },
            "enforced enforced",
            MEANWHILE,
        ),
        (
            "lowered after a sample",
            {
                "limits": {0: 3 * LIMIT, 20: LIMIT},
                "passed": {"from_user": {0: 300, 19: 100}},
                "dropped": {"to_user": 0, "from_user": {0: 100, 19: 300}},
                "ap": (report(sent=100), report(received=164)),
                "user": (ARRIVES_100, report(sent=400)),
            },
            "not_enough enforced",
            MEANWHILE,
        ),
        (
            "raised in time, and the sample is late",
            {
                "limits": {0: LIMIT, 22: 6 * LIMIT},
                "late": {22: 200},
                "passed": {"from_user": {0: 100, 22: 600}},
                "dropped": {"from_user": {0: 500, 22: 0}},
                "ap": (report(sent=150), report(received=140)),
                "user": (ARRIVES_100, report(sent=600)),
            },
            "enforced enforced",
            MEANWHILE,
        ),
        (
            "one limit was full, and too little was sent for the next one",
            {
                "limits": {0: LIMIT, 20: 3 * LIMIT},
                "passed": {"from_user": {0: 100, 20: 150}},
                "dropped": {"from_user": {0: 50, 20: 0}},
                "ap": (report(sent=150), report(received=124)),
            },
            "enforced enforced",
            MEANWHILE,
        ),
        (
            "the sender was stopped from 11 to 15 s",
            {
                "passed": {"to_user": {0: 100, 11: 0, 15: 100}},
                "dropped": {"to_user": {0: 50, 11: 0, 15: 50}},
                "ap": (report(sent=30), ARRIVES_100),
                "user": (report(received=20), report(sent=150)),
            },
            "not_enough enforced",
            "not enough was sent to tell: 300 kbit/s",
        ),
        (
            "the user's end was stopped 2.3 s after the first phase began",
            {
                "ap": (report(sent=150), NOTHING),
                "user": (report(received=77, seconds=3), NOTHING),
                "outcome": "cut",
            },
            "no_result no_result",
            "To your AS: no result: the test was cut short in this phase. From your AS: no result: it did not begin.",
        ),
        (
            "the user's end began 0.9 s later: an answer was lost three times",
            {
                "passed": {"from_user": {0: 0, 18: 70, 19: 100}},
                "dropped": {"from_user": {0: 0, 18: 35, 19: 50}},
                "ap": (
                    report(sent=150),
                    ARRIVES_100 | {"seconds": [[0, 0, one, one * PAYLOAD] for one in (10, 100, 100, 100, 100)]},
                ),
            },
            "enforced enforced",
            "",
        ),
        (
            "what arrived late in the first second counts in the next one",
            {
                "user": (
                    ARRIVES_100 | {"seconds": [[0, 0, one, one * PAYLOAD] for one in (50, 150, 100, 100, 100)]},
                    report(sent=150),
                ),
            },
            "enforced enforced",
            "To your AS: enforced. 1 000 kbit/s of 1 000 kbit/s passed;",
        ),
        (
            "1.3 times the limit passes",
            {
                "passed": dict.fromkeys(BEGAN, 130),
                "dropped": dict.fromkeys(BEGAN, 20),
                "ap": (report(sent=150), report(received=130)),
                "user": (report(received=130), report(sent=150)),
            },
            "over_the_limit over_the_limit",
            "1 300 kbit/s passed where 1 000 kbit/s is the limit.",
        ),
    ],
)
def test_verdict_where_limits_change_and_times_differ(
    subtests: pytest.Subtests, name: str, given: dict[str, Any], codes: str, text: str
) -> None:
    test_verdict_of_each_direction(subtests, name, given, codes, text)


@pytest.mark.parametrize(
    ("sent", "extra", "code"),
    [(130, 0, "enforced"), (130, 1, "over_the_limit"), (110, 56, "enforced"), (110, 57, "over_the_limit")],
)
def test_alarm_is_raised_above_what_a_limit_may_pass_and_not_before(sent: int, extra: int, code: str) -> None:
    """Four seconds: 500 000 bytes and 2 %, a bucket of 4000, a queue of 20 000 and a frame. If others send on the link
    as well, one of the largest datagrams, 70 000 bytes with all headers, which is admitted whole."""
    most = (500_000 * 102 // 100 + 4000 + 20_000 + FRAME) // FRAME
    rows = samples({"to_user": 0, "from_user": 100}, {"from_user": 50}, {0: LIMIT})
    for number, row in enumerate(rows):
        row[3][2] = min(max(number - 10, 0), 6) * (most + extra) * FRAME // 4
    whole = [{**one, "begins_at_ms": BEGAN[one["direction"]], **report(sent=sent)} for one in phases()]
    found = sending_verdict(phases(), rows, ap={**COMPLETED, "phases": whole}, user=None, is_ipv6=False)
    assert found.to_user.code == code


@pytest.mark.parametrize(("is_vpn", "code"), [(True, "enforced"), (False, "over_the_limit")])
def test_over_the_vpn_packets_are_counted_without_the_header_of_ethernet(is_vpn: bool, code: str) -> None:
    """Of 86 bytes then, of which the limit passes 1453 a second: small ones raised a false alarm."""
    small = [{**one, "payload_bytes": 58} for one in phases()]
    begun = [{**one, "begins_at_ms": BEGAN[one["direction"]]} for one in small]
    rows = samples(dict.fromkeys(BEGAN, 100), dict.fromkeys(BEGAN, 50), {0: LIMIT})
    ends = [
        {**COMPLETED, "phases": [{**one, **given} for one, given in zip(begun, both, strict=True)]}
        for both in ((report(sent=2200), report(received=1453)), (report(received=1453), report(sent=2200)))
    ]
    found = sending_verdict(small, rows, ap=ends[0], user=ends[1], is_ipv6=False, is_vpn=is_vpn)
    assert found.from_user.code == code


def test_a_stranger_of_the_class_is_seen_as_other_traffic() -> None:
    found = judged(passed={"to_user": 100}, dropped={"to_user": 75})
    assert found.to_user.steps[0].other_kbit == 250
    assert found.from_user.steps[0].other_kbit == 0


@pytest.mark.parametrize(
    ("lost", "mtu", "good", "text"),
    [
        (
            1,
            [1500, 1400],
            True,
            "19 of 20 packets came back, round trip 12.3 ms (median). Packets pass to your AS up to",
        ),
        (20, None, False, "do not reach each other: none of 20 packets came back"),
        (0, [1500, 0], True, "from it not even 576 bytes."),
    ],
)
def test_reach_has_no_load_and_answers_by_its_echo(lost: int, mtu: list[int] | None, good: bool, text: str) -> None:
    both = {"direction": "both", "payload_bytes": 64, "duration_ms": 2}
    planned = [
        {"number": 0, "kind": "echo", "kbit": 16, "count": 20, **both},
        {"number": 1, "kind": "mtu", "kbit": 99, "count": 0, **both},
    ]
    rtt = None if lost == 20 else [11_000, 12_300, 20_000]
    user = {
        **COMPLETED,
        "phases": [
            planned[0] | {"received_packets": 20 - lost, "rtt_us": rtt, "mtu": None},
            planned[1] | {"rtt_us": None, "mtu": mtu},
        ],
    }
    found = sending_verdict(planned, [], ap={**COMPLETED, "phases": []}, user=user, is_ipv6=False)
    assert (found.is_good, text in found.text) == (good, True), found.text


def test_what_fills_the_queue_and_what_drains_after_the_phase_is_no_rate() -> None:
    rows = [[0, 0, packets, 0] for packets in (150, 100, 101, 99, 50)]
    user = {"seconds": rows, "received_packets": 500}
    planned = {"kind": "stream", "duration_ms": 4000, "number": 0, "payload_bytes": 958}
    found = Evidence(direction="to_user", planned=planned, version=4, intervals=(), ap=None, user=user)
    assert (found.received_kbit, found.received_bytes()) == (800, 500_000)
    assert Evidence("to_user", planned, 4, (), None, {"seconds": [], "received_packets": 0}).received_kbit is None


def test_limit_that_is_another_one_at_the_edges_of_a_phase_is_no_fault() -> None:
    """The ends count the parts of a second at the edges too: what they count is compared with the limits there."""
    higher = {0: LIMIT, 17: 3 * LIMIT, 18: LIMIT, 22: 3 * LIMIT, 23: LIMIT}
    more = (report(sent=150), report(received=140))  # 0.6 s and 0.4 s at three times the limit: 1.4 times in all
    assert judged(limits=higher, ap=more).from_user.code == "enforced"
    assert judged(ap=more).from_user.code == "over_the_limit"
    lower = {0: LIMIT, 10: LIMIT // 10, 11: LIMIT, 15: LIMIT // 10, 16: LIMIT}
    less = (report(received=82), report(sent=150))
    passed, dropped = {"to_user": {0: 10, 11: 100, 15: 10}}, {"to_user": {0: 140, 11: 50, 15: 140}}
    assert judged(limits=lower, passed=passed, dropped=dropped, user=less).to_user.code == "enforced"
    assert judged(user=less).to_user.code == "limited_elsewhere"
