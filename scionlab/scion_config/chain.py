"""Keys of an AS: master keys, and certificate and key of its control service. The AS's row is the lock.

A new certificate raises H only of the control service's host, new master keys that of all hosts of the AS: with
different ones they would reject each other's paths.
"""

from __future__ import annotations

from datetime import datetime

from cryptography.hazmat.primitives.serialization import Encoding
from django.db import transaction
from django.db.models import Q

from bandwidth_config import RuleError
from scionlab.accounts.models import User
from scionlab.platform.clock import database_now
from scionlab.platform.queue import RENEW_KEYS, queue_after_commit
from scionlab.platform.retry import retried
from scionlab.platform.secrets_box import check_secret, sealed
from scionlab.scion_config.credentials import credential_of, within
from scionlab.scion_config.isd import core_keys_withdraw, isd_ensure, issue_of
from scionlab.scion_config.models import ASKeys, Certificate
from scionlab.scion_config.pki.certificates import Credential, Kind, Validity, isd_as_of, issue
from scionlab.scion_config.pki.keys import key_to_pem, new_key, new_master_key
from scionlab.scion_config.pki.lifetimes import LIFETIME, as_renewed_from
from scionlab.testbed import audit, locks
from scionlab.testbed.audit import Issue
from scionlab.testbed.models import AS, BandwidthChange, Host
from scionlab.testbed.selectors import control_service_host
from scionlab.testbed.versions.counters import hosts_bump

_OF_A_CERTIFICATE = ("ca", "content", "private_encrypted", "not_after", "renew_at")


def usable_ca(now: datetime) -> Q:
    return Q(kind=Certificate.Kind.CA, replaced_at=None, not_before__lte=now, not_after__gt=now)


def as_equip(as_: AS, *, actor: User | None) -> None:
    """Create keys and certificates of a new AS, in its transaction. No counter rises, as nothing was fetched. Raises
    `RuleError` (`secret_unreadable`; for a core AS as `isd_ensure`)."""
    if as_.is_core:
        as_role_changed(as_, actor=actor)
    own_keys_make([as_], actor=actor, is_new=True)


def as_role_changed(as_: AS, *, actor: User | None) -> None:
    """Update the ISD after an AS became core, is no longer core, or was deleted. The task does the rest. Raises
    `RuleError` as `isd_ensure`."""
    if isd_ensure(isd_id=as_.isd_id, actor=actor):
        queue_after_commit(RENEW_KEYS)


def own_keys_make(
    ases: list[AS], *, actor: User | None, now: datetime | None = None, reason: str = "", is_new: bool = False
) -> set[int]:
    """Create a new certificate and key for each AS, and missing master keys. The ASes' rows are locked, or new
    (`is_new`). Returns the hosts whose configuration contains replaced keys. Raises `RuleError`
    (`secret_unreadable`)."""
    check_secret()
    now, pks = now or database_now(), [as_.pk for as_ in ases]
    if not is_new:  # otherwise a configuration being rendered might contain replaced keys unnoticed
        locks.lock_hosts(Host.objects.filter(AS__in=pks).values_list("pk", flat=True))
    stored = {keys.AS_id: keys for keys in ASKeys.objects.filter(AS__in=pks)}
    issued: list[Issue] = []
    stale = set()
    for as_ in ases:
        keys = stored.get(as_.pk) or _master_keys(as_)
        if not is_new:
            stale |= _hosts_with_new_files(as_, has_new_master_keys=keys.pk is None)
        issued += _certify(keys, as_, now)
        keys.save(update_fields=None if keys.pk is None else _OF_A_CERTIFICATE)
    audit.note_issues(issued, actor=actor, reason=reason)
    return stale


def _hosts_with_new_files(as_: AS, *, has_new_master_keys: bool) -> set[int]:
    first = control_service_host(as_.pk)
    served = Host.objects.filter(AS=as_, limits_only=False)
    return {host.pk for host in served if has_new_master_keys or host == first}


def _master_keys(as_: AS) -> ASKeys:
    """Not stored yet."""
    first, second = sealed(new_master_key()), sealed(new_master_key())
    return ASKeys(AS=as_, master0_encrypted=first, master1_encrypted=second)


