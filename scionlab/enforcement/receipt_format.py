"""Parses enforcement receipts (docs/api.md)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

from bandwidth_config import MAX_BANDWIDTH_KBIT, MAX_TOTAL_KBIT, MIN_TOTAL_KBIT, Limits
from scionlab.delivery.evidence import Evidence
from scionlab.delivery.host_api.document_reader import MAX_VERSION, DocumentReader, load, require_schema
from scionlab.enforcement.models import HostReceipt, LinkEnforcement
from scionlab.enforcement.receipt_values import Direction, LinkReceipt, Receipt, Total

MAX_BYTES = 8 * 1024 * 1024
# Every user has the credentials of a host, that of their AS; reading 8 MiB blocks a process for a second.
MAX_BYTES_WITHOUT_LINKS = 64 * 1024
MAX_COUNTER = 2**63 - 1
MAX_PROBLEMS = 1000
MAX_DEVICES = 10_000
MAX_TESTS = 33_000  # eight per link
MAX_TEST_KINDS = 16
# Of the text in the manifest; agents' own limit (ap_agent/document/signed_text.py).
MAX_SIGNED_CHARS = 1024 * 1024
MAX_SIGNATURES = 32
SIGNATURE_BYTES = 64  # Ed25519

_HEX_32 = re.compile(r"[0-9a-f]{32}", flags=re.ASCII)
_HEX_64 = re.compile(r"[0-9a-f]{64}", flags=re.ASCII)
_DIGITS_32, _DIGITS_64 = (f"{n} hexadecimal digits in lower case" for n in (32, 64))


def parse_receipt(content: bytes, is_known: Callable[[str], bool] = lambda _digest: False) -> Receipt:
    """Parse a receipt. If `is_known` returns True for its `links_digest`, links are not validated again until they are
    read. Raises only `DocumentError`, for any bytes."""
    document = load(content)
    reader = DocumentReader()
    reader.expect(isinstance(document, dict), "", "an object")
    if isinstance(document, dict):
        require_schema(document)
    receipt = _receipt(reader, document if isinstance(document, dict) else {}, is_known)
    reader.refuse("receipt_invalid", "The receipt")
    return receipt


class _Later(Mapping[int, LinkReceipt]):
    """Links that were validated before, parsed on access."""

    def __init__(self, links: object) -> None:
        self._links = links

    @cached_property
    def _read(self) -> dict[int, LinkReceipt]:
        return _links(DocumentReader(), self._links)

    def __getitem__(self, interface_id: int) -> LinkReceipt:
        return self._read[interface_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._read)

    def __len__(self) -> int:
        return len(self._read)


def _links(reader: DocumentReader, links: object) -> dict[int, LinkReceipt]:
    return {number: _link(reader, one, place) for number, one, place in reader.links(links)}


def _digest_of(links: object) -> str:
    """Digest of the content, independent of formatting; empty if nested too deeply."""
    try:
        return hashlib.sha256(json.dumps(links, separators=(",", ":")).encode()).hexdigest()
    except (ValueError, RecursionError):
        return ""


def _receipt(reader: DocumentReader, document: dict[str, Any], is_known: Callable[[str], bool]) -> Receipt:
    version, limits_version = _versions(reader, document)
    run, number = _count(reader, document)
    reader.integer(document.get("writes"), "writes", MAX_COUNTER)
    said = document.get("links")
    links_digest = _digest_of(said)
    links = _Later(said) if is_known(links_digest) else _links(reader, said)
    return Receipt(
        agent_version=reader.text(document.get("agent_version"), "agent_version", 32),
        version=version,
        limits_version=limits_version,
        observed_at=reader.time(document.get("observed_at"), "observed_at"),
        links=links,
        problems=_problems(reader, document.get("problems")),
        limits_digest=_limits_digest(reader, document, has_bundle=version is not None),
        run=run,
        number=number,
        clock_skew_ms=_clock_skew_ms(reader, document.get("clock_skew_ms")),
        evidence=_evidence(reader, document.get("evidence")),
        says_total="total" in document,
        total=_total(reader, document.get("total")),
        observe_only=_observe_only(reader, document.get("observe_only")),
        devices=_devices(reader, document.get("devices")),
        tests=_tests(reader, document.get("tests")),
        sending_tests=_sending_tests(reader, document.get("sending_tests")),
        test_kinds=_test_kinds(reader, document.get("test_kinds", [])),
        links_digest=links_digest,
    )


def _versions(reader: DocumentReader, document: dict[str, Any]) -> tuple[tuple[int, int] | None, int | None]:
    written, limits = document.get("version"), document.get("limits_version")
    if written is None or limits is None:
        reader.expect(written is limits, "limits_version", 'null exactly if "version" is null')
        return None, None
    version = reader.version(written, 'a version like "1.18", or null')
    return version, None if version is None else reader.integer(limits, "limits_version", MAX_VERSION)


def _limits_digest(reader: DocumentReader, document: dict[str, Any], *, has_bundle: bool) -> str | None:
    if "limits_digest" not in document:
        return None  # the agent does not report it
    digest = document["limits_digest"]
    if digest is None or not has_bundle:
        is_right = digest is None and not has_bundle
        reader.expect(is_right, "limits_digest", 'null exactly if "version" is null')
        return ""
    return reader.matching(digest, "limits_digest", _HEX_64, _DIGITS_64)


def _count(reader: DocumentReader, document: dict[str, Any]) -> tuple[str, int | None]:
    """`run` and `number`: both or neither."""
    run, number = document.get("run"), document.get("number")
    if run is None or number is None:
        reader.expect(run is number, "number", 'it exactly if there is a "run"')
        return "", None
    found = reader.matching(run, "run", _HEX_32, _DIGITS_32)
    count = reader.integer(number, "number", MAX_COUNTER)
    reader.expect(number != 0, "number", "a count from 1 on")
    return found, count


def _clock_skew_ms(reader: DocumentReader, value: object) -> int | None:
    """Limited to the column's range, 24 days: such a clock is reported anyway."""
    if value is None:
        return None
    is_right = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_COUNTER
    if not reader.expect(is_right, "clock_skew_ms", f"an integer from -{MAX_COUNTER} to {MAX_COUNTER}, or null", value):
        return None
    assert isinstance(value, int)  # noqa: S101  for the type checker
    return max(-MAX_VERSION, min(value, MAX_VERSION))


