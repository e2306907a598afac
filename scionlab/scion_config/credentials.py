"""Trust files of a host: keys, certificates and TRCs.

Read-only. `scion_config.isd` creates voters, roots, CAs and TRCs, `scion_config.chain` AS certificates and master keys;
`scion_config.renewal` renews them. docs/scion-keys.md says which host has which key.
"""

from __future__ import annotations

from cryptography import x509

from scionlab.platform.secrets_box import opened
from scionlab.scion_config.models import TRC, ASKeys, Certificate
from scionlab.scion_config.pki import files
from scionlab.scion_config.pki import trc as trcs
from scionlab.scion_config.pki.certificates import Credential, Validity
from scionlab.scion_config.pki.keys import key_from_pem
from scionlab.scion_config.pki.trc import Trc
from scionlab.testbed.models import AS, Host
from scionlab.testbed.selectors import control_service_host

Kinds = Certificate.Kind


def files_for(host: Host) -> dict[str, bytes]:
    """Return path in the tarball -> content; deterministic. Every TRC of the testbed, and the master keys of the host's
    AS. The first host of the AS, where its control service runs, also gets chain and key; for a core AS also the files
    of CA and voters. Missing ones are left out. Raises `RuleError` (`secret_unreadable`)."""
    found = files.trc_files(bytes(one) for one in TRC.objects.values_list("content", flat=True))
    keys = ASKeys.objects.select_related("AS__isd", "ca").filter(AS=host.AS_id).first() if host.AS_id else None
    if keys is not None:
        what = f"The master keys of {keys.AS.isd_as}"
        found |= files.master_key_files(opened(keys.master0_encrypted, what), opened(keys.master1_encrypted, what))
        if control_service_host(keys.AS_id) == host:
            found |= _chain_files(keys) | _core_files(keys.AS)
    return {f"etc/scion/{path}": found[path] for path in sorted(found)}


def _chain_files(keys: ASKeys) -> dict[str, bytes]:
    if keys.ca is None:
        return {}
    key = key_from_pem(opened(keys.private_encrypted, f"The key of {keys.AS.isd_as}"))
    own = Credential(x509.load_der_x509_certificate(bytes(keys.content)), key)
    return files.chain_files(own, certificate_of(keys.ca))


def _core_files(as_: AS) -> dict[str, bytes]:
    held = {row.kind: row for row in in_use(as_)}
    if not {Kinds.SENSITIVE, Kinds.REGULAR, Kinds.CA} <= held.keys():
        return {}
    voters = (credential_of(held[Kinds.SENSITIVE]), credential_of(held[Kinds.REGULAR]))
    return files.ca_files(credential_of(held[Kinds.CA])) | files.voting_files(*voters)


# --- stored credentials -------------------------------------------------------------------------------------------


def in_use(as_: AS) -> list[Certificate]:
    """Its core AS certificates, at most one per kind; none for other ASes."""
    rows = Certificate.objects.filter(isd=as_.isd_id, as_id=as_.as_id, replaced_at=None)
    return list(rows.select_related("isd", "issuer"))


def newest_trc(isd_id: int) -> Trc | None:
    """`isd_id` is the ISD's primary key."""
    row = TRC.objects.filter(isd=isd_id).order_by("base", "serial").last()
    return None if row is None else trcs.read(bytes(row.content))


def certificate_of(row: Certificate) -> x509.Certificate:
    return x509.load_der_x509_certificate(bytes(row.content))


def credential_of(row: Certificate) -> Credential:
    """Raises `RuleError` (`secret_unreadable`, `pki_key_invalid`)."""
    pem = opened(row.private_encrypted, f"The key of the {row.get_kind_display()} of {row.isd_as}")
    return Credential(certificate_of(row), key_from_pem(pem))


def within(issuer: Credential, wanted: Validity) -> Validity:
    """`wanted`, limited to the issuer's validity."""
    covering = Validity.of(issuer.certificate)
    return Validity(max(wanted.not_before, covering.not_before), min(wanted.not_after, covering.not_after))
