"""The document that the agent hands to the limiter: what is read, and what each refusal is called."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ap_agent.common.errors import BundleError, TrustError
from ap_agent.document.handover import MAX_BYTES, Document, read_document
from ap_agent.document.signatures import read_signed, verify
from ap_agent.document.signed_text import Version
from bandwidth_config import Limits
from contract.link_info import KnownEntries, LinkInfoError, parse_link_info
from tests.agent_bundles import HOST_ID, KEYRING, OTHER_KEY, entry
from tests.limiter_documents import changed, handed

NOW = datetime(2026, 11, 22, tzinfo=UTC)


def read(data: bytes, **options: Any) -> Document:
    options = {"host_id": HOST_ID, "verify": lambda one: verify(one, KEYRING, NOW), **options}
    return read_document(data, **options)


def refusal(data: bytes, **options: Any) -> str:
    with pytest.raises(BundleError) as refused:
        read(data, **options)
    return refused.value.code


def test_signed_document_says_links_version_cap_and_observe_only() -> None:
    links = {"3": entry(800), "12": entry(0, ip="192.0.2.12")}
    data = handed(links, version="1.19", limits=4, total_kbit=10_000, is_observe_only=True)

    document = read(data)

    said = document.configuration
    assert (said.host_id, said.order, said.total_kbit, said.is_observe_only) == (
        HOST_ID,
        Version(1, 19, 4),
        10_000,
        True,
    )
    assert {number: link.limits for number, link in said.links.items()} == {3: Limits(800, 800), 12: Limits(0, 0)}
    assert said.limits_digest == hashlib.sha256(data.partition(b"\n")[2]).hexdigest()
    assert document.data == data


ANY_SIGNER: dict[str, Any] = {"verify": read_signed, "allow_unsigned": True}
REFUSED: dict[str, tuple[bytes, str]] = {
    **{f"cap {one}": (handed(text={"total_kbit": one}), "manifest_invalid") for one in (0, 100_000_001, True)},
    "observe_only 1": (handed(text={"observe_only": 1}), "manifest_invalid"),
    "other links than signed": (changed(handed(), link_info=json.dumps({"1": entry(900)})), "wrong_hash"),
    "a key that is not ours": (handed(signers=(OTHER_KEY,)), "unknown_key"),
    "another host": (handed(host_id="another"), "wrong_host"),
    "schema 2": (changed(handed(), schema=2), "document_invalid"),
    "signed is none": (changed(handed(), signed=None), "manifest_invalid"),
    "links that are no JSON": (changed(handed(), link_info="{"), "wrong_hash"),
    "damaged links": (handed({"1": {"AS_ID": 1}}), "link_info_invalid"),
    "nothing": (b"", "document_invalid"),
    "a long line": (b"[" * 1_000_000 + b"\n", "document_invalid"),
    "a head that is too large": (b'{"schema": 1, "more": "' + b"x" * 524_288 + b'"}\n{}', "document_invalid"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_must_not_be_enforced_is_refused(case: str) -> None:
    data, code = REFUSED[case]
    assert refusal(data) == code


def test_unsigned_document_counts_only_where_the_operator_allows_it() -> None:
    data = handed(is_signed=False, total_kbit=700)

    assert refusal(data, verify=read_signed) == "not_signed"
    document = read(data, **ANY_SIGNER)
    assert (document.signed, document.order, document.configuration.total_kbit) == (None, Version(1, 18, 7), 700)
    with pytest.raises(TrustError, match="not signed"):
        read(data)


@pytest.mark.parametrize(
    "said",
    [
        None,
        {"host_id": HOST_ID},
        {"host_id": HOST_ID, "generation": True, "config_version": 1, "limits_version": None},
    ],
)
def test_malformed_unsigned_document_is_refused(said: object) -> None:
    data = changed(handed(is_signed=False), unsigned=said)

    assert refusal(data, **ANY_SIGNER) == "document_invalid"


def test_nothing_but_the_head_is_parsed_before_the_signature_and_the_hash_are_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed: list[int] = []
    monkeypatch.setattr("ap_agent.document.handover.parse_link_info", lambda data, **_: parsed.append(len(data)))
    good = handed()
    for bad in (handed(signers=(OTHER_KEY,)), handed(host_id="another"), changed(good, link_info="[" * 10_000_000)):
        with pytest.raises(BundleError):
            read(bad)
    assert parsed == []
    read(good)
    assert parsed == [len(good.partition(b"\n")[2])]


def test_too_large_a_document_is_refused_unread() -> None:
    assert refusal(b" " * (MAX_BYTES + 1)) == "document_invalid"


@given(at=st.integers(0, 5000), bit=st.integers(0, 6))
def test_any_flipped_bit_is_refused_or_changes_nothing_that_is_enforced(at: int, bit: int) -> None:
    good = handed()
    damaged = bytearray(good)
    damaged[at % len(good)] ^= 1 << bit
    try:
        found = read(bytes(damaged))
    except BundleError:
        return
    assert found.configuration == read(good).configuration


def test_one_changed_limit_keeps_every_other_link_as_the_same_object() -> None:
    known: KnownEntries = {}
    before = read(handed({str(n): entry(500, port=50_000 + n) for n in range(1, 20)}), known=known).configuration.links
    links = {str(n): entry(500 + (n == 7), port=50_000 + n) for n in range(1, 20)}
    after = read(handed(links), known=known).configuration.links

    assert [n for n in after if after[n] is not before[n]] == [7]


@pytest.mark.parametrize("change", [{"VPN": 0}, {"Bandwidth": True}], ids=str)
def test_entry_that_only_python_takes_for_the_known_one_is_checked_anew(change: dict[str, Any]) -> None:
    known: KnownEntries = {}
    parse_link_info(json.dumps({"1": entry(1)}), known=known)
    with pytest.raises(LinkInfoError):
        parse_link_info(json.dumps({"1": {**entry(1), **change}}), known=known)
