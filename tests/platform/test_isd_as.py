"""ISD-AS numbers: hexadecimal groups, read in either case, written in one way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bandwidth_config import RuleError
from scionlab.platform.notation.isd_as import (
    FIRST_USER_AS_ID,
    LAST_USER_AS_ID,
    MAX_AS_ID,
    file_name_part,
    format_as_id,
    format_isd_as,
    parse_as_id,
    parse_isd_as,
)


@pytest.mark.parametrize(
    ("text", "as_id"),
    [
        ("ffaa:1:b6", 0xFFAA_0001_00B6),
        ("ffaa:0001:00b6", 0xFFAA_0001_00B6),
        ("0:0:1", 1),
        ("ffff:ffff:ffff", MAX_AS_ID),
        ("ffaa:1:10", 0xFFAA_0001_0010),  # sixteen, not ten
    ],
)
def test_an_as_id_is_read_as_hexadecimal_groups(text: str, as_id: int) -> None:
    assert parse_as_id(text) == as_id


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ffaa:1:b6:1",
        "ffaa::b6",
        "ffaa:1:",
        "ffaa:1:10000",  # five digits
        "ffaa:1:g",
        "ffaa:0x1:b6",
        "281105609527478",  # the same number in decimal
        "ffaa:1:\N{ARABIC-INDIC DIGIT ONE}",
        "f" * 5000,
    ],
)
def test_what_is_no_as_id_is_refused_with_the_remedy(text: str) -> None:
    with pytest.raises(RuleError) as refused:
        parse_as_id(text)
    assert refused.value.code == "as_id_invalid"
    assert refused.value.message.endswith(
        'is not an AS id. Write three groups of 1 to 4 hexadecimal digits, like "ffaa:1:b6".'
    )
    assert len(refused.value.message) < 160, "a long input is not thrown back"


def test_numbers_are_written_in_lower_case_without_leading_zeros() -> None:
    written = {0: "0:0:0", FIRST_USER_AS_ID: "ffaa:1:1", LAST_USER_AS_ID: "ffaa:1:ffff", MAX_AS_ID: "ffff:ffff:ffff"}
    assert {as_id: format_as_id(as_id) for as_id in written} == written
    assert format_isd_as(17, 0xFFAA_0001_00B6) == "17-ffaa:1:b6"
    assert file_name_part("17-ffaa:1:b6") == "17-ffaa_1_b6"


@pytest.mark.parametrize("as_id", [-1, 2**48])
def test_a_number_beyond_48_bits_is_refused(as_id: int) -> None:
    with pytest.raises(RuleError) as refused:
        format_as_id(as_id)
    assert refused.value.code == "as_id_range"


@given(st.integers(1, MAX_AS_ID))
def test_reading_what_was_written_gives_the_same_number(as_id: int) -> None:
    assert parse_as_id(format_as_id(as_id)) == as_id
    assert parse_as_id(format_as_id(as_id).upper()) == as_id


@pytest.mark.parametrize(
    ("text", "isd_as"),
    [
        ("17-ffaa:1:b6", (17, 0xFFAA_0001_00B6)),
        ("17-ffaa_1_b6", (17, 0xFFAA_0001_00B6)),
        ("65535-ffff:ffff:ffff", (65535, MAX_AS_ID)),
    ],
)
def test_an_isd_as_is_read_also_as_file_names_have_it(text: str, isd_as: tuple[int, int]) -> None:
    assert parse_isd_as(text) == isd_as


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("ffaa:1:b6", "isd_as_invalid"),
        ("0-ffaa:1:b6", "isd_as_invalid"),
        ("65536-ffaa:1:b6", "isd_as_invalid"),
        ("017-ffaa:1:b6", "isd_as_invalid"),
        ("17-", "as_id_invalid"),
        ("", "isd_as_invalid"),
    ],
)
def test_what_is_no_isd_as_is_refused(text: str, code: str) -> None:
    with pytest.raises(RuleError) as refused:
        parse_isd_as(text)
    assert refused.value.code == code


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused_by_name(text: str) -> None:
    try:
        isd, as_id = parse_isd_as(text)
    except RuleError as exc:
        code = exc.code
    else:
        assert 1 <= isd <= 65535
        assert 0 <= as_id <= MAX_AS_ID
        return
    assert code in {"isd_as_invalid", "as_id_invalid"}


@pytest.mark.parametrize("text", ["0:0:0", "0000:0:0000", "17-0:0:0", "17-0_0_0"])
def test_as_0_is_nobodys(text: str) -> None:
    with pytest.raises(RuleError) as refused:
        parse_isd_as(text) if "-" in text else parse_as_id(text)
    assert refused.value.code == "as_id_zero"
    assert refused.value.message == (
        'AS id 0:0:0 is reserved: it means any AS. Write three groups of 1 to 4 hexadecimal digits, like "ffaa:1:b6".'
    )
