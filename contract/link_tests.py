"""Tests of a Link: rules, writer and reader of the key `Tests` of link_info.json.

A test is a statement of the signed document, like a timed limit: its kind and its time. A `watch` only reads the Link's
class each second, without a port or a far end. A `udp` test also sends, from the attachment point's test port and from
the user's end, as traffic of the Link's class; a `tcp` test also has TCP connections to that port. Uses the standard
library and the other rules; both programs import it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from bandwidth_config import TESTS_KEY, RuleError, time_text
from contract.link_rules import read_time

WATCH, UDP, TCP = "watch", "udp", "tcp"
SENDING_KINDS = frozenset({UDP, TCP})
KINDS = SENDING_KINDS | {WATCH}  # others are ignored: they are for newer agents

MIN_WATCH_S, MAX_WATCH_S = 5, 600
MAX_TESTS_PER_LINK = 8  # in one document: not ended yet
MAX_WATCHES_AT_ONCE = 16  # at one attachment point: its limiter appends as many series of samples
MAX_AHEAD_S = 30 * 24 * 3600
ARMED_AHEAD_S = 30  # so long before a test that sends the attachment point has its port open

FIRST_TEST_PORT = 30300  # of the attachment point, for lane 0; outside SCION's 30000-30255 (docs/agent.md)
TEST_LANES = 4  # concurrent tests that send at one attachment point, each with its own port
# Upper bounds for any policy. 60 s at 1 Gbit/s would be 7.5 GB: fast tests are shorter.
MAX_TEST_S, MAX_TEST_KBIT, MAX_TEST_BYTES = 60, 1_000_000, 2_000_000_000

_BOUNDS = {
    "Port": (FIRST_TEST_PORT, FIRST_TEST_PORT + TEST_LANES - 1),
    "Kbit": (1, MAX_TEST_KBIT),
    "Bytes": (1, MAX_TEST_BYTES),
}
_SECOND = timedelta(seconds=1)
_ID = re.compile(r"[0-9a-f]{32}", flags=re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class LinkTest:
    """One test of a Link, from `begins_at` until `ends_at` (aware, UTC, whole seconds). `test_id` is 32 random
    hexadecimal digits. Only for a test that sends: `port` is the attachment point's, `kbit` the highest rate at which
    it sends (whole frames, as limits count; for TCP the payload), `max_bytes` the most that it sends (payload; for TCP
    with retransmissions)."""

    begins_at: datetime
    ends_at: datetime
    test_id: str
    kind: str = WATCH
    port: int | None = None
    kbit: int | None = None
    max_bytes: int | None = None

    @property
    def duration_s(self) -> int:
        return (self.ends_at - self.begins_at) // _SECOND

    def statement(self) -> dict[str, str | int]:
        times = {"From": time_text(self.begins_at), "Until": time_text(self.ends_at)}
        sending = zip(_BOUNDS, (self.port, self.kbit, self.max_bytes), strict=True)
        numbers = {key: number for key, number in sending if number is not None}
        return {"Id": self.test_id, "Kind": self.kind, **times, **numbers}


def run_key(host_secret: str, test_id: str) -> bytes:
    """Key with which both ends of a test authenticate each other (32 bytes); independent for each test."""
    return hmac.digest(host_secret.encode(), b"link-test/1\n" + test_id.encode(), hashlib.sha256)


def check_watch(duration_s: int, maximum_s: int = MAX_WATCH_S) -> None:
    """Check the duration of a watch; `maximum_s`: allowed by a policy, capped at 10 minutes. Raises `RuleError`
    (`test_short`, `test_long`)."""
    if duration_s < MIN_WATCH_S:
        raise RuleError(
            "test_short", f"{duration_s} s are shorter than the {MIN_WATCH_S} s that a watch lasts at least."
        )
    allowed_s = min(maximum_s, MAX_WATCH_S)
    if duration_s > allowed_s:
        remedy = "" if allowed_s == MAX_WATCH_S else ", or ask the administrators for more"
        raise RuleError(
            "test_long", f"{duration_s} s exceed the {allowed_s} s that a watch may last. Choose at most that{remedy}."
        )


def check_sending(duration_s: int) -> None:
    """Check the duration of a test that sends against the cap of all policies. Raises `RuleError` (`test_long`)."""
    if duration_s > MAX_TEST_S:
        raise RuleError(
            "test_long",
            f"{duration_s} s exceed the {MAX_TEST_S} s that a test that sends may last. Choose at most that.",
        )


def read_tests(value: object) -> tuple[LinkTest, ...]:
    """Parse the value of `Tests` into tests of known kinds, in order of time; None: there are none. Raises `RuleError`
    (`wrong_type`, `tests_many`, `test_twice`, `test_order`, `test_short`, `test_long`, `test_range`), for any value."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise RuleError("wrong_type", f'"{TESTS_KEY}" is not a list.')
    if len(value) > MAX_TESTS_PER_LINK:
        raise RuleError("tests_many", f'"{TESTS_KEY}" has {len(value)} entries, more than {MAX_TESTS_PER_LINK}.')
    tests = [_test(one, f'"{TESTS_KEY}" {index}') for index, one in enumerate(value)]
    known = sorted(one for one in tests if one is not None)
    if len({one.test_id for one in known}) < len(known):
        raise RuleError("test_twice", f'"{TESTS_KEY}" has two entries with the same "Id".')
    return tuple(known)


def _test(value: object, where: str) -> LinkTest | None:
    """None for an unknown kind."""
    if not isinstance(value, Mapping) or not isinstance(value.get("Kind"), str):
        raise RuleError("wrong_type", f'{where} is not an object with a text as its "Kind".')
    if value["Kind"] not in KINDS:
        return None
    test_id = value.get("Id")
    if not isinstance(test_id, str) or not _ID.fullmatch(test_id):
        raise RuleError("wrong_type", f'{where}: "Id" is not 32 hexadecimal digits in lower case.')
    begins_at, ends_at = (_moment(value.get(key), f'{where}: "{key}"') for key in ("From", "Until"))
    numbers = [_number(value, key, where) for key in _BOUNDS] if value["Kind"] in SENDING_KINDS else []
    test = LinkTest(begins_at, ends_at, test_id, value["Kind"], *numbers)
    if test.duration_s <= 0:
        raise RuleError("test_order", f'{where}: "Until" is not after "From".')
    try:
        (check_watch if test.kind == WATCH else check_sending)(test.duration_s)
    except RuleError as exc:
        raise RuleError(exc.code, f"{where}: {exc.message}") from exc
    return test


def _number(value: Mapping[str, object], key: str, where: str) -> int:
    found, (lowest, highest) = value.get(key), _BOUNDS[key]
    if type(found) is not int:  # and not a boolean
        raise RuleError("wrong_type", f'{where}: "{key}" is not a whole number from {lowest} to {highest}.')
    if not lowest <= found <= highest:
        raise RuleError("test_range", f'{where}: "{key}" is outside {lowest} to {highest}.')
    return found


def _moment(value: object, where: str) -> datetime:
    if (found := read_time(value)) is None:
        raise RuleError("wrong_type", f"{where} is not a time like 2026-11-21T23:00:00Z.")
    return found
