"""Import step: TRCs, certificates and keys of SCION.

Everything is verified: each TRC by its predecessor, each certificate by its issuer, each key against its certificate.
While the hosts have limits only, imported keys are unused and not renewed (`scion_config.isd`). After a takeover they
equal those on the hosts, so paths and signatures stay valid; the hourly task creates what is missing.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding

from bandwidth_config import RuleError
from scionlab.importer import rows
from scionlab.importer.import_state import BATCH, REASON, Import
from scionlab.platform.notation.isd_as import parse_isd_as
from scionlab.platform.secrets_box import check_secret, opened, sealed
from scionlab.scion_config.chain import chain_set
from scionlab.scion_config.credentials import certificate_of, newest_trc
from scionlab.scion_config.isd import IN_TRC, certificate_store, trc_der, trc_store
from scionlab.scion_config.models import TRC, ASKeys, Certificate
from scionlab.scion_config.pki import trc as trcs
from scionlab.scion_config.pki.certificates import Credential, Kind, Validity, isd_as_of, kind_of
from scionlab.scion_config.pki.keys import MASTER_KEY_BYTES, key_from_pem, new_master_key
from scionlab.scion_config.pki.trc import TrcId
from scionlab.testbed import audit
from scionlab.testbed.audit import Issue
from scionlab.testbed.models import AS, ISD, Host

_OF_KEYS = ["master0_encrypted", "master1_encrypted", "ca", "content", "private_encrypted", "not_after", "renew_at"]


def import_trust(this: Import) -> None:
    """After ASes and hosts. Does nothing for a dump without TRCs and keys."""
    if not (this.network.trcs or this.network.keys):
        return
    check_secret()
    issued = _import_trcs(this)
    credentials = _credentials(this)
    for isd in sorted(set(this.isds.values()), key=lambda one: one.pk):
        issued += _import_core(this, isd, credentials)
    issued += _import_own(this, credentials)
    audit.note_issues(issued, actor=None, reason=REASON)


# --- TRCs -------------------------------------------------------------------------------------------------------------


def _import_trcs(this: Import) -> list[Issue]:
    here = {TrcId(row.isd.isd_id, row.base, row.serial): row for row in TRC.objects.select_related("isd")}
    issued = []
    for row in sorted(this.network.trcs.values(), key=lambda one: (one.isd, one.base, one.serial)):
        if not this.takes("trc", row, isd=(row.isd, this.isds)):
            continue
        try:
            made = _import_trc(this.isds[row.isd], row, here)
        except RuleError as exc:
            this.refuse("trc", row, exc.message)
            continue
        issued += [] if made is None else [made]
        this.report.counts["trc"].made += made is not None
        this.report.counts["trc"].same += made is None
    return issued


def _import_trc(isd: ISD, row: rows.Trc, here: dict[TrcId, TRC]) -> Issue | None:
    """None if it exists. Raises `RuleError`."""
    id_, signed = TrcId(row.isd, row.base, row.serial), _signed(row)
    if id_ in here:
        if bytes(here[id_].content) != signed:
            text = f"Another {id_} is here; SCION's programs exit on two of one id. The lines cannot be merged."
            raise RuleError("trc_taken", text)
        return None
    if trcs.read(signed).id != id_:
        raise RuleError("trc_not_the_next", f"It is {trcs.read(signed).id}, not {id_}. Correct the row there.")
    # The other service starts a new series (a base TRC) if it cannot make an update, so the newest one need not be the
    # predecessor.
    before = None if id_.is_base else here.get(TrcId(id_.isd, id_.base, id_.serial - 1))
    if before is None and not id_.is_base:
        text = f"The TRC before {id_} is neither in the file nor here, so it cannot be verified. Dump all TRCs."
        raise RuleError("trc_not_the_next", text)
    here[id_], issue = trc_store(isd, signed, None if before is None else trcs.read(bytes(before.content)))
    return issue


def _signed(row: rows.Trc) -> bytes:
    """Raises `RuleError` (`trc_unreadable`)."""
    text = row.content.strip()
    return trc_der(text.encode() if text.startswith("-----BEGIN") else _base64(text, "trc_unreadable", "a TRC"))


def _base64(text: str, code: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise RuleError(code, f"This is not {what} in base64. Correct it there.") from None


# --- keys and certificates --------------------------------------------------------------------------------------------


def _credentials(this: Import) -> dict[int, Credential]:
    """By the dump's key: each with its certificate. Invalid ones are rejected."""
    found = {}
    for row in this.network.keys.values():
        needs = {} if row.as_pk is None else {"as_": (row.as_pk, this.ases)}
        if not this.takes("key", row, **needs):
            continue
        try:
            found[row.pk] = _credential(row)
        except RuleError as exc:
            this.refuse("key", row, exc.message)
    return found


