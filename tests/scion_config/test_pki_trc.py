"""TRCs and who has to sign their updates; whether SCION takes them is asked in tests/scion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest

from bandwidth_config import RuleError
from scionlab.scion_config.pki.certificates import Credential, Kind, Validity
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


def test_no_trust_reset_is_written_out_where_it_is_false() -> None:
    assert b"\x02\x01\x00\x01\x01\x00\x30\x00\x02\x01\x01" in encode(isd_keys().make_base())


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


def test_a_new_root_acknowledged_by_the_old_one_is_a_regular_update() -> None:
    keys = isd_keys()
    keys.make_base()
    old = keys.roots[0]
    keys.roots[0] = credential(Kind.ROOT)
    trc = keys.make_next(*keys.regular, *keys.sensitive, old)
    assert trc.votes == (1,)
    assert is_signed_by(keys.trcs[1], old)
    assert not is_signed_by(keys.trcs[1], keys.roots[0])


def test_a_new_regular_voter_signs_beside_the_vote_of_the_old_one() -> None:
    keys = isd_keys(voters=2)
    keys.make_base()
    old = keys.regular[1]
    keys.regular[1] = credential(Kind.REGULAR, SECOND_CORE)
    trc = keys.make_next(*keys.regular, old)
    assert trc.votes == (2, 3)
    assert [is_signed_by(keys.trcs[1], one) for one in (keys.regular[0], old, keys.regular[1])] == [True, True, True]


@pytest.mark.parametrize("what", ["core", "authoritative", "quorum", "another root", "a sensitive voter"])
def test_what_changes_who_is_trusted_is_a_sensitive_update(what: str) -> None:
    keys = isd_keys(voters=2)
    keys.make_base()
    old = list(keys.sensitive)
    changes: dict[str, Any] = {}
    if what == "core":
        changes = {"core_ases": ("ffaa:0:1107", "ffaa:0:1108")}
    elif what == "authoritative":
        keys.policy = replace(keys.policy, core_ases=("ffaa:0:1107", "ffaa:0:1108"))
        keys.make_base()
        changes = {"authoritative_ases": ("ffaa:0:1107", "ffaa:0:1108")}
    elif what == "quorum":
        changes = {"quorum": 2}
    elif what == "another root":
        keys.roots.append(credential(Kind.ROOT, SECOND_CORE))
    else:
        keys.sensitive[1] = credential(Kind.SENSITIVE, SECOND_CORE)
    trc = keys.make_next(*old, *keys.sensitive, *keys.regular, *keys.roots, **changes)
    assert trc.votes == (0, 1)
    assert not is_signed_by(keys.trcs[1], keys.regular[0])
    assert is_signed_by(keys.trcs[1], keys.sensitive[1])


def test_a_lost_key_of_a_regular_voter_is_replaced_by_a_sensitive_update() -> None:
    keys = isd_keys()
    keys.make_base()
    keys.regular[0] = credential(Kind.REGULAR)
    trc = keys.make_next(*keys.sensitive, *keys.regular)
    assert trc.votes == (0,)
    assert is_signed_by(keys.trcs[1], keys.regular[0])


def test_a_lost_key_of_a_root_is_replaced_by_a_sensitive_update() -> None:
    keys = isd_keys()
    keys.make_base()
    keys.roots[0] = credential(Kind.ROOT)
    assert keys.make_next(*keys.sensitive, *keys.regular).votes == (0,)


def test_one_of_two_sensitive_keys_is_enough_for_a_quorum_of_one() -> None:
    keys = isd_keys(voters=2)
    keys.make_base()
    assert keys.make_next(keys.sensitive[1], core_ases=("ffaa:0:1107", "ffaa:0:1108")).votes == (1,)


def test_too_few_keys_make_no_update_and_say_how_many_there_are() -> None:
    keys = isd_keys(voters=2)
    keys.policy = replace(keys.policy, quorum=2)
    predecessor = keys.make_base()
    with pytest.raises(RuleError) as raised:
        next_trc(predecessor, keys.policy, VALIDITY, TRC_GRACE, [keys.sensitive[0], keys.regular[1]])
    assert code_of(raised) == "trc_vote_missing"
    assert str(raised.value) == (
        "ISD17-B1-S2 needs 2 votes of sensitive-voting voters of ISD17-B1-S1; the keys of 1 are available."
    )


def test_a_new_voter_without_a_key_makes_no_update() -> None:
    keys = isd_keys()
    keys.make_base()
    keys.sensitive.append(credential(Kind.SENSITIVE, SECOND_CORE))
    with pytest.raises(RuleError) as raised:
        keys.make_next(keys.sensitive[0])
    assert code_of(raised) == "trc_vote_missing"


@pytest.mark.parametrize("no_trust_reset", [False, True])
def test_an_update_keeps_whether_trust_may_be_reset(no_trust_reset: bool) -> None:
    keys = isd_keys()
    predecessor = replace(keys.make_base(), no_trust_reset=no_trust_reset)
    updated = read(next_trc(predecessor, keys.policy, VALIDITY, TRC_GRACE, keys.regular))
    assert updated.no_trust_reset is no_trust_reset


def test_a_trust_reset_begins_another_chain() -> None:
    keys = isd_keys()
    trc = read(base_trc(17, keys.policy, VALIDITY, [*keys.sensitive, *keys.regular], base=3))
    assert (str(trc.id), trc.id.file_name, trc.id.is_base) == ("ISD17-B3-S3", "ISD17-B3-S3.trc", True)


# --- verifying ------------------------------------------------------------------------------------------------


def refused(signed: bytes, predecessor: Trc | None) -> str:
    """With which code."""
    with pytest.raises(RuleError) as raised:
        verify(signed, predecessor)
    return code_of(raised)


def test_what_we_make_we_verify() -> None:
    keys = isd_keys(voters=2)
    base = keys.make_base()
    assert verify(keys.trcs[0], None) == base
    old = [keys.roots[0], keys.regular[1]]
    keys.roots[0], keys.regular[1] = credential(Kind.ROOT), credential(Kind.REGULAR, SECOND_CORE)
    regular = keys.make_next(*keys.regular, *old)
    assert verify(keys.trcs[1], base) == regular
    sensitive = keys.make_next(*keys.sensitive, core_ases=("ffaa:0:1107", "ffaa:0:1108"))
    assert verify(keys.trcs[2], regular) == sensitive


def test_an_update_is_only_the_next_of_its_own_predecessor() -> None:
    keys = isd_keys()
    base = keys.make_base()
    second = keys.make_next(*keys.regular)
    third = keys.make_next(*keys.regular)
    assert refused(keys.trcs[2], base) == "trc_not_the_next"
    assert refused(keys.trcs[1], second) == "trc_not_the_next"
    assert refused(keys.trcs[1], third) == "trc_not_the_next"
    assert refused(keys.trcs[1], None) == "trc_not_the_next"
    assert refused(keys.trcs[0], base) == "trc_not_the_next"
    assert refused(keys.trcs[1], replace(base, id=TrcId(18, 1, 1))) == "trc_not_the_next"
    assert refused(keys.trcs[1], replace(base, no_trust_reset=True)) == "trc_not_the_next"


def test_a_signature_over_something_else_counts_for_nothing() -> None:
    keys = isd_keys()
    keys.make_base()
    signed = keys.trcs[0]
    assert refused(signed.replace(b"ISD of the tests", b"ISD of the thief"), None) == "trc_vote_missing"


def test_a_damaged_signature_counts_for_nothing() -> None:
    keys = isd_keys()
    keys.make_base()
    signed = bytearray(keys.trcs[0])
    signed[-1] ^= 1
    assert refused(bytes(signed), None) == "trc_vote_missing"


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


@pytest.mark.parametrize("what", ["core", "quorum", "sensitive voter", "another root"])
def test_regular_voters_do_not_decide_who_is_trusted(what: str) -> None:
    keys = isd_keys(voters=2)
    base = keys.make_base()
    changes: dict[str, Any] = {}
    if what == "core":
        changes = {"core_ases": ("ffaa:0:1107", "ffaa:0:1108")}
    elif what == "quorum":
        changes = {"quorum": 2}
    elif what == "sensitive voter":
        keys.sensitive[1] = credential(Kind.SENSITIVE, SECOND_CORE)
    else:
        keys.roots.append(credential(Kind.ROOT, SECOND_CORE))
    forged = changed(replace(base, id=TrcId(17, 1, 2), votes=(2, 3)), certificates=keys.certificates(), **changes)
    assert refused(sign(forged, [*keys.regular, *keys.sensitive]), base) == "trc_vote_missing"


def test_an_old_root_that_did_not_agree_is_not_replaced() -> None:
    keys = isd_keys()
    base = keys.make_base()
    keys.roots[0] = credential(Kind.ROOT)
    forged = changed(replace(base, id=TrcId(17, 1, 2), votes=(1,)), certificates=keys.certificates())
    assert refused(sign(forged, keys.regular), base) == "trc_vote_missing"


def test_a_regular_voter_is_not_replaced_without_its_own_vote() -> None:
    keys = isd_keys(voters=2)
    base = keys.make_base()
    keys.regular[1] = credential(Kind.REGULAR, SECOND_CORE)
    forged = changed(replace(base, id=TrcId(17, 1, 2), votes=(2,)), certificates=keys.certificates())
    assert refused(sign(forged, keys.regular), base) == "trc_vote_missing"


def test_what_breaks_the_rules_is_refused_whoever_signed_it() -> None:
    keys = isd_keys()
    payload = encode(keys.make_base()).replace(b"ffaa:0:1107", b"ffaa:0:1109", 1)  # of the core ASes alone
    assert refused(make(payload, [*keys.sensitive, *keys.regular]), None) == "trc_ases_invalid"
