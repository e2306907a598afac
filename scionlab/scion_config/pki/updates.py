"""Base TRCs and their updates: required signatures of each.

    base       every voter in it
    regular    votes of regular voters of the predecessor, at least its quorum, including each one whose certificate
               changes; and each root that changes, with its old key. Core ASes, quorum, sensitive voters and the
               subjects of all certificates are unchanged
    sensitive  everything else: votes of sensitive voters of the predecessor, at least its quorum

In each update, every voter with a new certificate signs, too. Source: trc.rst of SCION v0.15.1, "TRC Update".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from cryptography import x509

from bandwidth_config import RuleError
from scionlab.scion_config.pki import trc as trcs
from scionlab.scion_config.pki.certificates import Credential, Kind, Validity, kind_of
from scionlab.scion_config.pki.trc import Policy, Trc, TrcId

VOTERS = (Kind.SENSITIVE, Kind.REGULAR)
_Held = Mapping[x509.Certificate, Credential]


def base_trc(isd: int, policy: Policy, validity: Validity, voters: Iterable[Credential], *, base: int = 1) -> bytes:
    """The first TRC of an ISD, or with a later `base` the start of a new series (a trust reset). `voters` have the keys
    of all voters in `policy`. Raises `RuleError`: `trc_vote_missing`, and those of `trc.check`."""
    signers = _held(_new_voters((), policy), {one.certificate: one for one in voters})
    return trcs.sign(Trc(TrcId(isd, base, base), validity, policy), signers)


def next_trc(
    predecessor: Trc, policy: Policy, validity: Validity, grace: timedelta, keys: Iterable[Credential]
) -> bytes:
    """The update of `predecessor` to `policy`; a regular one if possible. `keys` are all available ones, of old and new
    certificates. All voters of the right kind with an available key vote. Raises `RuleError`: `trc_vote_missing` if
    neither kind of update has enough votes, and those of `trc.check`."""
    before, held = predecessor.policy, {one.certificate: one for one in keys}
    id_ = TrcId(predecessor.id.isd, predecessor.id.base, predecessor.id.serial + 1)
    kind = Kind.REGULAR if _is_regular(before, policy, held) else Kind.SENSITIVE
    votes = _votes(before, kind, held)
    if len(votes) < before.quorum:
        raise RuleError(
            "trc_vote_missing",
            f"{id_} needs {before.quorum} votes of {kind.value} voters of {predecessor.id}; "
            f"the keys of {len(votes)} are available.",
        )
    trc = Trc(id_, validity, policy, grace, votes, predecessor.no_trust_reset)
    return trcs.sign(trc, _held(_signers(before, trc, kind), held))


def verify(signed: bytes, predecessor: Trc | None) -> Trc:
    """Parse a .trc file and verify all required signatures; `predecessor` is None for a base TRC. SCION trusts files in
    certs/ without this check, so it precedes any delivery. A base TRC only proves that its voters have their keys: its
    authenticity must be established otherwise. Raises `RuleError`: `trc_not_the_next`, `trc_vote_missing`, and those of
    `trc.check` and `trc.read`."""
    message = trcs.message(signed)
    trc = trcs.decode(message.payload)
    trcs.check(trc)
    if predecessor is None:
        if not trc.id.is_base:
            raise RuleError("trc_not_the_next", f"{trc.id} is an update; it is verified with its predecessor alone.")
        needed = _new_voters((), trc.policy)
    else:
        _check_next(predecessor, trc)
        needed = _signers(predecessor.policy, trc, _kind_of_votes(predecessor.policy, trc))
    for one in needed:
        if not message.is_signed_by(one):
            shown = one.subject.rfc4514_string()
            raise RuleError("trc_vote_missing", f"{trc.id} lacks a valid signature of {shown}.")
    return trc


def _check_next(predecessor: Trc, trc: Trc) -> None:
    expected = TrcId(predecessor.id.isd, predecessor.id.base, predecessor.id.serial + 1)
    if (trc.id, trc.no_trust_reset) != (expected, predecessor.no_trust_reset):
        raise RuleError("trc_not_the_next", f"{trc.id} is not the update of {predecessor.id}.")
    if len(set(trc.votes)) != len(trc.votes) or len(trc.votes) < predecessor.policy.quorum:
        raise RuleError("trc_vote_missing", f"{trc.id} needs {predecessor.policy.quorum} votes of different voters.")


def _kind_of_votes(before: Policy, trc: Trc) -> Kind:
    """Raises `RuleError` (`trc_vote_missing`) if they are of different kinds, or of a kind that may not decide this."""
    votes = set(trc.votes)
    if votes <= before.of_kind(Kind.SENSITIVE).keys():
        return Kind.SENSITIVE
    regular = before.of_kind(Kind.REGULAR)
    changed = {index for index, one in regular.items() if one not in trc.policy.certificates}
    if changed <= votes <= regular.keys() and _may_be_regular(before, trc.policy):
        return Kind.REGULAR
    raise RuleError("trc_vote_missing", f"{trc.id} changes what those who voted may not decide.")


def _signers(before: Policy, trc: Trc, kind: Kind) -> list[x509.Certificate]:
    """Required signers of an update: its votes, new voters, and removed roots."""
    needed = [before.certificates[index] for index in trc.votes] + _new_voters(before.certificates, trc.policy)
    return needed + (_replaced(before, trc.policy, Kind.ROOT) if kind is Kind.REGULAR else [])


def _may_be_regular(before: Policy, policy: Policy) -> bool:
    """Whether only certificates of regular voters and roots change, each to one with the same subject."""
    return (
        replace(policy, certificates=before.certificates, description=before.description) == before
        and _names(policy) == _names(before)
        and not _replaced(before, policy, Kind.SENSITIVE)
    )


def _is_regular(before: Policy, policy: Policy, held: _Held) -> bool:
    """False also if a key that a regular update needs is lost: a sensitive one does not need it."""
    acknowledging = _replaced(before, policy, Kind.REGULAR) + _replaced(before, policy, Kind.ROOT)
    has_keys = held.keys() >= set(acknowledging) and len(_votes(before, Kind.REGULAR, held)) >= before.quorum
    return has_keys and _may_be_regular(before, policy)


def _votes(before: Policy, kind: Kind, held: _Held) -> tuple[int, ...]:
    return tuple(index for index, one in before.of_kind(kind).items() if one in held)


def _names(policy: Policy) -> set[tuple[Kind, x509.Name]]:
    return {(kind_of(one), one.subject) for one in policy.certificates}


def _replaced(before: Policy, policy: Policy, kind: Kind) -> list[x509.Certificate]:
    """Removed certificates; with equal subjects each has a replacement."""
    return [one for one in before.of_kind(kind).values() if one not in policy.certificates]


def _new_voters(before: Sequence[x509.Certificate], policy: Policy) -> list[x509.Certificate]:
    return [one for one in policy.certificates if kind_of(one) in VOTERS and one not in before]


def _held(needed: Sequence[x509.Certificate], held: _Held) -> list[Credential]:
    lacking = [one for one in needed if one not in held]
    if lacking:
        shown = lacking[0].subject.rfc4514_string()
        raise RuleError("trc_vote_missing", f"The TRC needs a signature of {shown}, whose key is not available.")
    return [held[one] for one in needed]
