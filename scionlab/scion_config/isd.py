"""Trust of an ISD: voters, roots and CAs of its core ASes, and its TRCs.

`isd_ensure` creates what is missing, renews what is due and follows changes: it is called after any change of a core
AS, and by the renewal task. The ISD's row is the lock.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from django.db import transaction

from bandwidth_config import RuleError
from scionlab.accounts.models import User
from scionlab.platform.clock import database_now
from scionlab.platform.notation.isd_as import format_as_id
from scionlab.platform.retry import retried
from scionlab.platform.secrets_box import check_secret, sealed
from scionlab.scion_config.credentials import certificate_of, credential_of, newest_trc, within
from scionlab.scion_config.models import TRC, Certificate
from scionlab.scion_config.pki import trc as trcs
from scionlab.scion_config.pki import updates
from scionlab.scion_config.pki.certificates import Credential, Kind, Validity, isd_as_of, issue, kind_of, self_signed
from scionlab.scion_config.pki.keys import key_to_pem, new_key
from scionlab.scion_config.pki.lifetimes import LIFETIME, TRC_GRACE, TRC_LIFETIME, TRC_RENEWED_WITH_LEFT, needs_renewal
from scionlab.scion_config.pki.trc import Policy, Trc
from scionlab.testbed import audit, locks, selectors
from scionlab.testbed.audit import Issue
from scionlab.testbed.models import AS, ISD, BandwidthChange

logger = logging.getLogger(__name__)

IN_TRC: Final = (Kind.SENSITIVE, Kind.REGULAR, Kind.ROOT)  # the root last, see `_certify_all`


@dataclass
class _Work:
    """State of one run for one ISD; `issued` collects the audit entries."""

    isd: ISD
    now: datetime
    issued: list[Issue] = field(default_factory=list)

    def in_use(self, as_: AS, kind: Kind) -> Certificate | None:
        rows = Certificate.objects.filter(isd=self.isd, as_id=as_.as_id, kind=kind.value, replaced_at=None)
        return rows.select_related("isd").first()

    def store(self, as_: AS, made: Credential, issuer: Certificate | None = None) -> Certificate:
        row, issued = certificate_store(self.isd, as_.as_id, made, issuer, now=self.now)
        self.issued.append(issued)
        return row


def certificate_store(
    isd: ISD,
    as_id: int,
    made: Credential,
    issuer: Certificate | None,
    *,
    now: datetime,
    replaced_at: datetime | None = None,
) -> tuple[Certificate, Issue]:
    """Replace the one in use. `replaced_at`: only to vote on the next TRC. The ISD's row is locked."""
    kind, validity = kind_of(made.certificate).value, Validity.of(made.certificate)
    Certificate.objects.filter(isd=isd, as_id=as_id, kind=kind, replaced_at=None).update(replaced_at=now)
    row = Certificate.objects.create(
        isd=isd,
        as_id=as_id,
        kind=kind,
        issuer=issuer,
        content=made.certificate.public_bytes(Encoding.DER),
        private_encrypted=sealed(key_to_pem(made.key)),
        not_before=validity.not_before,
        not_after=validity.not_after,
        replaced_at=replaced_at,
    )
    return row, issue_of(made.certificate)


def issue_of(certificate: x509.Certificate) -> Issue:
    kind, validity = kind_of(certificate), Validity.of(certificate)
    detail = f"{kind.value} certificate {certificate.serial_number:x}, valid {validity}"
    return Issue(BandwidthChange.Kind.CERTIFICATE, isd_as_of(certificate), detail)


@transaction.atomic
def isd_ensure(*, isd_id: int, actor: User | None, now: datetime | None = None, reason: str = "") -> bool:
    """Create or renew what the ISD needs: certificates of core ASes, then a TRC with them, then CAs.

    No counter rises. Returns True if anything was created: AS certificates may have to follow
    (`scion_config.renewal`). Does nothing for an ISD without a core AS, or if all its core ASes have limits only: it
    is another service's, and two TRCs of one id make SCION exit. `isd_id` is its primary key. Raises `RuleError`:
    `secret_unreadable`, `trc_vote_missing` if too many voters' keys are lost (docs/scion-keys.md), and those of
    `updates.verify`.
    """
    check_secret()
    locks.lock_isd(isd_id)
    work = _Work(ISD.objects.get(pk=isd_id), now or database_now())
    core = list(AS.objects.filter(isd=work.isd, is_core=True).select_related("isd").order_by("as_id"))
    if isd_id in selectors.isds_of_others():
        return False
    gone = Certificate.objects.filter(isd=work.isd, replaced_at=None).exclude(as_id__in=[as_.as_id for as_ in core])
    has_gone = gone.update(replaced_at=work.now) > 0
    roots = _certify_all(work, core)
    if core:
        _update_trc(work, core)
    for as_, root in zip(core, roots, strict=True):
        _certify_ca(work, as_, root)
    _forget_keys(work.isd)
    audit.note_issues(work.issued, actor=actor, reason=reason)
    return has_gone or bool(work.issued)


