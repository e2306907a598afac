"""Certificates and keys on the pages of ISDs, ASes and VPNs that `testbed` and `user_ases` registered: expiry, and
renewal. No key is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.contrib import admin, messages
from django.db.models import F, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from bandwidth_config import RuleError
from scionlab.platform.clock import database_now
from scionlab.platform.notation.shown import age
from scionlab.scion_config.chain import as_new_keys
from scionlab.scion_config.credentials import in_use
from scionlab.scion_config.pki import trc as trcs
from scionlab.scion_config.pki.certificates import Kind, isd_as_of
from scionlab.scion_config.vpn import vpn_keys_renew
from scionlab.testbed.admin import ASAdmin, ISDAdmin, VPNAdmin
from scionlab.testbed.models import AS, ISD, VPN, UserAS
from scionlab.user_ases.admin.user_as import UserASAdmin
from scionlab.web.admin.base import actor_of, apply_to_each, reason_of
from scionlab.web.admin.columns import NOTHING, badge

admin.site.unregister([ISD, AS, UserAS, VPN])


def table(head: Iterable[str], rows: Iterable[Sequence[object]]) -> str:
    """Small HTML table for the page of an object; "none" without rows."""
    cells = (format_html_join("", "<td>{}</td>", ((cell,) for cell in row)) for row in rows)
    body = format_html_join("", "<tr>{}</tr>", ((row,) for row in cells))
    if not body:
        return "none"
    top = format_html_join("", "<th>{}</th>", ((cell,) for cell in head))
    return format_html('<table class="slb-links"><thead><tr>{}</tr></thead><tbody>{}</tbody></table>', top, body)


def trc_table(isd: ISD) -> str:
    """TRCs of the ISD, newest first, with the voters of the next update."""
    found = list(isd.trcs.select_related("isd").reverse())
    rows: list[tuple[object, ...]] = []
    for row in found:
        policy = trcs.read(bytes(row.content)).policy
        voters = [isd_as_of(one) for one in policy.of_kind(Kind.SENSITIVE).values()]
        decide = f"{', '.join(voters)}; quorum {policy.quorum} of {len(voters)}"
        state = _until(row.not_after) if row == found[0] else badge("quiet", "replaced")
        core = ", ".join(policy.core_ases)
        rows.append((row, f"{row.not_before:%Y-%m-%d}", f"{row.not_after:%Y-%m-%d}", state, core, decide))
    return table(["TRC", "From", "Until", "State", "Core ASes", "Voters"], rows)


def certificate_table(as_: AS) -> str:
    """Certificates of its control service, and of a core AS those of voters, root and CA."""
    rows: list[tuple[object, ...]] = []
    keys = getattr(as_, "keys", None)
    if keys is not None and keys.ca is not None and keys.not_after is not None:
        by = keys.ca.isd_as
        rows.append(("AS certificate", by, f"{keys.not_after:%Y-%m-%d}", _until(keys.not_after)))
    for row in in_use(as_):
        by = "itself" if row.issuer is None else "root"
        rows.append((row.get_kind_display(), by, f"{row.not_after:%Y-%m-%d}", _until(row.not_after)))
    return table(["Certificate of", "Issued by", "Until", "State"], rows) if rows else NOTHING


def _until(at: datetime) -> SafeString:
    return badge("good", "valid") if at > database_now() else badge("bad", "expired")


@admin.register(ISD)
class ISDWithTrcs(ISDAdmin):
    fields = [*ISDAdmin.fields, "trcs"]

    @admin.display(description="TRCs")
    def trcs(self, obj: ISD) -> str:
        return trc_table(obj)


@admin.register(AS)
class ASWithKeys(ASAdmin):
    change_form_template = "admin/testbed/as/change_form.html"
    fields = [*ASAdmin.fields, "certificates"]

    @admin.display(description="certificates")
    def certificates(self, obj: AS) -> str:
        return certificate_table(obj)

    def get_urls(self) -> list[URLPattern]:
        return [self.own_path("<int:pk>/keys/", self.keys_view, "keys"), *super().get_urls()]

    def keys_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show the effect; on POST, create new keys."""
        as_ = get_object_or_404(AS.objects.select_related("isd"), pk=pk)
        if request.method != "POST":
            return self.own_page(request, "testbed/as/keys.html", f"New keys for {as_}?", original=as_)
        given = request.POST
        try:
            as_new_keys(
                as_id=pk,
                actor=actor_of(request),
                reason=reason_of(request),
                master="master" in given,
                core="core" in given,
            )
        except RuleError as exc:
            self.message_user(request, exc.message, messages.ERROR)
        else:
            self.log_change(request, as_, "Created new keys.")
            words = f"{as_} has new keys. The host gets them with its next fetch."
            self.message_user(request, words, messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:testbed_as_change", args=[pk]))


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
