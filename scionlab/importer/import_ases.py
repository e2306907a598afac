"""Import steps: users, ISDs, ASes, hosts and border routers.

Each step reads existing rows in one or two statements, matches them by stable attributes (email address, ISD and AS
number, host id), and creates or changes the rest in bulk. A host that is no longer limits only is managed here and not
changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from django.contrib.auth.hashers import identify_hasher, make_password

from scionlab.accounts.models import User
from scionlab.importer import rows
from scionlab.importer.import_rules import public_addresses
from scionlab.importer.import_state import BATCH, REASON, Import, differing, is_to_change
from scionlab.testbed import audit
from scionlab.testbed.models import AS, ISD, BandwidthChange, BorderRouter, DeletedHost, Host, InstalledFiles, UserAS
from scionlab.testbed.models.link import is_user_as

_MAX_PASSWORD: Final = User._meta.get_field("password").max_length or 0


# --- people ---------------------------------------------------------------------------------------------------


def import_users(this: Import) -> None:
    """Accounts are only created: later changes here are kept."""
    here = {user.email.lower(): user for user in User.objects.all()}
    new: dict[int, User] = {}
    without: list[str] = []
    count = this.report.counts["user"]
    for row in this.network.users.values():
        if not this.takes("user", row):
            continue
        found = here.get(row.email.lower())
        if found is not None:
            this.users[row.pk] = found.pk
            count.same += 1
            if found.is_active != row.is_active:
                this.keep("user", row, differing(found, {"is_active": row.is_active}))
            continue
        is_verifiable = _is_verifiable(row.password)
        without += [] if is_verifiable else [row.email]
        password = row.password if is_verifiable else make_password(None)
        new[row.pk] = User(email=row.email.lower(), full_name=row.full_name, is_active=row.is_active, password=password)
    User.objects.bulk_create(new.values(), batch_size=BATCH)
    this.users |= {pk: user.pk for pk, user in new.items()}
    count.made += len(new)
    if without:
        text = f"{len(without)} new accounts have no password that can be verified here, and must choose a new one"
        this.report.notes.append(f'{text} ("Forgot your password?"): {", ".join(sorted(without))}')


def _is_verifiable(encoded: str) -> bool:
    """Whether the hash is of one of PASSWORD_HASHERS, well formed, and fits its column."""
    try:
        identify_hasher(encoded).decode(encoded)
    except (ValueError, AssertionError, LookupError, TypeError):
        return False
    return len(encoded) <= _MAX_PASSWORD


# --- ISDs and ASes --------------------------------------------------------------------------------------------


def import_isds(this: Import) -> None:
    here = {isd.isd_id: isd for isd in ISD.objects.all()}
    new: list[ISD] = []
    count = this.report.counts["isd"]
    for row in this.network.isds.values():
        if len(row.pks) > 1:
            keys = ", ".join(map(str, row.pks))
            this.report.merged.append(f"{row.name}: rows {keys} there are one ISD here")
        if not this.takes("isd", row):
            continue
        found = here.get(row.number)
        if found is None:
            found = ISD(isd_id=row.number, label=row.label)
            new.append(found)
            count.made += 1
        else:
            count.same += 1
        this.isds[row.number] = found
    ISD.objects.bulk_create(new)


def import_ases(this: Import) -> None:
    here = {as_.as_id: as_ for as_ in AS.objects.select_related("isd", "useras__owner")}
    hosts_here: dict[int | None, dict[str, bool]] = defaultdict(dict)
    for as_pk, uid, limits_only in Host.objects.values_list("AS", "uid", "limits_only"):
        hosts_here[as_pk][uid] = limits_only
    uids: dict[int | None, set[str]] = defaultdict(set)
    for host in this.network.hosts.values():
        uids[host.as_pk].add(host.uid)
    new: dict[int, AS] = {}
    changed: list[AS] = []
    for row in this.network.ases.values():
        owner = {} if row.owner is None else {"user": (row.owner, this.users)}
        if not this.takes("as", row, isd=(row.isd, this.isds), **owner):
            continue
        found = here.get(row.as_id)
        if found is None:
            new[row.pk] = AS(isd=this.isds[row.isd], as_id=row.as_id, label=row.label, is_core=row.is_core)
        elif _is_another(found, row, hosts_here[found.pk], uids[row.pk]):
            text = f"{found} already exists here with other hosts, or is of another kind. Delete one of them."
            this.refuse("as", row, text)
        else:
            hosts = hosts_here[found.pk].values()
            changed += _compare_as(this, row, found, is_ours=bool(hosts) and not any(hosts))
            this.ases[row.pk] = found
    AS.objects.bulk_update(changed, ["isd", "is_core"], batch_size=BATCH)
    AS.objects.bulk_create(new.values(), batch_size=BATCH)
    _make_user_ases(this, new)
    this.ases |= new
    this.report.counts["as"].made += len(new)


def _is_another(found: AS, row: rows.As, hosts_here: Mapping[str, bool], uids: set[str]) -> bool:
    """User AS numbers are assigned by both services, host ids are unique. `hosts_here`: by host id, whether it has
    limits only, as imported hosts do."""
    is_made_here = bool(hosts_here) and not any(hosts_here.values())
    return (is_made_here and uids.isdisjoint(hosts_here)) or is_user_as(found) != row.is_user_as


def _compare_as(this: Import, row: rows.As, found: AS, *, is_ours: bool) -> list[AS]:
    """Returns the AS if it is to be stored."""
    if row.is_user_as:
        this.report.counts["useras"].same += 1
        if found.useras.owner_id != this.users[row.owner or 0]:
            owner = this.network.users[row.owner or 0].email
            this.keep("as", row, {"owner": (found.useras.owner, owner)})
    isd, wanted = found.isd, {"isd": this.isds[row.isd], "is_core": row.is_core}
    if not is_to_change(this, "as", row, found, wanted, is_ours=is_ours):
        return []
    (this.recored if found.isd == isd else this.renumbered).add(found.pk)
    return [found]


def _make_user_ases(this: Import, new: Mapping[int, AS]) -> None:
    """Creates rows one by one: Django has no bulk for a model that extends a stored one."""
    for pk, as_ in new.items():
        row = this.network.ases[pk]
        if row.owner is not None:
            types = UserAS.Installation
            kind = types.VM if row.installation_type == "VM" else types.DEDICATED
            made = UserAS(as_ptr_id=as_.pk, owner_id=this.users[row.owner], installation_type=kind)
            made.save_base(raw=True, force_insert=True)
            this.report.counts["useras"].made += 1


# --- hosts and border routers -----------------------------------------------------------------------------------


def import_hosts(this: Import) -> None:
    here = {host.uid: host for host in Host.objects.select_related("AS__isd")}
    new: dict[int, Host] = {}
    changed: list[Host] = []
    for row in this.network.hosts.values():
        if row.as_pk is None or not this.takes("host", row, as_=(row.as_pk, this.ases)):
            continue
        as_, found = this.ases[row.as_pk], here.get(row.uid)
        if found is None:
            new[row.pk] = _new_host(row, as_)
        elif found.AS_id != as_.pk:
            text = f"Its host id is that of a host of {found.AS or 'no AS'} here. Delete that one first."
            this.refuse("host", row, text)
        else:
            changed += _compare_host(this, row, found)
            this.hosts[row.pk] = found
    Host.objects.bulk_update(changed, ["internal_ip", "public_ipv4", "public_ipv6", "bind_ip"], batch_size=BATCH)
    Host.objects.bulk_create(new.values(), batch_size=BATCH)
    _note_new_hosts(this, new.values())
    this.hosts |= new
    deleted = sum(row.as_pk is None for row in this.network.hosts.values())
    if deleted:
        this.report.notes.append(f"{deleted} hosts have no AS there (it was deleted), and are left out")


def _new_host(row: rows.Host, as_: AS) -> Host:
    return Host(
        AS=as_,
        uid=row.uid,
        secret=row.secret,
        label=row.label,
        internal_ip=row.internal_ip,
        bind_ip=row.bind_ip,
        limits_only=True,
        **public_addresses(row.public_ip),
    )


def _note_new_hosts(this: Import, made: Iterable[Host]) -> None:
    hosts = list(made)
    this.new_hosts |= {host.pk for host in hosts}
    this.report.counts["host"].made += len(hosts)
    InstalledFiles.objects.bulk_create(
        (InstalledFiles(host=host, owner=InstalledFiles.Owner.OTHER, seen_at=this.now) for host in hosts),
        batch_size=BATCH,
    )
    # Deleted here before: it is back, and may be deleted again.
    DeletedHost.objects.filter(uid__in=Host.objects.values("uid")).delete()
    detail = "Limits only: another service manages the SCION files"
    kind = BandwidthChange.Kind.HOST_LIMITS_ONLY
    audit.note_hosts(hosts, kind=kind, actor=None, detail=detail, reason=REASON)


def _compare_host(this: Import, row: rows.Host, found: Host) -> list[Host]:
    """Returns the hosts to be stored. An address that the source lacks is kept as set here."""
    wanted: dict[str, object] = {"internal_ip": row.internal_ip, "bind_ip": row.bind_ip}
    wanted |= {name: ip for name, ip in public_addresses(row.public_ip).items() if ip}
    if found.secret != row.secret:
        this.report.kept.append(f"host {row.pk} ({row.name}): the secret is another one here")
    internal_ip = found.internal_ip
    if not is_to_change(this, "host", row, found, wanted, is_ours=not found.limits_only):
        return []
    if found.internal_ip != internal_ip:
        this.readdressed.add(found.pk)
    return [found]


def import_routers(this: Import) -> None:
    here = {(router.host_id, router.number): router for router in BorderRouter.objects.all()}
    new: dict[int, BorderRouter] = {}
    for row in this.network.routers.values():
        if not this.takes("borderrouter", row, host=(row.host, this.hosts)):
            continue
        host = this.hosts[row.host]
        found = here.get((host.pk, row.number))
        if found is None:
            new[row.pk] = BorderRouter(host=host, number=row.number)
        else:
            this.routers[row.pk] = found
            this.report.counts["borderrouter"].same += 1
    BorderRouter.objects.bulk_create(new.values(), batch_size=BATCH)
    this.routers |= new
    this.report.counts["borderrouter"].made += len(new)
