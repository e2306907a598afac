"""What people write for a bandwidth, and what is understood: exactly, or not at all."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bandwidth_config import Limits, RuleError, format_exact_kbit, format_kbit
from scionlab.platform.notation.bandwidth import limits_warning, parse_bandwidth_text

NB = "\N{NO-BREAK SPACE}"
UNDERSTOOD = {
    "500": 500,
    "500 kbit/s": 500,
    "1.5M": 1_500,
    "10Mbps": 10_000,
    "10 Mb/s": 10_000,
    "2G": 2_000_000,
    "0.1T": 100_000_000,
    "64000 bit/s": 64,
    "120 000": 120_000,
    f"120{NB}000{NB}kbit/s": 120_000,
    "1.1M": 1_100,  # 1.1 * 1000 is 1100.0000000000002 in floating point
    " 0 ": 0,
    "-1": -1,
    "-1M": -1_000,
}
REFUSED = {
    "": ("bandwidth_required", "A bandwidth is missing."),
    "fast": ("bandwidth_invalid", "is not a whole number of kbit/s"),
    "1.5": ("bandwidth_invalid", '"1.5" is not a whole number of kbit/s.'),
    "1e3": ("bandwidth_invalid", "is not a whole number"),
    "\u0663\u0660\u0660": ("bandwidth_invalid", "is not a whole number"),
    "12 34": ("bandwidth_invalid", "is not a whole number"),
    "500 b": ("bandwidth_invalid", "is not a whole number"),
    "1.0005M": (
        "bandwidth_not_whole",
        f"is 1000.5{NB}kbit/s, which is not a whole number of kbit/s. Enter 1{NB}000 or",
    ),
    "500 bit/s": ("bandwidth_not_whole", "Enter 1."),
    "1,5M": ("bandwidth_ambiguous", "Enter 1.5 Mbit/s or 15 Mbit/s."),
    "1,500": ("bandwidth_ambiguous", "Enter 1500 kbit/s."),
    "1,000,000": ("bandwidth_ambiguous", "Enter 1000000 kbit/s."),
    "10 MB/s": ("bandwidth_ambiguous", "Enter 80 Mbit/s instead, or 10 Mbit/s if you meant bits."),
    "1.5 kB": ("bandwidth_ambiguous", "Enter 12 kbit/s instead, or a whole number of kbit/s if you"),
    "1 Mibit/s": ("bandwidth_ambiguous", "Enter 1 Mbit/s, or the exact number of kbit/s."),
    "9" * 60: ("bandwidth_too_high", "A bandwidth of 60 digits"),
}


@pytest.mark.parametrize("text", UNDERSTOOD)
def test_what_people_write_is_understood(text: str) -> None:
    assert parse_bandwidth_text(text) == UNDERSTOOD[text]


@pytest.mark.parametrize("text", REFUSED)
def test_what_has_no_reading_or_several_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(RuleError) as refused:
        parse_bandwidth_text(text)
    assert refused.value.code == REFUSED[text][0]
    assert REFUSED[text][1] in refused.value.message


@pytest.mark.parametrize("text", [text for text, (code, _) in REFUSED.items() if code == "bandwidth_ambiguous"])
def test_what_it_says_to_write_is_understood_in_turn(text: str) -> None:
    with pytest.raises(RuleError) as refused:
        parse_bandwidth_text(text)
    written = re.findall(r"[0-9.]+ [kMG]?bit/s", refused.value.message.split("Enter ")[1])
    assert written
    assert all(isinstance(parse_bandwidth_text(one), int) for one in written)


@given(st.integers(-(10**8), 10**8), st.sampled_from([("k", 0), ("M", 3), ("g", 6), ("T", 9)]), st.integers(0, 6))
def test_every_decimal_is_exact_or_refused(digits: int, unit: tuple[str, int], places: int) -> None:
    number = Decimal(digits).scaleb(-places)
    kbit = number.scaleb(unit[1])
    if kbit == kbit.to_integral_value():
        assert parse_bandwidth_text(f"{number:f}{unit[0]}") == int(kbit)
    else:
        with pytest.raises(RuleError, match="not a whole number"):
            parse_bandwidth_text(f"{number:f}{unit[0]}")


@given(st.text(max_size=60) | st.from_regex(r"[-0-9., ]{0,12}[a-zA-Z/]{0,8}"))
def test_any_text_is_a_whole_number_or_a_rule_error(text: str) -> None:
    try:
        assert isinstance(parse_bandwidth_text(text), int)
    except RuleError as exc:
        if not exc.code.startswith("bandwidth_"):
            raise


@given(st.integers(0, 10**8))
def test_what_our_pages_write_can_be_written_back(kbit: int) -> None:
    assert parse_bandwidth_text(format_kbit(kbit)) == kbit
    assert parse_bandwidth_text(format_exact_kbit(kbit)) == kbit


def test_surprising_limits_are_warned_of() -> None:
    def warning(kbit: int) -> str:
        return (limits_warning(Limits.both(kbit)) or "").replace("\N{NO-BREAK SPACE}", " ")

    assert warning(0) == "0 blocks the link: nothing passes in either direction."
    assert warning(1) == warning(31)
    assert warning(31).startswith("Below 32 kbit/s SCION's heartbeats may not fit, so")
    assert warning(32) == warning(47)
    assert warning(47).startswith("Below 48 kbit/s SCION finds no new paths over this link.")
    assert warning(48) == ""


def test_each_surprising_direction_is_warned_of_by_itself() -> None:
    assert limits_warning(Limits(1000, 48)) is None
    first, second = (limits_warning(limits) or "" for limits in (Limits(0, 1000), Limits(1000, 32)))
    assert first.startswith("0 blocks the direction to the user AS. SCION's heartbeats")
    assert second.startswith("Below 48\N{NO-BREAK SPACE}kbit/s from the user AS SCION finds no new paths")
    assert limits_warning(Limits(0, 32)) == f"{first} {second}"
