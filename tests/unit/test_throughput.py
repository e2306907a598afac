"""What a limit counts, and what it makes of a measurement: to the byte."""

from __future__ import annotations

import pytest

from bandwidth_config import RuleError
from scionlab.links.framing import Framing
from scionlab.links.measured import Measured, check_measured
from scionlab.links.throughput import Step, tenths
from scionlab.pages.why import bars_of

IPV4, IPV6, VPN = Framing(4, False, 1472), Framing(6, False, 1472), Framing(4, True, 1472)


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    ("framing", "headers", "largest", "heartbeat"), [(IPV4, 42, 1472, 134), (IPV6, 62, 1452, 178), (VPN, 28, 1472, 120)]
)
def test_headers_and_heartbeats_are_those_of_the_underlay(
    framing: Framing, headers: int, largest: int, heartbeat: int
) -> None:
    """134 and 178 bytes are those of `bandwidth_config.HEARTBEAT_MINIMUM_KBIT`."""
    assert (framing.header_bytes, framing.largest_bytes, framing.heartbeat_bytes) == (headers, largest, heartbeat)
    assert framing.heartbeat_kbit == pytest.approx((heartbeat * 8 / 200, heartbeat * 8 / 150))


def test_a_throughput_of_small_packets_is_explained_to_the_byte() -> None:
    found = Measured(413, 200, 0, 500, IPV4)
    assert found.parts == [("What you measured", 200), ("UDP", 8), ("IPv4", 20), ("Ethernet", 14)]
    assert found.counted_bytes == 242
    assert found.code == "limit"
    assert plain(found.text) == (
        "This is the limit: 413 kbit/s in packets of 200 bytes are 499.7 kbit/s as the limit counts, > 99 % of the "
        "limit of 500.0 kbit/s."
    )
    assert [plain(tenths(one)) for one in found.most_kbit] == ["407.3 kbit/s", "413.2 kbit/s"]
    assert found.packets_per_s == pytest.approx(258.125)


@pytest.mark.parametrize(
    ("kbit", "limit", "code", "words"),
    [
        (413, None, "unknown", "No limit is known to be in force"),
        (413, 0, "blocked", "The limit is 0"),
        (393, 500, "limit", "This is the limit"),
        (392, 500, "below", "Not this limit alone: 392 kbit/s in packets of 200 bytes are 474.3 kbit/s"),
        (417, 500, "limit", "This is the limit"),
        (418, 500, "above", "More than the limit allows"),
    ],
)
def test_the_limit_explains_what_is_at_least_95_percent_of_it(
    kbit: int, limit: int | None, code: str, words: str
) -> None:
    found = Measured(kbit, 200, 0, limit, IPV4)
    assert found.code == code
    assert plain(found.text).startswith(words)


def test_headers_that_nobody_entered_are_found_where_they_are_possible() -> None:
    """1000 bytes of payload, 80 of SCION: 1122 are counted."""
    entered, not_entered = Measured(445, 1000, 80, 500, IPV4), Measured(445, 1000, 0, 500, IPV4)
    assert (entered.code, entered.missing_bytes) == ("limit", None)
    assert (not_entered.code, not_entered.missing_bytes) == ("below", 82)
    assert "It would be the limit with 82 more bytes of headers in each packet." in not_entered.text
    assert Measured(100, 1000, 0, 500, IPV4).missing_bytes is None  # such a packet does not fit the Link


@pytest.mark.parametrize("sizes", [(35, 0), (1473, 0), (1393, 80)])
def test_only_packets_that_fit_one_frame_are_explained(sizes: tuple[int, int]) -> None:
    with pytest.raises(RuleError) as caught:
        check_measured(*sizes, IPV4)
    assert caught.value.code == "packet_size"
    assert "1\N{NO-BREAK SPACE}472" in caught.value.message
    check_measured(1392, 80, IPV4)


def test_nothing_is_drawn_of_what_is_not_known() -> None:
    steps = [Step("a", 1000, ""), Step("b", 500, ""), Step("c", None, ""), Step("d", 400, "")]
    assert [(bar.left, bar.lost) for bar in bars_of(steps)] == [
        ("1000.0", "0.0"), ("500.0", "500.0"), ("", ""), ("400.0", "100.0")
    ]  # fmt: skip
    assert [(bar.left, bar.lost) for bar in bars_of([Step("a", 0, "")])] == [("0.0", "0.0")]
