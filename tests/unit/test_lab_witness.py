"""The text of tc, as iproute2 6.1 on kernel 6.18 prints it, is read right."""

from __future__ import annotations

import pytest

from lab.witness import HtbClass, parse_classes
from measuring.iproute import LabError

CLASSES = """\
class htb 1:1010 parent 1:10 leaf 1010: prio 1 quantum 1514 rate 500Kbit ceil 10500Kbit linklayer ethernet \
burst 5000b/1 mpu 0b cburst 4Kb/1 mpu 0b level 0
 Sent 3824703 bytes 2531 pkt (dropped 17, overlimits 9 requeues 0)
 backlog 1514b 1p requeues 0
 lended: 0 borrowed: 0 giants: 0
 tokens: 1250000 ctokens: 500

class htb 1:10 root rate 10500Kbit ceil 10500Kbit linklayer ethernet burst 499999b/1 mpu 0b cburst 499999b/1 \
mpu 0b level 7
 Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0)
 backlog 0b 0p requeues 0
 lended: 0 borrowed: 0 giants: 0
 tokens: 5952375 ctokens: 5952375

"""


def test_classes_are_read_with_rates_and_counters() -> None:
    found = parse_classes(CLASSES, "eth0")
    assert set(found) == {"1:1010", "1:10"}
    assert found["1:1010"] == HtbClass(
        dev="eth0",
        classid="1:1010",
        parent="1:10",
        leaf="1010:",
        prio=1,
        rate_bits=500_000,
        ceil_bits=10_500_000,
        burst_bytes=5000,
        cburst_bytes=4096,
        sent_bytes=3_824_703,
        sent_packets=2531,
        drops=17,
        backlog_bytes=1514,
    )
    assert found["1:10"].parent is None
    assert found["1:10"].leaf is None
    assert found["1:10"].prio is None


def test_no_classes_are_an_empty_answer() -> None:
    assert parse_classes("", "eth0") == {}


def test_classes_of_another_kind_are_passed_over() -> None:
    assert parse_classes("class fq_codel 8001:1 parent 8001: \n", "eth0") == {}


@pytest.mark.parametrize("text", ["hello", "class htb 1:1 root rate 1Mbit ceil 1Mbit"])
def test_what_is_not_understood_is_an_error(text: str) -> None:
    with pytest.raises(LabError, match="tc class show"):
        parse_classes(text, "eth0")
