"""Trust root configurations: content, DER encoding, and rules for each of them.

A TRC names the core ASes of an ISD, the roots that issue certificates, and the voters of its successor.
`scionlab.scion_config.pki.updates` has the rules of updates. Source: trc.rst of SCION v0.15.1, "TRC Format"; where
SCION's implementation differs (pkg/scrypto/cppki/trc_asn1.go), this follows it: AS numbers are text in a
PrintableString, noTrustReset is written even if default, times are GeneralizedTime.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, timedelta

from cryptography import x509
from cryptography.hazmat import asn1

from bandwidth_config import RuleError
from scionlab.platform.notation.isd_as import parse_isd_as
from scionlab.scion_config.pki import signatures
from scionlab.scion_config.pki.certificates import Credential, Kind, Validity, isd_as_of, kind_of

MAX_QUORUM = 255


@dataclass(frozen=True, order=True)
class TrcId:
    """Serial and base begin at 1; a TRC whose serial is its base is a base TRC."""

    isd: int
    base: int
    serial: int

    def __str__(self) -> str:
        return f"ISD{self.isd}-B{self.base}-S{self.serial}"

    @property
    def is_base(self) -> bool:
        return self.serial == self.base


@dataclass(frozen=True)
class Policy:
    """What a TRC says of its ISD. AS numbers without the ISD, `ffaa:0:1107`, in an order that updates keep."""

    quorum: int
    core_ases: tuple[str, ...]
    authoritative_ases: tuple[str, ...]
    certificates: tuple[x509.Certificate, ...]
    description: str

    def of_kind(self, kind: Kind) -> dict[int, x509.Certificate]:
        """Index in `certificates` -> certificate."""
        return {index: one for index, one in enumerate(self.certificates) if kind_of(one) is kind}


@dataclass(frozen=True)
class Trc:
    """The payload. `votes` are indices into the predecessor's certificates; for `grace` from its start the predecessor
    is valid, too."""

    id: TrcId
    validity: Validity
    policy: Policy
    grace: timedelta = timedelta(0)
    votes: tuple[int, ...] = ()
    no_trust_reset: bool = False


# --- DER ------------------------------------------------------------------------------------------------------


@asn1.sequence
class _Id:
    isd: int
    serial: int
    base: int


@asn1.sequence
class _Validity:
    not_before: asn1.GeneralizedTime
    not_after: asn1.GeneralizedTime


@asn1.sequence
class _Payload:
    version: int
    id: _Id
    validity: _Validity
    grace_s: int
    no_trust_reset: bool
    votes: list[int]
    quorum: int
    core_ases: list[asn1.PrintableString]
    authoritative_ases: list[asn1.PrintableString]
    description: str
    certificates: list[x509.Certificate]


def encode(trc: Trc) -> bytes:
    """Encode the payload in DER. Raises as `check`."""
    check(trc)
    payload = _Payload(
        version=0,
        id=_Id(isd=trc.id.isd, serial=trc.id.serial, base=trc.id.base),
        validity=_Validity(
            not_before=asn1.GeneralizedTime(trc.validity.not_before.astimezone(UTC)),
            not_after=asn1.GeneralizedTime(trc.validity.not_after.astimezone(UTC)),
        ),
        grace_s=int(trc.grace.total_seconds()),
        no_trust_reset=trc.no_trust_reset,
        votes=list(trc.votes),
        quorum=trc.policy.quorum,
        core_ases=[asn1.PrintableString(one) for one in trc.policy.core_ases],
        authoritative_ases=[asn1.PrintableString(one) for one in trc.policy.authoritative_ases],
        description=trc.policy.description,
        certificates=list(trc.policy.certificates),
    )
    return asn1.encode_der(payload)


def decode(data: bytes) -> Trc:
    """Raises `RuleError` (`trc_unreadable`)."""
    try:
        payload = asn1.decode_der(_Payload, data)
    except ValueError as exc:
        raise RuleError("trc_unreadable", f"This is not a TRC: {exc}") from exc
    return Trc(
        id=TrcId(payload.id.isd, payload.id.base, payload.id.serial),
        validity=Validity(
            payload.validity.not_before.as_datetime().replace(tzinfo=UTC),
            payload.validity.not_after.as_datetime().replace(tzinfo=UTC),
        ),
        policy=Policy(
            quorum=payload.quorum,
            core_ases=tuple(one.as_str() for one in payload.core_ases),
            authoritative_ases=tuple(one.as_str() for one in payload.authoritative_ases),
            certificates=tuple(payload.certificates),
            description=payload.description,
        ),
        grace=timedelta(seconds=payload.grace_s),
        votes=tuple(payload.votes),
        no_trust_reset=payload.no_trust_reset,
    )


def sign(trc: Trc, signers: Iterable[Credential]) -> bytes:
    """Content of a .trc file, with one signature per signer. Not deterministic, and SCION rejects two files of one id:
    store the result. Raises as `check`."""
    return signatures.make(encode(trc), signers)


def read(signed: bytes) -> Trc:
    """Parse a .trc file. **Does not verify signatures**: `updates.verify` does. Raises as `decode`."""
    return decode(message(signed).payload)


def message(signed: bytes) -> signatures.Message:
    """Raises `RuleError` (`trc_unreadable`)."""
    try:
        return signatures.Message.read(signed)
    except ValueError as exc:
        raise RuleError("trc_unreadable", f"This is not a TRC: {exc}") from exc


# --- rules ----------------------------------------------------------------------------------------------------


def check(trc: Trc) -> None:
    """Check the rules of trc.rst for every TRC, base or update ("TRC Payload Fields"). Raises `RuleError`:
    `trc_id_invalid`, `trc_base_invalid`, `trc_quorum_invalid`, `trc_ases_invalid`, `trc_certificate_invalid`."""
    if not 1 <= trc.id.base <= trc.id.serial:
        raise RuleError("trc_id_invalid", f"{trc.id}: base and serial begin at 1, and the serial is never lower.")
    if trc.id.is_base and (trc.votes or trc.grace):
        raise RuleError("trc_base_invalid", f"{trc.id} is a base TRC: it has no votes and no grace period.")
    _check_quorum(trc)
    _check_ases(trc)
    _check_certificates(trc)


def _check_quorum(trc: Trc) -> None:
    most = min(len(trc.policy.of_kind(Kind.SENSITIVE)), len(trc.policy.of_kind(Kind.REGULAR)), MAX_QUORUM)
    if not 1 <= trc.policy.quorum <= most:
        raise RuleError(
            "trc_quorum_invalid",
            f"A quorum of {trc.policy.quorum} is outside 1 to {most}, the number of sensitive and of regular voters.",
        )


def _check_ases(trc: Trc) -> None:
    for named in (trc.policy.core_ases, trc.policy.authoritative_ases):
        if not named or len(set(named)) != len(named):
            raise RuleError("trc_ases_invalid", f"{trc.id} needs at least one core and authoritative AS, each once.")
    strangers = set(trc.policy.authoritative_ases) - set(trc.policy.core_ases)
    if strangers:
        raise RuleError("trc_ases_invalid", f"{min(strangers)} is authoritative but not core in {trc.id}.")
    for one in trc.policy.core_ases:
        parse_isd_as(f"{trc.id.isd}-{one}")


def _check_certificates(trc: Trc) -> None:
    for one in trc.policy.certificates:
        if kind_of(one) in {Kind.CA, Kind.AS}:
            raise RuleError("trc_certificate_invalid", f"A TRC carries voters and roots, no {kind_of(one).value}.")
        if parse_isd_as(isd_as_of(one))[0] != trc.id.isd:
            raise RuleError("trc_certificate_invalid", f"{isd_as_of(one)} is of another ISD than {trc.id}.")
        if not Validity.of(one).covers(trc.validity):
            raise RuleError(
                "trc_certificate_invalid",
                f"{trc.id} would be valid {trc.validity}, but the {kind_of(one).value} certificate of {isd_as_of(one)} "
                f"{Validity.of(one)}. Renew that certificate first.",
            )
    subjects = Counter((kind_of(one), one.subject) for one in trc.policy.certificates)
    twice = [name.rfc4514_string() for (_, name), count in subjects.items() if count > 1]
    if twice:
        raise RuleError("trc_certificate_invalid", f"{twice[0]} occurs twice in {trc.id}.")
    if not trc.policy.of_kind(Kind.ROOT):
        raise RuleError("trc_certificate_invalid", f"{trc.id} has no root, so no chain could be verified.")