def core_keys_withdraw(as_: AS, now: datetime) -> None:
    """Stop using these keys; call `isd_ensure` next, which creates others. The ISD's row is locked."""
    Certificate.objects.filter(isd=as_.isd_id, as_id=as_.as_id, replaced_at=None).update(replaced_at=now)


def _certify_all(work: _Work, core: Iterable[AS]) -> list[Certificate]:
    """Voters and roots; returns the roots."""
    return [[_certify(work, as_, kind) for kind in IN_TRC][-1] for as_ in core]


def _certify(work: _Work, as_: AS, kind: Kind) -> Certificate:
    row = work.in_use(as_, kind)
    if row is not None and not needs_renewal(certificate_of(row), work.now):
        return row
    # A renewed root keeps its key: the CAs below it stay valid, so hosts need nothing else. The key changes only if it
    # is withdrawn.
    key = credential_of(row).key if row is not None and kind is Kind.ROOT else new_key()
    made = self_signed(kind, as_.isd_as, Validity.starting(work.now, LIFETIME[kind]), key)
    stored = work.store(as_, made)
    if row is not None:
        Certificate.objects.filter(issuer=row).update(issuer=stored)
    return stored


def _certify_ca(work: _Work, as_: AS, root: Certificate) -> None:
    row = work.in_use(as_, Kind.CA)
    if row is not None and row.issuer == root and not needs_renewal(certificate_of(row), work.now):
        return
    issuer, key = credential_of(root), new_key()
    validity = within(issuer, Validity.starting(work.now, LIFETIME[Kind.CA]))
    certificate = issue(Kind.CA, as_.isd_as, validity, key.public_key(), issuer)
    work.store(as_, Credential(certificate, key), issuer=root)


# --- TRCs ---------------------------------------------------------------------------------------------------------


def _update_trc(work: _Work, core: Iterable[AS]) -> None:
    before = newest_trc(work.isd.pk)
    policy = _policy(work.isd, core)
    if before is not None and _is_same(before.policy, policy) and _left_enough(before, work.now):
        return
    validity, keys = Validity.starting(work.now, TRC_LIFETIME), _keys_at_hand(work.isd)
    if before is None:
        signed = updates.base_trc(work.isd.isd_id, policy, validity, keys)
    else:
        signed = updates.next_trc(before, policy, validity, TRC_GRACE, keys)
    work.issued.append(trc_store(work.isd, signed, before)[1])


def _left_enough(trc: Trc, now: datetime) -> bool:
    return trc.validity.not_after - now >= TRC_RENEWED_WITH_LEFT


def trc_store(isd: ISD, signed: bytes, before: Trc | None) -> tuple[TRC, Issue]:
    """Verify it with its predecessor and store it: SCION trusts every file in certs/. The ISD's row is locked. Raises
    as `updates.verify`."""
    trc = updates.verify(signed, before)
    row = TRC.objects.create(
        isd=isd,
        base=trc.id.base,
        serial=trc.id.serial,
        content=signed,
        not_before=trc.validity.not_before,
        not_after=trc.validity.not_after,
    )
    logger.info("trc.made id=%s core_ases=%s quorum=%s", trc.id, ",".join(trc.policy.core_ases), trc.policy.quorum)
    detail = f"{trc.id}, core ASes {', '.join(trc.policy.core_ases)}, valid {trc.validity}"
    return row, Issue(BandwidthChange.Kind.TRC, str(trc.id), detail)


def _policy(isd: ISD, core: Iterable[AS]) -> Policy:
    """The policy of the ISD: each core AS votes, with a majority as quorum."""
    numbers = [as_.as_id for as_ in core]
    names = tuple(format_as_id(number) for number in numbers)
    rows = Certificate.objects.filter(isd=isd, as_id__in=numbers, replaced_at=None)
    by_name = {(row.kind, row.as_id): row for row in rows}
    wanted = [by_name[kind.value, number] for kind in IN_TRC for number in numbers]
    return Policy(
        quorum=len(names) // 2 + 1,
        core_ases=names,
        authoritative_ases=names,
        certificates=tuple(certificate_of(row) for row in wanted),
        description=f"ISD {isd.isd_id}",
    )


