"""The simulated fleet believes whom an agent believes, and its name server answers as Docker's."""

from __future__ import annotations

import struct
from datetime import timedelta

import pytest

from lab.bench.fleet.agent import Counts, FleetAgent
from lab.bench.fleet.names import answer
from lab.bench.poll_client import PollingHost, Said
from tests.agent_bundles import (
    HOST_ID,
    KEY,
    OTHER_KEY,
    SECRET,
    SERVICE_KEYS,
    bundle_bytes,
    entry,
    files_of,
    signed_manifest,
    with_manifest,
)  # fmt: skip


def agent(counts: Counts, **values: timedelta) -> FleetAgent:
    return FleetAgent(PollingHost(1, HOST_ID, SECRET), SERVICE_KEYS, counts, lambda low, _: low, **values)


def test_an_agent_takes_what_is_signed_and_asks_for_something_newer() -> None:
    counts = Counts()
    one = agent(counts)
    assert one.query(0.0) == ""
    _, bundle = one.take(Said(200, 0, 1.0, bundle_bytes()), 1.0)
    assert bundle is not None
    assert (bundle.links[1].bandwidth_kbit, counts.answers) == (500, {"200": 1})
    assert one.query(1.0).startswith(f"version={bundle.version}&digest={bundle.limits_digest}&limits=")


@pytest.mark.parametrize(
    ("data", "clock_error", "code"),
    [
        (bundle_bytes(signers=[OTHER_KEY]), timedelta(), "unknown_key"),
        (bundle_bytes().replace(b"\x1f\x8b", b"\x1f\x8c", 1), timedelta(), "not_gzip"),
        (bundle_bytes(is_signed=False), timedelta(), "not_signed"),
        (bundle_bytes(), timedelta(days=365 * 200), "key_expired"),
    ],
)
def test_an_agent_refuses_what_nobody_vouches_for(data: bytes, clock_error: timedelta, code: str) -> None:
    counts = Counts()
    one = agent(counts, clock_error=clock_error)
    pause_s, bundle = one.take(Said(200, 0, 1.0, data), 1.0)
    assert (bundle, one.have, counts.answers[f"refused: {code}"]) == (None, None, 1)
    assert pause_s > 0


def test_a_signature_over_something_else_is_refused() -> None:
    counts = Counts()
    files = files_of({"1": entry(500)})
    manifest = signed_manifest(files)
    manifest["signatures"][0]["signature"] = KEY.sign("something else")
    agent(counts).take(Said(200, 0, 1.0, with_manifest(manifest, files)), 1.0)
    assert counts.answers["refused: wrong_signature"] == 1


def test_what_is_no_answer_of_the_service_is_counted_as_wrong_and_a_503_with_a_time_is_not() -> None:
    counts = Counts()
    one = agent(counts)
    for status, retry_after_s in ((503, 3), (503, None), (502, None), (401, None), (404, None)):
        one.take(Said(status, 0, 1.0, retry_after_s=retry_after_s), 1.0)
    assert counts.answers["unexpected"] == 4
    one.take(Said(200, 0, 1.0, bundle_bytes()), 9.0)
    assert counts.away_s == [8.0]


def test_the_name_server_answers_with_the_addresses_of_now() -> None:
    question = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03web\0\0\x01\0\x01"
    said = answer(question, ["127.0.18.10", "127.0.18.11"])
    assert struct.unpack_from("!6H", said) == (0x1234, 0x8180, 1, 2, 0, 0)
    assert (said[12 : len(question)], said[-4:]) == (question[12:], bytes([127, 0, 18, 11]))
    of_ipv6 = question[:-3] + b"\x1c\0\x01"
    assert struct.unpack_from("!6H", answer(of_ipv6, ["127.0.18.10"]))[3] == 0