def _credential(row: rows.Key) -> Credential:
    """Raises `RuleError`."""
    key, of = key_from_pem(row.pem.encode()), f"Its certificate {row.certificate_pk}"
    try:
        certificate = x509.load_pem_x509_certificate(row.certificate.encode())
        kind, isd_as = kind_of(certificate), isd_as_of(certificate)
    except ValueError as exc:
        raise RuleError("pki_not_scion", f"{of} cannot be read: {exc}. Correct it there.") from exc
    if certificate.public_key() != key.public_key():
        raise RuleError("pki_key_mismatch", f"{of} is of another key. Renew the keys of the AS there.")
    if (kind.value, parse_isd_as(isd_as)[1]) != (row.usage, row.as_id):
        raise RuleError("pki_not_scion", f"{of} is a {kind.value} certificate of {isd_as}. Correct it there.")
    return Credential(certificate, key)


def _import_core(this: Import, isd: ISD, credentials: dict[int, Credential]) -> list[Issue]:
    """Voters and roots of the ISD's newest TRC, and the CAs below these roots."""
    newest = newest_trc(isd.pk)
    named = set() if newest is None else set(newest.policy.certificates)
    core = {as_.as_id: as_ for as_ in this.ases.values() if as_.is_core and as_.isd_id == isd.pk}
    store = _CoreStore(this, isd, core, _coordinated_here(core.values()))
    issued: list[Issue] = []
    for kind in (*IN_TRC, Kind.CA):
        for row in this.network.keys.values():
            credential = credentials.get(row.pk)
            if credential is None or row.usage != kind.value or _isd_of(credential) != isd.isd_id:
                continue
            issuer = _issuer(isd, credential) if kind is Kind.CA else None
            if (issuer is None) if kind is Kind.CA else (credential.certificate not in named):
                this.report.notes.append(f"{row.name} is left out: the newest TRC of {isd} does not vouch for it")
                continue
            issued += store.add(row, credential, issuer)
    return issued


@dataclass(frozen=True)
class _CoreStore:
    """For one ISD. `core`: its core ASes by number, `ours`: those managed here, by primary key."""

    this: Import
    isd: ISD
    core: dict[int, AS]
    ours: set[int]

    def add(self, row: rows.Key, credential: Credential, issuer: Certificate | None) -> list[Issue]:
        """Replace an imported one; those that this service created are kept. One of an AS that is no longer core only
        votes on the next TRC."""
        as_, count = self.core.get(row.as_id), self.this.report.counts["key"]
        same = Certificate.objects.filter(isd=self.isd, as_id=row.as_id, kind=row.usage)
        in_use = same.filter(replaced_at=None).first()
        content = credential.certificate.public_bytes(Encoding.DER)
        if any(bytes(one.content) == content for one in same):
            count.same += 1
            return []
        if in_use is not None and as_ is not None and as_.pk in self.ours:
            self.this.report.kept.append(f"key {row.pk} ({row.name}): another one is in use here")
            count.same += 1
            return []
        now = self.this.now
        replaced_at = None if as_ is not None else now
        _, issued = certificate_store(self.isd, row.as_id, credential, issuer, now=now, replaced_at=replaced_at)
        _count(self.this, is_new=in_use is None)
        return [issued]


def _issuer(isd: ISD, credential: Credential) -> Certificate | None:
    roots = Certificate.objects.filter(isd=isd, kind=Kind.ROOT.value, replaced_at=None)
    return next((root for root in roots if _is_issued(credential.certificate, certificate_of(root))), None)