def _evidence(reader: DocumentReader, value: object) -> Evidence | None:
    if value is None:
        return None
    evidence = reader.mapping(value, "evidence")
    signatures: dict[str, bytes] = {}
    listed = reader.listed(evidence.get("signatures"), "evidence.signatures", MAX_SIGNATURES, "signatures", least=1)
    for index, one in enumerate(listed):
        place = f"evidence.signatures.{index}"
        entry = reader.mapping(one, place)
        key_id = reader.matching(entry.get("key_id"), f"{place}.key_id", _HEX_32, _DIGITS_32)
        written = reader.text(entry.get("signature"), f"{place}.signature", 88)
        signatures[key_id] = _signature(reader, written, f"{place}.signature")
    return Evidence(reader.text(evidence.get("signed"), "evidence.signed", MAX_SIGNED_CHARS), signatures)


def _signature(reader: DocumentReader, written: str, place: str) -> bytes:
    try:
        signature = base64.b64decode(written, validate=True)
    except ValueError:
        signature = b""
    reader.expect(len(signature) == SIGNATURE_BYTES, place, f"{SIGNATURE_BYTES} bytes in base64")
    return signature


def _total(reader: DocumentReader, value: object) -> Total | None:
    if value is None or not reader.expect(isinstance(value, dict), "total", "an object, or null", value):
        return None
    total = reader.mapping(value, "total")
    wanted = reader.integer(total.get("wanted_kbit"), "total.wanted_kbit", MAX_TOTAL_KBIT)
    allowed = f"a number from {MIN_TOTAL_KBIT} to {MAX_TOTAL_KBIT}"
    reader.expect(wanted >= MIN_TOTAL_KBIT, "total.wanted_kbit", allowed, total.get("wanted_kbit"))

    def in_force(name: str) -> int | None:
        is_none = name in total and total[name] is None
        return None if is_none else reader.integer(total.get(name), f"total.{name}", MAX_TOTAL_KBIT)

    return Total(wanted, in_force("to_user_kbit"), in_force("from_user_kbit"))


def _observe_only(reader: DocumentReader, value: object) -> bool | None:
    if value is not None:
        reader.expect(isinstance(value, bool), "observe_only", "true or false", value)
    return None if value is None else value is True


def _devices(reader: DocumentReader, value: object) -> list[str] | None:
    if value is None:
        return None
    names = reader.listed(value, "devices", MAX_DEVICES, "names")
    return [reader.text(name, f"devices.{index}", 32) for index, name in enumerate(names)]


