"""Samples and small helpers for tests of the domain's rules."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bandwidth_config import RuleError

# Addresses under which no other host can be, and what each is.
NOBODYS = {
    "127.0.0.1": "a loopback address",
    "127.9.9.9": "a loopback address",
    "::1": "a loopback address",
    "0.0.0.0": "the unspecified address",
    "::": "the unspecified address",
    "224.0.0.1": "a multicast address",
    "239.255.255.255": "a multicast address",
    "ff02::1": "a multicast address",
    "255.255.255.255": "the broadcast address",
    "0.1.2.3": "a reserved address",
    "240.0.0.1": "a reserved address",
    "::ffff:192.0.2.7": "an IPv4 address written as IPv6",
    "::ffff:127.0.0.1": "an IPv4 address written as IPv6",
}


def code_of(rule: Callable[[], object]) -> str:
    with pytest.raises(RuleError) as refused:
        rule()
    assert str(refused.value.message).endswith("."), "one sentence or more"
    return refused.value.code


def outcome(rule: Callable[[], object]) -> object:
    """The value, or the error itself."""
    try:
        return rule()
    except RuleError as exc:
        return exc
