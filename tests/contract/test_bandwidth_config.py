"""The bandwidth domain: numbers, addresses, and the link_info document both ways."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bandwidth_config import (
    MAX_BANDWIDTH_KBIT,
    Limits,
    LinkStep,
    RuleError,
    check_bandwidth,
    check_change,
    check_total,
    default_in_force,
    format_kbit,
    format_number,
    parse_bandwidth,
)
from contract.link_rules import (
    bind_ip_for,
    check_bind_address,
    check_internal_address,
    check_port,
    check_steps,
    check_underlay_address,
    parse_ip,
    with_exception,
)
from tests.rule_samples import NOBODYS, code_of, outcome

NB = "\N{NO-BREAK SPACE}"


# --- units and display --------------------------------------------------------------------------------------------


def test_thousands_are_set_apart_without_a_line_break() -> None:
    assert format_number(999) == "999"
    assert format_number(120_000) == f"120{NB}000"
    assert format_number(MAX_BANDWIDTH_KBIT) == f"100{NB}000{NB}000"
    assert format_kbit(0) == f"0{NB}kbit/s"


@pytest.mark.parametrize(
    ("kbit", "text"),
    [
        (9_999, f"9{NB}999{NB}kbit/s"),
        (10_000, f"10{NB}Mbit/s"),
        (10_001, f"10.001{NB}Mbit/s"),
        (12_500, f"12.5{NB}Mbit/s"),
        (100_000, f"100{NB}Mbit/s"),
    ],
)
def test_from_10_000_kbit_on_bandwidths_are_in_mbit(kbit: int, text: str) -> None:
    assert format_kbit(kbit) == text


# --- a number that somebody wrote ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "kbit"),
    [
        *[(" 500 ", 500), ("-0", 0), (500, 500), ("-1", -1), (-1, -1)],
        ("00000000000000000007", 7),  # 20 digits
    ],
)
def test_plain_digits_are_a_bandwidth(written: object, kbit: int) -> None:
    """Bounds are checked elsewhere."""
    assert parse_bandwidth(written) == kbit


@pytest.mark.parametrize("written", ["", None])
def test_nothing_is_not_0(written: object) -> None:
    with pytest.raises(RuleError) as refused:
        parse_bandwidth(written)
    assert refused.value.code == "bandwidth_required"
    assert refused.value.message == "A bandwidth is missing. Enter a whole number of kbit/s, for example 500."


@pytest.mark.parametrize("written", ["1.5", "+5", "1 000", "   ", "5k", "\N{ARABIC-INDIC DIGIT FIVE}", True, 1.0])
def test_what_has_several_readings_is_not_guessed(written: object) -> None:
    assert code_of(lambda: parse_bandwidth(written)) == "bandwidth_invalid"


@pytest.mark.parametrize("digits", [21, 400, 100_000])
def test_more_digits_than_any_number_has_are_refused_before_they_cost_anything(digits: int) -> None:
    with pytest.raises(RuleError) as refused:
        parse_bandwidth("9" * digits)
    assert refused.value.code == "bandwidth_too_high"
    assert len(refused.value.message) < 200


def test_a_long_input_is_not_thrown_back() -> None:
    with pytest.raises(RuleError) as refused:
        parse_bandwidth("x" * 5000)
    assert refused.value.message == (
        '"' + "x" * 37 + '..." is not a whole number of kbit/s. Enter a whole number of kbit/s, for example 500.'
    )


@given(st.text(max_size=25))
def test_any_text_is_a_number_or_a_named_error(text: str) -> None:
    found = outcome(lambda: parse_bandwidth(text))
    if isinstance(found, RuleError):
        assert found.code in {"bandwidth_required", "bandwidth_invalid", "bandwidth_too_high"}
    else:
        assert found == int(text)


# --- bounds -------------------------------------------------------------------------------------------------------


def test_the_bounds_belong_to_the_range() -> None:
    check_bandwidth(0, 1000)
    check_bandwidth(1000, 1000)
    check_bandwidth(0, 0)
    check_bandwidth(MAX_BANDWIDTH_KBIT)


@pytest.mark.parametrize(
    ("kbit", "maximum", "code"),
    [
        (-1, 1000, "bandwidth_negative"),
        (1001, 1000, "bandwidth_too_high"),
        (1, 0, "bandwidth_too_high"),
        (100_000_001, 100_000_000, "bandwidth_too_high"),
    ],
)
def test_what_is_outside_is_refused(kbit: int, maximum: int, code: str) -> None:
    assert code_of(lambda: check_bandwidth(kbit, maximum)) == code


def test_the_sentence_has_the_value_the_limit_and_the_remedy() -> None:
    with pytest.raises(RuleError) as refused:
        check_bandwidth(120_000, 100_000)
    assert refused.value.message.replace(NB, " ") == (
        "Bandwidth 120 000 kbit/s is above this link's maximum of 100 000 kbit/s. Choose at most 100 "
        "000, or ask the administrators to raise it."
    )
    with pytest.raises(RuleError) as refused:
        check_bandwidth(100_000_001)
    assert refused.value.message.replace(NB, " ") == (
        "Bandwidth 100 000 001 kbit/s is above the greatest possible bandwidth of 100 000 000 kbit/s. Choose at most "
        "100 000 000."
    )


@pytest.mark.parametrize(("site", "ap", "x"), [(1000, None, 1000), (1000, 500, 500), (1000, 5000, 5000), (1000, 0, 0)])
def test_an_attachment_points_own_default_counts_even_when_it_is_0(site: int, ap: int | None, x: int) -> None:
    assert default_in_force(site, ap) == x


@pytest.mark.parametrize(
    ("requested", "maximum", "enforced"),
    [(500, 1000, 500), (1000, 1000, 1000), (2000, 1000, 1000), (0, 1000, 0), (5, 0, 0)],
)
def test_the_choice_is_clamped(requested: int, maximum: int, enforced: int) -> None:
    assert Limits.both(requested).clamped(maximum) == Limits.both(enforced)


@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [
        (None, Limits(1000, 1000), []),
        (None, Limits(1001, 1001), ["to_user_kbit"]),
        (None, Limits(-1, 1001), ["to_user_kbit", "from_user_kbit"]),
        (Limits(2000, 2000), Limits(2000, 2000), []),  # stored, and clamped by now
        (Limits(2000, 2000), Limits(2000, 1001), ["from_user_kbit"]),
        (Limits(2000, 3000), Limits(3000, 3000), ["to_user_kbit"]),
    ],
)
def test_what_is_stored_may_stay_and_what_is_new_is_at_most_the_maximum(
    old: Limits | None, new: Limits, refused: list[str]
) -> None:
    assert list(check_change(old, new, 1000)) == refused


@pytest.mark.parametrize(("limits", "stored"), [(Limits(5, 5), (5, None)), (Limits(5, 0), (5, 0))])
def test_two_columns_hold_a_pair_of_limits(limits: Limits, stored: tuple[int, int | None]) -> None:
    assert limits.to_columns() == stored
    assert Limits.of_columns(*stored) == limits


def test_a_total_is_a_bandwidth_above_0() -> None:
    for total in (1, MAX_BANDWIDTH_KBIT):
        check_total(total)
    for total in (0, -1, MAX_BANDWIDTH_KBIT + 1):
        assert code_of(partial(check_total, total)) == "total_range"


# --- addresses and ports ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["192.0.2.7", "2001:db8::7", "10.1.2.3", "fe80::20c:29ff:fe08:993c", "100.64.0.1"])
def test_addresses_that_a_host_can_have(text: str) -> None:
    assert check_underlay_address(text) == ipaddress.ip_address(text)
    assert check_bind_address(text) == ipaddress.ip_address(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "192.0.2.07",
        "192.0.2.7:50000",
        "2001:db8::7%eth0",
        " 192.0.2.7",
        "\N{FULLWIDTH DIGIT ONE}0.0.0.1",
        None,
        3221225991,  # ipaddress would read a number as one
        b"\xc0\x00\x02\x07",  # and four bytes
        "1" * 5000,
    ],
)
def test_what_is_no_address_is_refused(text: object) -> None:
    with pytest.raises(RuleError) as refused:
        parse_ip(text)
    assert refused.value.code == "address_invalid"
    assert refused.value.message.endswith(
        "is not an IP address. Enter one like 192.0.2.7 or 2001:db8::7, without a port."
    )
    assert len(refused.value.message) < 200
    assert code_of(lambda: check_underlay_address(text)) == "address_invalid"
    assert code_of(lambda: check_bind_address(text)) == "address_invalid"


@pytest.mark.parametrize("text", NOBODYS)
def test_addresses_that_no_other_host_has_are_refused(text: str) -> None:
    for rule in (check_underlay_address, check_bind_address, partial(check_internal_address, alone=False)):
        with pytest.raises(RuleError) as refused:
            rule(text)
        assert refused.value.code == "address_refused"
        assert f"is {NOBODYS[text]};" in refused.value.message


def test_a_host_that_is_alone_in_its_as_may_have_a_loopback_address() -> None:
    assert check_internal_address("127.0.0.1", alone=True) == ipaddress.ip_address("127.0.0.1")
    assert code_of(lambda: check_internal_address("224.0.0.1", alone=True)) == "address_refused"


def test_the_attachment_points_own_address_is_refused_however_it_is_written() -> None:
    own = ["192.0.2.1", "2001:db8::1"]
    assert code_of(lambda: check_underlay_address("192.0.2.1", own=own)) == "address_own"
    assert code_of(lambda: check_underlay_address("2001:DB8:0:0:0:0:0:1", own=own)) == "address_own"
    check_underlay_address("192.0.2.2", own=own)


def test_the_family_is_the_one_of_the_other_end() -> None:
    assert code_of(lambda: check_underlay_address("192.0.2.7", family=6)) == "address_family"
    assert code_of(lambda: check_underlay_address("2001:db8::7", family=4)) == "address_family"
    assert code_of(lambda: check_bind_address("2001:db8::7", family=4)) == "address_family"
    check_underlay_address("192.0.2.7", family=4)
    check_bind_address("2001:db8::7", family=6)


@pytest.mark.parametrize(
    "text", ["10.0.0.1", "192.168.0.1", "192.0.2.7", "100.64.0.1", "169.254.1.1", "fe80::1", "fd00::1", "2001:db8::7"]
)
def test_in_production_only_addresses_of_the_internet_count(text: str) -> None:
    check_underlay_address(text)
    assert code_of(lambda: check_underlay_address(text, global_only=True)) == "address_not_global"


def test_an_address_of_the_internet_passes_in_production() -> None:
    assert str(check_underlay_address("193.0.14.129", global_only=True)) == "193.0.14.129"
    assert str(check_underlay_address("2001:7fd::1", global_only=True)) == "2001:7fd::1"


@pytest.mark.parametrize("port", [1024, 50_000, 65_535])
def test_ports_that_may_be_used(port: int) -> None:
    check_port(port)


@pytest.mark.parametrize("port", [-1, 1023, 65_536])
def test_other_ports_are_refused(port: int) -> None:
    with pytest.raises(RuleError) as refused:
        check_port(port)
    assert refused.value.code == "port_range"
    assert refused.value.message == (
        f"Port {port} is outside 1024 to 65535. Choose a port in that range, for example 50000."
    )


@pytest.mark.parametrize(
    ("maximum", "exception", "of_the_link"),
    [(1000, None, 1000), (1000, 2000, 2000), (1000, 500, 1000), (0, None, 0), (0, 0, 0), (0, 64, 64)],
)
def test_an_exception_raises_a_maximum_and_never_lowers_it(
    maximum: int, exception: int | None, of_the_link: int
) -> None:
    assert with_exception(maximum, exception) == of_the_link


@pytest.mark.parametrize(
    ("public", "bind", "bound"),
    [
        ("192.0.2.7", None, None),
        ("192.0.2.7", "10.0.0.7", "10.0.0.7"),
        ("2001:db8::7", "10.0.0.7", None),
        ("2001:db8::7", "fd00::7", "fd00::7"),
    ],
)
def test_a_bind_address_is_of_the_family_of_the_public_one(public: str, bind: str | None, bound: str | None) -> None:
    assert bind_ip_for(public, bind) == bound


def steps(*offsets: int) -> list[LinkStep]:
    return [LinkStep(one, Limits(1, 1)) for one in offsets]


@pytest.mark.parametrize(
    ("refused", "code", "message"),
    [
        (lambda: check_steps([], 9), "timed_steps", "0 steps are not between 1 and 200. Choose fewer, longer steps."),
        (lambda: check_steps(steps(*range(201)), 900), "timed_steps", "201 steps are not between 1 and 200."),
        (lambda: check_steps(steps(1), 9), "timed_steps", "The first step begins after 1 s. Begin with a step at 0 s."),
        (lambda: check_steps(steps(0, 9), 9), "timed_step_short", "A step of 0 s is shorter than 1 s. Every step must"),
        (
            lambda: check_steps(steps(0), 2_592_001),
            "timed_long",
            f"2{NB}592{NB}001 s exceed the 30 days that a temporary limit may last. Choose an earlier end, or change",
        ),
        (lambda: parse_ip("x" * 60), "address_invalid", f'"{"x" * 60}" is not an IP address. Enter one like 192.0.2.7'),
        (lambda: parse_ip("x" * 61), "address_invalid", f'"{"x" * 57}..." is not an IP address.'),
    ],
)
def test_what_is_refused_is_named_with_its_value_bound_and_remedy(
    refused: Callable[[], object], code: str, message: str
) -> None:
    with pytest.raises(RuleError) as found:
        refused()
    assert found.value.code == code
    assert found.value.message.startswith(message)


def test_a_temporary_limit_has_200_steps_of_a_second_or_more_in_30_days() -> None:
    check_steps(steps(*range(200)), 200)
    check_steps(steps(0), 2_592_000)