def _is_same(a: Policy, b: Policy) -> bool:
    """Ignores the order of certificates, and the description."""
    return (a.quorum, set(a.core_ases), set(a.authoritative_ases), set(a.certificates)) == (
        b.quorum,
        set(b.core_ases),
        set(b.authoritative_ases),
        set(b.certificates),
    )


def _keys_at_hand(isd: ISD) -> list[Credential]:
    """Keys of voters and roots, including those only in the newest TRC."""
    rows = Certificate.objects.filter(isd=isd, kind__in=[kind.value for kind in IN_TRC]).exclude(private_encrypted="")
    found = []
    for row in rows.select_related("isd"):
        try:
            found.append(credential_of(row))
        except RuleError as exc:  # the others may be a quorum
            logger.error("trust.key_unreadable certificate=%s %s", row.pk, exc.message)
    return found


def _forget_keys(isd: ISD) -> None:
    """Delete keys of replaced certificates, unless the newest TRC has them: they vote on its successor."""
    newest = newest_trc(isd.pk)
    named = set() if newest is None else set(newest.policy.certificates)
    rows = Certificate.objects.filter(isd=isd, replaced_at__isnull=False).exclude(private_encrypted="")
    done = [row.pk for row in rows if certificate_of(row) not in named]
    Certificate.objects.filter(pk__in=done).update(private_encrypted="")


@retried
@transaction.atomic
def trc_reset(*, isd_id: int, base: int, actor: User | None, reason: str = "") -> TRC:
    """Start a new series of TRCs: after restoring a backup older than TRCs on hosts, or if too many voters' keys are
    lost. Certificates with unreadable keys are replaced. No counter rises. `isd_id` is the primary key, `base` above
    every serial on any host. Raises `RuleError` (`trc_base_low`, `isd_without_core_as`)."""
    locks.lock_isd(isd_id)
    work = _Work(ISD.objects.get(pk=isd_id), database_now())
    newest = newest_trc(isd_id)
    if newest is not None and base <= newest.id.serial:
        text = f"Base {base} is not above {newest.id}, the newest TRC here."
        raise RuleError("trc_base_low", f"{text} Choose one above every TRC that any host has.")
    core = list(AS.objects.filter(isd=work.isd, is_core=True).select_related("isd").order_by("as_id"))
    if not core:
        raise RuleError("isd_without_core_as", f"{work.isd} has no core AS, so a TRC has no voters. Create one first.")
    _withdraw_unreadable(work.isd, work.now)
    _certify_all(work, core)
    validity = Validity.starting(work.now, TRC_LIFETIME)
    keys = _keys_at_hand(work.isd)
    signed = updates.base_trc(work.isd.isd_id, _policy(work.isd, core), validity, keys, base=base)
    made, issued = trc_store(work.isd, signed, None)
    audit.note_issues([*work.issued, issued], actor=actor, reason=reason)
    isd_ensure(isd_id=isd_id, actor=actor, now=work.now, reason=reason)  # CAs below replaced roots
    return made


@retried
@transaction.atomic
def trc_import(*, content: bytes, actor: User | None, reason: str = "") -> TRC:
    """Import the next TRC of an ISD from a host (DER, or a control service's PEM), verified with its predecessor: for
    restoring a backup that is older. No counter rises. Raises `RuleError` (`isd_unknown`, those of
    `updates.verify`)."""
    signed = trc_der(content)
    number = trcs.read(signed).id.isd
    isd = ISD.objects.filter(isd_id=number).first()
    if isd is None:
        raise RuleError("isd_unknown", f"ISD {number} does not exist. Create it first.")
    locks.lock_isd(isd.pk)
    made, issued = trc_store(isd, signed, newest_trc(isd.pk))
    audit.note_issues([issued], actor=actor, reason=reason)
    return made


def trc_der(content: bytes) -> bytes:
    """Of DER or PEM. Raises `RuleError` (`trc_unreadable`)."""
    if not content.startswith(b"-----BEGIN TRC-----"):
        return content
    try:
        return base64.b64decode(b"".join(content.split(b"-----")[2].split()), validate=True)
    except (ValueError, IndexError) as exc:
        raise RuleError("trc_unreadable", f"This is not a TRC: {exc}") from exc


def _withdraw_unreadable(isd: ISD, now: datetime) -> None:
    readable = {credential.certificate for credential in _keys_at_hand(isd)}
    rows = Certificate.objects.filter(isd=isd, kind__in=[kind.value for kind in IN_TRC], replaced_at=None)
    lost = [row.pk for row in rows if certificate_of(row) not in readable]
    Certificate.objects.filter(pk__in=lost).update(replaced_at=now)
