"""Import steps: VPNs, attachment points, clients of VPNs, and notes on quotas."""

from __future__ import annotations

import ipaddress
from collections import Counter
from typing import Any

from django.db.models import Count

from scionlab.accounts.models import User
from scionlab.importer.import_rules import clients_in_use, vpns_in_use
from scionlab.importer.import_state import BATCH, REASON, Import, is_to_change
from scionlab.limits.defaults import apply_default
from scionlab.testbed import audit, selectors
from scionlab.testbed.infrastructure import check_subnet
from scionlab.testbed.life import LIVES
from scionlab.testbed.models import VPN, AttachmentPoint, VPNClient
from scionlab.testbed.vpn_clients import MAX_CLIENTS
from scionlab.user_ases.attachments import MAX_ATTACHMENTS


def import_vpns(this: Import) -> None:
    here = {vpn.host_id: vpn for vpn in VPN.objects.all()}
    for row in vpns_in_use(this.network).values():
        if not this.takes("vpn", row, host=(row.host, this.hosts)):
            continue
        host = this.hosts[row.host]
        subnet = str(check_subnet(row.subnet))
        wanted: dict[str, Any] = {"subnet": subnet, "server_ip": row.server_ip, "server_port": row.server_port}
        found = here.get(host.pk)
        if found is None:
            found = VPN.objects.create(host=host, **wanted)
            for life in LIVES:
                life.vpn_made(found)
            this.report.counts["vpn"].made += 1
        elif is_to_change(this, "vpn", row, found, wanted, is_ours=not host.limits_only):
            found.save(update_fields=list(wanted))
        this.vpns[row.pk] = found
    others = len(this.network.vpns) - len(vpns_in_use(this.network))
    if others:
        this.report.notes.append(f"{others} VPNs belong to no attachment point, and are left out")


def import_attachment_points(this: Import) -> None:
    policy = selectors.policy()
    for ap_id in AttachmentPoint.objects.order_by("pk").values_list("pk", flat=True):
        apply_default(ap_id, this.changes)  # a new Link must not be clamped to an outdated maximum
    here = {ap.AS_id: ap for ap in AttachmentPoint.objects.select_related("AS__isd", "host")}
    count = this.report.counts["attachmentpoint"]
    for row in this.network.attachment_points.values():
        vpn = {} if row.vpn is None else {"vpn": (row.vpn, this.vpns)}
        if not this.takes("attachmentpoint", row, as_=(row.as_pk, this.ases), host=(row.host, this.hosts), **vpn):
            continue
        as_, host = this.ases[row.as_pk], this.hosts[row.host or 0]
        found = here.get(as_.pk)
        if found is None and not host.limits_only:
            text = f"Its host {host} is not limits only: this service manages it. Create the attachment point here."
            this.refuse("attachmentpoint", row, text)
            continue
        if found is not None and found.host_id != host.pk:
            text = f"Links of user ASes end on host {row.host} there, and on {found.host} here. Make both the same."
            this.refuse("attachmentpoint", row, text)
            continue
        if found is None:
            found = AttachmentPoint(AS=as_, host=host, observe_only=True)
            found.maximum_kbit = found.default_in_force(policy)
            found.save()
            audit.note_observing(found, actor=None, reason=REASON)
            this.changes.note_documents([host.pk])
            count.made += 1
        else:
            count.same += 1
        this.attachment_points[row.pk] = found


def import_clients(this: Import) -> None:
    here = {(client.vpn_id, client.host_id): client for client in VPNClient.objects.all()}
    owner_of = {(client.vpn_id, client.ip): client for client in here.values()}
    new: dict[int, VPNClient] = {}
    moving: list[VPNClient] = []
    room = {vpn.pk: MAX_CLIENTS - vpn.count for vpn in VPN.objects.annotate(count=Count("clients"))}
    for row in clients_in_use(this.network).values():
        if not this.takes("vpnclient", row, vpn=(row.vpn, this.vpns), host=(row.host, this.hosts)):
            continue
        vpn, host = this.vpns[row.vpn], this.hosts[row.host]
        found, owner = here.get((vpn.pk, host.pk)), owner_of.get((vpn.pk, row.ip))
        if owner is not None and owner is not found and not _is_in_file(this, owner):
            text = f"Its address is that of another host in the VPN here ({owner.host}). Change one of them."
            this.refuse("vpnclient", row, text)
            continue
        if found is None:
            if room[vpn.pk] <= 0:
                text = f"{vpn} has {MAX_CLIENTS} clients, the most. Attach the AS at another one there."
                this.refuse("vpnclient", row, text)
                continue
            room[vpn.pk] -= 1
            new[row.pk] = VPNClient(vpn=vpn, host=host, ip=row.ip)
            continue
        if is_to_change(this, "vpnclient", row, found, {"ip": row.ip}, is_ours=not host.limits_only):
            moving.append(found)
        this.clients[row.pk] = found
    for client in moving:  # move out of the way: the unique constraint is checked per statement
        VPNClient.objects.filter(pk=client.pk).update(ip=str(ipaddress.IPv6Address(client.pk)))
    VPNClient.objects.bulk_update(moving, ["ip"], batch_size=BATCH)
    VPNClient.objects.bulk_create(new.values(), batch_size=BATCH)
    for life in LIVES:
        life.vpn_clients_made(list(new.values()))
    this.clients |= new
    this.report.counts["vpnclient"].made += len(new)


def _is_in_file(this: Import, client: VPNClient) -> bool:
    clients = this.network.clients.values()
    placed = (row for row in clients if row.vpn in this.vpns and row.host in this.hosts)
    return (client.vpn_id, client.host_id) in {(this.vpns[row.vpn].pk, this.hosts[row.host].pk) for row in placed}


# --- notes ------------------------------------------------------------------------------------------------------


def note_quotas(this: Import) -> None:
    """Note what a form would reject but no rule does."""
    ases = [row for pk, row in this.network.ases.items() if pk in this.ases and row.owner is not None]
    count = Counter(row.owner for row in ases)
    quota = dict(User.objects.values_list("pk", "as_quota"))
    for owner, number in count.items():
        allowed = quota[this.users[owner or 0]]
        if number > allowed:
            email = this.network.users[owner or 0].email
            this.report.notes.append(f"{email} has {number} ASes, above the quota of {allowed}: no more may be made")
    attached = Counter(link.b.as_pk for link in this.network.links.values() if link.is_limited)
    for row in ases:
        if attached[row.pk] > MAX_ATTACHMENTS:
            text = f"{row.name} has {attached[row.pk]} attachments, above {MAX_ATTACHMENTS}: its form refuses to save"
            this.report.notes.append(text)
    without = [row.name for row in ases if not attached[row.pk]]
    if without:
        text = f"{len(without)} user ASes have no attachment: {', '.join(sorted(without)[:20])}"
        this.report.notes.append(text + (", ..." if len(without) > 20 else ""))
