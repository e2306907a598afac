"""TRCs and who has to sign their updates; whether SCION takes them is asked in tests/scion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest

from bandwidth_config import RuleError
from scionlab.scion_config.pki.certificates import Credential, Kind, Validity, isd_as_of
from scionlab.scion_config.pki.files import trc_files
from scionlab.scion_config.pki.lifetimes import LIFETIME, TRC_GRACE, TRC_LIFETIME
from scionlab.scion_config.pki.signatures import make
from scionlab.scion_config.pki.trc import Policy, Trc, TrcId, check, encode, read, sign
from scionlab.scion_config.pki.updates import base_trc, next_trc, verify
from tests.pki_testbed import NOW, SECOND_CORE, IsdKeys, credential, isd_keys

VALIDITY = Validity.starting(NOW, TRC_LIFETIME)


def code_of(raised: pytest.ExceptionInfo[RuleError]) -> str:
    return raised.value.code


def is_signed_by(signed: bytes, one: Credential) -> bool:
    """By issuer and serial, which stand in the message outside of its payload."""
    payload = encode(read(signed))
    serial = one.certificate.serial_number
    number = serial.to_bytes(serial.bit_length() // 8 + 1, "big")
    return number in signed.replace(payload, b"")


def test_a_base_trc_comes_back_as_it_was_made() -> None:
    keys = isd_keys()
    trc = keys.make_base()
    policy = Policy(1, ("ffaa:0:1107",), ("ffaa:0:1107",), keys.certificates(), "ISD of the tests")
    assert trc == Trc(TrcId(17, 1, 1), VALIDITY, policy, grace=timedelta(0), votes=(), no_trust_reset=False)
    assert list(trc_files(keys.trcs)) == ["certs/ISD17-B1-S1.trc"]


def test_a_base_trc_is_signed_by_every_voter_and_by_no_root() -> None:
    keys = isd_keys(voters=2)
    keys.make_base()
    signed = keys.trcs[0]
    assert all(is_signed_by(signed, one) for one in [*keys.sensitive, *keys.regular])
    assert not is_signed_by(signed, keys.roots[0])


def test_a_base_trc_without_the_key_of_a_voter_is_not_made() -> None:
    keys = isd_keys(voters=2)
    with pytest.raises(RuleError) as raised:
        base_trc(17, keys.policy, VALIDITY, [*keys.sensitive, keys.regular[0]])
    assert code_of(raised) == "trc_vote_missing"
    assert "17-ffaa:0:1108 regular-voting" in str(raised.value)


def test_payload_is_der_as_the_programs_write_it() -> None:
    """Worked out by hand from trc.rst: the first fields, from the version to the first core AS."""
    keys = isd_keys()
    trc = replace(keys.make_base(), id=TrcId(17, 2, 2), no_trust_reset=True)
    body = encode(trc)[4:]
    times = b"".join(
        b"\x18\x0f" + f"{moment:%Y%m%d%H%M%SZ}".encode() for moment in (VALIDITY.not_before, VALIDITY.not_after)
    )
    expected = b"\x02\x01\x00"  # version 0 means 1
    expected += b"\x30\x09\x02\x01\x11\x02\x01\x02\x02\x01\x02"  # ISD 17, serial 2, base 2
    expected += b"\x30\x22" + times
    expected += b"\x02\x01\x00\x01\x01\xff\x30\x00\x02\x01\x01"  # no grace, noTrustReset, no votes, quorum 1
    expected += 2 * b"\x30\x0d\x13\x0bffaa:0:1107"  # core and authoritative: PrintableString
    expected += b"\x0c\x10ISD of the tests"
    assert body.startswith(expected)


@pytest.mark.parametrize("data", [b"", b"\x30\x00", b"-----BEGIN TRC-----"])
def test_what_is_no_trc_is_a_named_error(data: bytes) -> None:
    with pytest.raises(RuleError) as raised:
        read(data)
    assert code_of(raised) == "trc_unreadable"


# --- rules of every TRC ---------------------------------------------------------------------------------------


def without(kind: Kind) -> Callable[[IsdKeys], dict[str, Any]]:
    def changes(keys: IsdKeys) -> dict[str, Any]:
        left_out = set(keys.policy.of_kind(kind).values())
        return {"certificates": tuple(one for one in keys.certificates() if one not in left_out)}

    return changes


def with_more(make: Callable[[IsdKeys], Credential]) -> Callable[[IsdKeys], dict[str, Any]]:
    return lambda keys: {"certificates": (*keys.certificates(), make(keys).certificate)}


def changed(trc: Trc, **changes: Any) -> Trc:
    """With other fields, its own or its policy's."""
    of_policy = {name: changes.pop(name) for name in set(changes) & {one.name for one in fields(Policy)}}
    return replace(trc, policy=replace(trc.policy, **of_policy), **changes)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        (lambda _: {"id": TrcId(17, 0, 0)}, "trc_id_invalid"),
        (lambda _: {"id": TrcId(17, 3, 2)}, "trc_id_invalid"),
        (lambda _: {"votes": (0,)}, "trc_base_invalid"),
        (lambda _: {"grace": timedelta(seconds=1)}, "trc_base_invalid"),
        (lambda _: {"quorum": 0}, "trc_quorum_invalid"),
        (lambda _: {"quorum": 2}, "trc_quorum_invalid"),
        (without(Kind.SENSITIVE), "trc_quorum_invalid"),
        (without(Kind.REGULAR), "trc_quorum_invalid"),
        (without(Kind.ROOT), "trc_certificate_invalid"),
        (lambda _: {"core_ases": ()}, "trc_ases_invalid"),
        (lambda _: {"core_ases": ("ffaa:0:1107", "ffaa:0:1107")}, "trc_ases_invalid"),
        (lambda _: {"authoritative_ases": ("ffaa:0:1108",)}, "trc_ases_invalid"),
        (lambda _: {"core_ases": ("ffaa:0:1107", "0:0:0")}, "as_id_zero"),
        (with_more(lambda keys: keys.ca), "trc_certificate_invalid"),
        (with_more(lambda _: credential(Kind.ROOT)), "trc_certificate_invalid"),  # the same subject twice
        (with_more(lambda _: credential(Kind.ROOT, "18-ffaa:0:1107")), "trc_certificate_invalid"),
        (lambda _: {"validity": Validity.starting(NOW, LIFETIME[Kind.ROOT] + timedelta(seconds=1))},
         "trc_certificate_invalid"),
    ],
)  # fmt: skip
def test_what_scion_would_refuse_is_not_made(changes: Callable[[IsdKeys], dict[str, Any]], code: str) -> None:
    keys = isd_keys()
    trc = keys.make_base()
    check(trc)
    with pytest.raises(RuleError) as raised:
        check(changed(trc, **changes(keys)))
    assert code_of(raised) == code


