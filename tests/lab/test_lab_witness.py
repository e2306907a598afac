"""The text of tc, as iproute2 6.1 on kernel 6.18 prints it, is read right."""

from __future__ import annotations

import pytest

from lab.witness import HtbClass, parse_classes
from measuring.iproute import LabError

CLASSES = """\
class htb 1:1010 parent 1:10 leaf 1010: prio 1 quantum 1514 rate 500Kbit ceil 10500Kbit linklayer ethernet \
burst 5000b/1 mpu 0b cburst 4Kb/1 mpu 0b level 0
 Sent 3824703 bytes 2531 pkt (dropped 17, overlimits 9 requeues 0)
 backlog 2Kb 1p requeues 0

class fq_codel 8001:1 parent 8001:
class htb 1:10 root rate 10500Kbit ceil 10500Kbit burst 499999b/1 mpu 0b cburst 499999b/1 level 7
 Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0)
 backlog 0b 0p requeues 0
"""


def test_htb_classes_are_read_with_rates_and_counters() -> None:
    assert parse_classes(CLASSES) == {
        "1:1010": HtbClass(500_000, 3_824_703, 17, 2048),
        "1:10": HtbClass(10_500_000, 0, 0, 0),
    }
    assert parse_classes("") == {}


@pytest.mark.parametrize("text", ["hello", "class htb 1:1 root rate 1Mbit ceil 1Mbit"])
def test_what_is_not_understood_is_an_error(text: str) -> None:
    with pytest.raises(LabError, match="tc class show"):
        parse_classes(text)