def _certify(keys: ASKeys, as_: AS, now: datetime) -> list[Issue]:
    """Does nothing while the ISD has no CA."""
    ca = ca_for(as_, now)
    if ca is None:
        return []
    issuer, key = credential_of(ca), new_key()
    validity = within(issuer, Validity.starting(now, LIFETIME[Kind.AS]))
    certificate = issue(Kind.AS, as_.isd_as, validity, key.public_key(), issuer)
    issued = chain_set(keys, ca, Credential(certificate, key))
    # Not in the first third of its life: a certificate that is short because its CA could not be renewed is not
    # replaced every hour.
    earliest = now + (validity.not_after - now) / 3
    keys.renew_at = max(as_renewed_from(validity.not_after, as_.isd_as), earliest)
    return [issued]


def chain_set(keys: ASKeys, ca: Certificate, own: Credential) -> Issue:
    """Set the certificate that `ca` issued, without storing it."""
    keys.ca, keys.content = ca, own.certificate.public_bytes(Encoding.DER)
    keys.private_encrypted = sealed(key_to_pem(own.key))
    keys.not_after = own.certificate.not_valid_after_utc
    keys.renew_at = as_renewed_from(keys.not_after, isd_as_of(own.certificate))
    return issue_of(own.certificate)


def ca_for(as_: AS, now: datetime) -> Certificate | None:
    """The issuer of its certificate: its own CA for a core AS, otherwise that of the ISD's first core AS."""
    rows = Certificate.objects.filter(usable_ca(now), isd=as_.isd_id)
    found = list(rows.select_related("isd").order_by("as_id"))
    own = [row for row in found if row.as_id == as_.as_id]
    return next(iter(own + found), None)


@retried
@transaction.atomic
def as_new_keys(*, as_id: int, actor: User, reason: str = "", master: bool = False, core: bool = False) -> AS:
    """Replace lost or leaked keys: a new certificate and key. H of the hosts that get them rises once.

    `master`: also new master keys, so H of all hosts of the AS rises, and paths through it are renewed over hours.
    `core`: also new voters, root and CA of a core AS, and a TRC with them; the task then issues new certificates to all
    ASes below. Raises `RuleError` (`as_not_core`, `isd_without_core_as`, and those of `isd_ensure`), `AS.DoesNotExist`.
    """
    now = database_now()
    as_ = AS.objects.select_related("isd").get(pk=as_id)
    if core:
        locks.lock_isd(as_.isd_id)
    locks.lock_keys_of_ases([as_id])
    as_ = AS.objects.select_related("isd").get(pk=as_id)
    if core:
        _renew_core(as_, actor=actor, now=now, reason=reason)
    if ca_for(as_, now) is None:
        text = f"ISD {as_.isd.isd_id} has no core AS with a CA that issues certificates. Create a core AS first."
        raise RuleError("isd_without_core_as", text)
    stale = own_keys_make([as_], actor=actor, now=now, reason=reason)
    if master:
        _renew_master_keys(as_, actor=actor, reason=reason)
        stale |= _hosts_with_new_files(as_, has_new_master_keys=True)
    hosts_bump(alone_ids=stale)
    return as_


def _renew_core(as_: AS, *, actor: User, now: datetime, reason: str) -> None:
    if not as_.is_core:
        raise RuleError("as_not_core", f"{as_} is not a core AS: it has no voters, root or CA.")
    core_keys_withdraw(as_, now)
    isd_ensure(isd_id=as_.isd_id, actor=actor, now=now, reason=reason)
    queue_after_commit(RENEW_KEYS)


def _renew_master_keys(as_: AS, *, actor: User, reason: str) -> None:
    first, second = sealed(new_master_key()), sealed(new_master_key())
    ASKeys.objects.filter(AS=as_).update(master0_encrypted=first, master1_encrypted=second)
    made = Issue(BandwidthChange.Kind.CERTIFICATE, as_.isd_as, "new master keys")
    audit.note_issues([made], actor=actor, reason=reason)