# --- updates --------------------------------------------------------------------------------------------------


def test_a_renewal_without_changes_is_a_regular_update() -> None:
    keys = isd_keys(voters=3)
    keys.make_base()
    trc = keys.make_next(*keys.regular)
    assert (trc.id, trc.votes, trc.grace) == (TrcId(17, 1, 2), (3, 4, 5), TRC_GRACE)
    assert not any(is_signed_by(keys.trcs[1], one) for one in [*keys.sensitive, *keys.roots])


@pytest.mark.parametrize("kind", [Kind.ROOT, Kind.REGULAR])
def test_one_whose_old_key_agrees_is_replaced_by_a_regular_update(kind: Kind) -> None:
    keys = isd_keys(voters=2)
    keys.make_base()
    replaced, number = (keys.roots, 0) if kind is Kind.ROOT else (keys.regular, 1)
    old = replaced[number]
    replaced[number] = credential(kind, isd_as_of(old.certificate))
    trc = keys.make_next(*keys.regular, *keys.sensitive, old)
    assert trc.votes == (2, 3)
    assert is_signed_by(keys.trcs[1], old)
    assert is_signed_by(keys.trcs[1], replaced[number]) is (kind is Kind.REGULAR)


THREE = ("ffaa:0:1107", "ffaa:0:1108", "ffaa:0:1109")


def another_root(keys: IsdKeys) -> None:
    keys.roots.append(credential(Kind.ROOT, SECOND_CORE))


def another_sensitive_voter(keys: IsdKeys) -> None:
    keys.sensitive[1] = credential(Kind.SENSITIVE, SECOND_CORE)


def lost_key_of_a_regular_voter(keys: IsdKeys) -> None:
    keys.regular[1] = credential(Kind.REGULAR, SECOND_CORE)


def lost_key_of_the_root(keys: IsdKeys) -> None:
    keys.roots[0] = credential(Kind.ROOT)


# Who is trusted, and the votes of regular voters that do not suffice for it: 2 and 3 are their numbers.
SENSITIVE: dict[str, tuple[Callable[[IsdKeys], None], dict[str, Any], tuple[int, ...]]] = {
    "core ASes": (lambda _: None, {"core_ases": THREE}, (2, 3)),
    "authoritative ASes": (lambda _: None, {"authoritative_ases": THREE[:2]}, (2, 3)),
    "quorum": (lambda _: None, {"quorum": 2}, (2, 3)),
    "another root": (another_root, {}, (2, 3)),
    "another sensitive voter": (another_sensitive_voter, {}, (2, 3)),
    "a root that did not agree": (lost_key_of_the_root, {}, (2, 3)),
    "a regular voter without its own vote": (lost_key_of_a_regular_voter, {}, (2,)),
}


def two_core_ases() -> IsdKeys:
    keys = isd_keys(voters=2)
    keys.policy = replace(keys.policy, core_ases=THREE[:2])
    return keys