def _tests(reader: DocumentReader, value: object) -> frozenset[str] | None:
    if value is None:
        return None
    listed = reader.listed(value, "tests", MAX_TESTS, "ids of tests")
    return frozenset(reader.matching(one, f"tests.{index}", _HEX_32, _DIGITS_32) for index, one in enumerate(listed))


def _sending_tests(reader: DocumentReader, value: object) -> str:
    if value is None:
        return ""
    known = HostReceipt.SendingTests.values
    is_known = reader.expect(
        isinstance(value, str) and value in known, "sending_tests", f"one of {', '.join(known)}", value
    )
    return str(value) if is_known else ""


def _test_kinds(reader: DocumentReader, value: object) -> frozenset[str]:
    """Unknown kinds are kept: they come from a newer agent."""
    listed = reader.listed(value, "test_kinds", MAX_TEST_KINDS, "kinds of tests")
    return frozenset(reader.text(one, f"test_kinds.{index}", 16) for index, one in enumerate(listed))


def _link(reader: DocumentReader, value: object, place: str) -> LinkReceipt:
    link = reader.mapping(value, place)
    state = link.get("state") if isinstance(link.get("state"), str) else ""
    known = state in LinkEnforcement.State.values
    reader.expect(
        known, f"{place}.state", " or ".join(f'"{one}"' for one in LinkEnforcement.State.values), link.get("state")
    )
    problem = link.get("problem")
    is_error = state == LinkEnforcement.State.ERROR
    reader.expect(problem is not None or not is_error, f"{place}.problem", "a sentence with the state error")
    to_user = _direction(reader, link.get("to_user"), f"{place}.to_user")
    from_user = _direction(reader, link.get("from_user"), f"{place}.from_user")
    if known and not is_error:
        for name, direction in (("to_user", to_user), ("from_user", from_user)):
            reader.expect(direction is not None, f"{place}.{name}", f"what the kernel has with the state {state}")
    kbit = reader.integer(link.get("kbit"), f"{place}.kbit", MAX_BANDWIDTH_KBIT)
    # An agent with one limit for both directions sends only that.
    to_user_kbit, from_user_kbit = (
        kbit if link.get(name) is None else reader.integer(link[name], f"{place}.{name}", MAX_BANDWIDTH_KBIT)
        for name in ("to_user_kbit", "from_user_kbit")
    )
    return LinkReceipt(
        limits=Limits(to_user_kbit, from_user_kbit),
        state=LinkEnforcement.State(str(state)) if known else LinkEnforcement.State.ERROR,
        problem="" if problem is None else reader.text(problem, f"{place}.problem", 2000),
        to_user=to_user,
        from_user=from_user,
    )


def _direction(reader: DocumentReader, value: object, place: str) -> Direction | None:
    if value is None:
        return None
    direction = reader.mapping(value, place)
    reader.integer(direction.get("backlog_bytes"), f"{place}.backlog_bytes", MAX_COUNTER)
    drops = reader.integer(direction.get("drops"), f"{place}.drops", MAX_COUNTER)
    refused, dropped = (
        None if direction.get(name) is None else reader.integer(direction[name], f"{place}.{name}", MAX_COUNTER)
        for name in ("refused", "dropped")
    )
    if refused is not None and dropped is not None:
        reader.expect(refused + dropped == drops, f"{place}.drops", 'the sum of "refused" and "dropped"')
    else:
        reader.expect(refused is dropped, f"{place}.refused", 'it exactly if there is a "dropped"')
    return Direction(
        dev=reader.text(direction.get("dev"), f"{place}.dev", 32),
        rate_kbit=reader.integer(direction.get("rate_kbit"), f"{place}.rate_kbit", MAX_COUNTER),
        bytes=reader.integer(direction.get("bytes"), f"{place}.bytes", MAX_COUNTER),
        packets=reader.integer(direction.get("packets"), f"{place}.packets", MAX_COUNTER),
        drops=drops,
        refused=refused,
        dropped=dropped,
    )


def _problems(reader: DocumentReader, value: object) -> list[dict[str, str]]:
    problems = []
    for index, one in enumerate(reader.listed(value, "problems", MAX_PROBLEMS, "problems")):
        place = f"problems.{index}"
        problem = reader.mapping(one, place)
        lengths = {"code": 64, "subject": 200, "message": 2000}
        problems.append({name: reader.text(problem.get(name), f"{place}.{name}", n) for name, n in lengths.items()})
    return problems