def _is_issued(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return Validity.of(issuer).covers(Validity.of(certificate))


def _isd_of(credential: Credential) -> int:
    return parse_isd_as(isd_as_of(credential.certificate))[0]


def _coordinated_here(ases: Iterable[AS]) -> set[int]:
    hosts = Host.objects.filter(AS__in=[as_.pk for as_ in ases], limits_only=False)
    return {pk for pk in hosts.values_list("AS", flat=True) if pk is not None}


def _count(this: Import, *, is_new: bool) -> None:
    this.report.counts["key"].made += is_new
    this.report.counts["key"].changed += not is_new


# --- each AS's own ----------------------------------------------------------------------------------------------------


def _import_own(this: Import, credentials: dict[int, Credential]) -> list[Issue]:
    """Master keys and chains. Invalid or expired chains are skipped: a takeover creates new ones."""
    usage = Kind.AS.value
    chains = {row.as_pk: row for row in this.network.keys.values() if row.usage == usage and row.pk in credentials}
    cas: dict[int, list[tuple[Certificate, x509.Certificate]]] = {}
    for stored_ca in Certificate.objects.filter(kind=Kind.CA.value, replaced_at=None):
        cas.setdefault(stored_ca.isd_id, []).append((stored_ca, certificate_of(stored_ca)))
    stored = {keys.AS_id: keys for keys in ASKeys.objects.filter(AS__in=[as_.pk for as_ in this.ases.values()])}
    ours, ended = _coordinated_here(this.ases.values()), 0
    new, changed, issued = list[ASKeys](), list[ASKeys](), list[Issue]()
    for as_pk, as_ in this.ases.items():
        row, found = chains.get(as_pk), stored.get(as_.pk)
        if found is not None and as_.pk in ours:
            this.report.counts["key"].same += row is not None
            continue
        keys = found or ASKeys(AS=as_)
        is_changed = _set_master_key(this, this.network.ases[as_pk], keys)
        if not keys.master0_encrypted:
            continue  # rejected
        if row is not None:
            certificate = credentials[row.pk].certificate
            ca = next((ca for ca, one in cas.get(as_.isd_id, []) if _is_issued(certificate, one)), None)
            if ca is None or isd_as_of(certificate) != as_.isd_as:
                text = (
                    f"No CA of {as_.isd} issued its certificate {row.certificate_pk}. Renew the keys of the AS there."
                )
                this.refuse("key", row, text)
            elif Validity.of(certificate).not_after <= this.now:
                ended += 1
            elif keys.content and bytes(keys.content) == certificate.public_bytes(Encoding.DER):
                this.report.counts["key"].same += 1
            else:
                is_changed = True
                _count(this, is_new=not keys.content)
                issued.append(chain_set(keys, ca, credentials[row.pk]))
        if is_changed:
            (new if found is None else changed).append(keys)
    if ended:
        this.report.notes.append(f"{ended} certificates of ASes have expired, and are left out")
    ASKeys.objects.bulk_create(new, batch_size=BATCH)
    ASKeys.objects.bulk_update(changed, _OF_KEYS, batch_size=BATCH)
    return issued


def _set_master_key(this: Import, row: rows.As, keys: ASKeys) -> bool:
    """True if changed. The other service writes one key into both files; without it, two are created."""
    if row.master_key:
        try:
            raw = _base64(row.master_key, "pki_key_invalid", f"a master key of {MASTER_KEY_BYTES} bytes")
            if len(raw) != MASTER_KEY_BYTES:
                text = f"Its master key has {len(raw)} bytes, not {MASTER_KEY_BYTES}. Correct it there."
                raise RuleError("pki_key_invalid", text)
        except RuleError as exc:
            this.refuse("as", row, exc.message)
            return False
        first = second = base64.b64encode(raw)
        if keys.pk and opened(keys.master0_encrypted, f"The master keys of {row.name}") == first:
            return False
    elif keys.pk:
        return False
    else:
        first, second = new_master_key(), new_master_key()
    keys.master0_encrypted, keys.master1_encrypted = sealed(first), sealed(second)
    return True