@pytest.mark.parametrize("what", SENSITIVE)
def test_what_changes_who_is_trusted_is_a_sensitive_update(what: str) -> None:
    change, policy, _ = SENSITIVE[what]
    keys = two_core_ases()
    keys.make_base()
    old = [*keys.sensitive, keys.regular[1]]
    change(keys)
    trc = keys.make_next(*old[:2], *keys.sensitive, *keys.regular, *keys.roots, **policy)
    assert trc.votes == (0, 1)
    assert is_signed_by(keys.trcs[1], keys.sensitive[1])
    assert not is_signed_by(keys.trcs[1], keys.regular[0])
    assert is_signed_by(keys.trcs[1], keys.regular[1]) is (keys.regular[1] is not old[2])


@pytest.mark.parametrize("what", SENSITIVE)
def test_regular_voters_do_not_decide_who_is_trusted(what: str) -> None:
    change, policy, votes = SENSITIVE[what]
    keys = two_core_ases()
    base = keys.make_base()
    change(keys)
    forged = changed(replace(base, id=TrcId(17, 1, 2), votes=votes), certificates=keys.certificates(), **policy)
    assert refused(sign(forged, [*keys.regular, *keys.sensitive]), base) == "trc_vote_missing"


def test_one_of_two_sensitive_keys_is_enough_for_a_quorum_of_one() -> None:
    keys = isd_keys(voters=2)
    keys.make_base()
    assert keys.make_next(keys.sensitive[1], core_ases=("ffaa:0:1107", "ffaa:0:1108")).votes == (1,)


def test_too_few_keys_make_no_update_and_say_how_many_there_are() -> None:
    keys = isd_keys(voters=2)
    keys.policy = replace(keys.policy, quorum=2)
    predecessor = keys.make_base()
    said = "ISD17-B1-S2 needs 2 votes of sensitive-voting voters of ISD17-B1-S1; the keys of 1 are available."
    with pytest.raises(RuleError, match=said) as raised:
        next_trc(predecessor, keys.policy, VALIDITY, TRC_GRACE, [keys.sensitive[0], keys.regular[1]])
    assert code_of(raised) == "trc_vote_missing"


@pytest.mark.parametrize("no_trust_reset", [False, True])
def test_an_update_keeps_whether_trust_may_be_reset(no_trust_reset: bool) -> None:
    keys = isd_keys()
    predecessor = replace(keys.make_base(), no_trust_reset=no_trust_reset)
    updated = read(next_trc(predecessor, keys.policy, VALIDITY, TRC_GRACE, keys.regular))
    assert updated.no_trust_reset is no_trust_reset


# --- verifying ------------------------------------------------------------------------------------------------


def refused(signed: bytes, predecessor: Trc | None) -> str:
    """With which code."""
    with pytest.raises(RuleError) as raised:
        verify(signed, predecessor)
    return code_of(raised)


def test_an_update_is_only_the_next_of_its_own_predecessor() -> None:
    keys = isd_keys()
    base = keys.make_base()
    second = keys.make_next(*keys.regular)
    third = keys.make_next(*keys.regular)
    cases = [(2, base), (1, second), (1, third), (1, None), (0, base)]
    cases += [(1, replace(base, id=TrcId(18, 1, 1))), (1, replace(base, no_trust_reset=True))]
    for number, predecessor in cases:
        assert refused(keys.trcs[number], predecessor) == "trc_not_the_next", (number, predecessor)


def test_a_signature_that_is_damaged_or_over_something_else_counts_for_nothing() -> None:
    keys = isd_keys()
    keys.make_base()
    signed = keys.trcs[0]
    assert refused(signed.replace(b"ISD of the tests", b"ISD of the thief"), None) == "trc_vote_missing"
    assert refused(signed[:-1] + bytes([signed[-1] ^ 1]), None) == "trc_vote_missing"


def test_votes_of_others_with_the_same_names_count_for_nothing() -> None:
    keys, others = isd_keys(), isd_keys()
    base = keys.make_base()
    forged = sign(replace(base, id=TrcId(17, 1, 2), votes=(1,)), others.regular)
    assert refused(forged, base) == "trc_vote_missing"


@pytest.mark.parametrize("votes", [(), (1, 1), (0, 1), (2,), (9,)])
def test_votes_are_of_enough_different_voters_of_one_kind(votes: tuple[int, ...]) -> None:
    """0 is the sensitive voter, 1 the regular one, 2 the root."""
    keys = isd_keys()
    base = keys.make_base()
    forged = sign(replace(base, id=TrcId(17, 1, 2), votes=votes), [*keys.sensitive, *keys.regular, *keys.roots])
    assert refused(forged, base) == "trc_vote_missing"


def test_what_breaks_the_rules_is_refused_whoever_signed_it() -> None:
    keys = isd_keys()
    payload = encode(keys.make_base()).replace(b"ffaa:0:1107", b"ffaa:0:1109", 1)  # of the core ASes alone
    assert refused(make(payload, [*keys.sensitive, *keys.regular]), None) == "trc_ases_invalid"
