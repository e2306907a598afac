"""Certificates and keys on the pages of ISDs, ASes and VPNs that `testbed` and `user_ases` registered."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import F, QuerySet
from django.http import HttpRequest

from scionlab.platform.notation.shown import age
from scionlab.scion_config.admin.trust import KeysPages, certificate_table, trc_table
from scionlab.scion_config.vpn import vpn_keys_renew
from scionlab.testbed.admin import ASAdmin, ISDAdmin, VPNAdmin
from scionlab.testbed.models import AS, ISD, VPN, UserAS
from scionlab.user_ases.admin.user_as import UserASAdmin
from scionlab.web.admin.base import actor_of, apply_to_each, reason_of

admin.site.unregister([ISD, AS, UserAS, VPN])


@admin.register(ISD)
class ISDWithTrcs(ISDAdmin):
    fields = [*ISDAdmin.fields, "trcs"]

    @admin.display(description="TRCs")
    def trcs(self, obj: ISD) -> str:
        return trc_table(obj)


@admin.register(AS)
class ASWithKeys(KeysPages, ASAdmin):
    change_form_template = "admin/testbed/as/change_form.html"
    fields = [*ASAdmin.fields, "certificates"]

    @admin.display(description="certificates")
    def certificates(self, obj: AS) -> str:
        return certificate_table(obj)


@admin.register(UserAS)
class UserASWithKeys(UserASAdmin):
    change_form_template = "admin/testbed/as/change_form.html"
    fields = [*UserASAdmin.fields, "certificates"]

    @admin.display(description="certificates")
    def certificates(self, obj: UserAS) -> str:
        return certificate_table(obj)


@admin.register(VPN)
class VPNWithKeys(VPNAdmin):
    list_display = [*VPNAdmin.list_display, "keys_made"]
    fields = [*VPNAdmin.fields, "keys_made"]
    actions = ["make_keys"]
    note = (
        "This service creates the keys of the server and its clients and sends them with the configurations. "
        f"{VPNAdmin.note}"
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[VPN]:
        rows: QuerySet[VPN] = super().get_queryset(request)
        return rows.annotate(made_at=F("keys__made_at"))

    @admin.action(description="Create new keys for the selected VPNs (SCION and OpenVPN restart on all of their hosts)")
    def make_keys(self, request: HttpRequest, queryset: QuerySet[VPN]) -> None:
        def service(vpn: VPN) -> None:
            vpn_keys_renew(vpn_id=vpn.pk, actor=actor_of(request), reason=reason_of(request))
            self.log_change(request, vpn, "Created new keys.")

        done = "{count} VPNs have new keys. Each is down until its hosts have installed them."
        apply_to_each(self, request, queryset.order_by("pk"), service, done)

    @admin.display(description="keys created", ordering="made_at")
    def keys_made(self, obj: Any) -> str:
        return "none" if obj.made_at is None else age(obj.made_at)
