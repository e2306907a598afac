"""ISDs, infrastructure ASes, interfaces, border routers and VPNs."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html_join

from scionlab.platform.notation.isd_as import format_as_id
from scionlab.testbed import infrastructure
from scionlab.testbed.host import border_router_create
from scionlab.testbed.models import AS, ISD, VPN, BorderRouter, Host, Interface, Link
from scionlab.testbed.vpn_clients import MAX_CLIENTS
from scionlab.web.admin.base import (
    AdministratorsOnly,
    ReadOnlyAdmin,
    ReasonForm,
    ServiceAdmin,
    actor_of,
    reason_of,
)
from scionlab.web.admin.columns import NOTHING, ChoiceFilter, link_to, link_to_list, linked, marked
from scionlab.web.admin.search import FoundByAs
from scionlab.web.pages.forms import RuleField
from scionlab.web.pages.stale_pages import last_admin_change, refuse_stale, values_of


@admin.register(ISD)
class ISDAdmin(AdministratorsOnly):
    list_display = ["isd_id", "label", "ases"]
    search_fields = ["label", "isd_id"]
    compared = ("label",)
    add_fieldsets = [(None, {"fields": ["isd_id", "label"]})]
    fields = ["isd_id", "label"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[ISD]:
        rows: QuerySet[ISD] = super().get_queryset(request)
        return rows.annotate(as_count=Count("ases"))

    def save_model(self, request: HttpRequest, obj: ISD, form: Any, change: bool) -> None:
        """Save directly, as there is no service for it: with the row locked, and only the edited columns."""
        if not change:
            obj.save()
            return
        stored = values_of(ISD.objects.select_for_update(no_key=True).get(pk=obj.pk), self.compared)
        wanted, known = values_of(obj, self.compared), self.known(request, self.compared)
        refuse_stale(shown=known, stored=stored, wanted=wanted, last=lambda: last_admin_change(obj))
        obj.save(update_fields=[name for name in self.compared if wanted[name] != stored[name]])

    @admin.display(description="ASes", ordering="as_count")
    def ases(self, obj: Any) -> str:
        return link_to_list(AS, obj.as_count, isd__id__exact=obj.pk) if obj.as_count else "0"


def _address(label: str, help_text: str = "") -> forms.CharField:
    return forms.CharField(label=label, required=False, max_length=64, empty_value=None, help_text=help_text)


class NewASForm(ReasonForm):
    """A new AS is created with its host."""

    as_id = RuleField(
        infrastructure.infrastructure_as_id,
        label="AS id",
        help_text='Hexadecimal groups, like "ffaa:0:1107"; case-insensitive.',
    )
    public_ipv4 = _address("Public IPv4 of the first host")
    public_ipv6 = _address("Public IPv6 of the first host")
    bind_ip = _address("Bind IP", help_text="Local address if the host is behind NAT.")


class KindFilter(ChoiceFilter):
    title = "kind"
    parameter_name = "kind"
    found = {
        "ap": ("attachment points", Q(attachment_point__isnull=False)),
        "infrastructure": ("other infrastructure", Q(attachment_point=None, useras=None)),
        "user": ("user ASes", Q(useras__isnull=False)),
    }


@admin.register(AS)
class ASAdmin(FoundByAs, ServiceAdmin):
    form = ReasonForm
    add_form = NewASForm
    list_display = ["isd_as", "label", "kind", marked("is_core", "core"), "hosts", "links"]
    list_filter = [KindFilter, "isd", "is_core"]
    as_paths = [""]
    search_text = ["label", "useras__owner__email"]
    search_help_text = "ISD-AS (17-ffaa:0:1107, ffaa:0:1107 or ffaa:0:), label"
    rule_field = "as_id"
    compared = ("label", "is_core")
    add_fieldsets = [
        (None, {"fields": ["isd", "as_id", "label", "is_core", "public_ipv4", "public_ipv6", "bind_ip", "reason"]})
    ]
    fields = ["isd_as", "label", "is_core", "reason", "kind", "hosts", "links", "created_at"]
    note = "An AS is created with one host and one border router. Addresses and routers are edited on the host's page."

    def get_queryset(self, request: HttpRequest) -> QuerySet[AS]:
        related = ("isd", "useras__owner", "attachment_point")
        count = Count("interfaces", distinct=True)
        rows: QuerySet[AS] = super().get_queryset(request)
        return rows.select_related(*related).prefetch_related("hosts").annotate(link_count=count)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """User ASes are read-only here; they have their own pages."""
        return super().has_change_permission(request, obj) and getattr(obj, "useras", None) is None

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and getattr(obj, "useras", None) is None

    def save_model(self, request: HttpRequest, obj: AS, form: Any, change: bool) -> None:
        values = {**form.cleaned_data, "actor": actor_of(request)}
        if change:
            infrastructure.infrastructure_as_update(as_id=obj.pk, shown=self.shown(request), **values)
            return
        values |= {"isd": values["isd"].isd_id, "as_text": format_as_id(values.pop("as_id"))}
        obj.pk = infrastructure.infrastructure_as_create(**values).pk

    def delete_model(self, request: HttpRequest, obj: AS) -> None:
        infrastructure.infrastructure_as_delete(as_id=obj.pk, actor=actor_of(request), reason=reason_of(request))

    @admin.display(description="ISD-AS", ordering="as_id")
    def isd_as(self, obj: AS) -> str:
        return obj.isd_as

    @admin.display(description="kind")
    def kind(self, obj: AS) -> str:
        user_as = getattr(obj, "useras", None)
        if user_as is not None:
            return link_to(user_as, f"user AS of {user_as.owner}")
        ap = getattr(obj, "attachment_point", None)
        return "infrastructure" if ap is None else link_to(ap, "attachment point")

    @admin.display(description="hosts")
    def hosts(self, obj: AS) -> str:
        return format_html_join("", "{}<br>", ((link_to(host),) for host in obj.hosts.all())) or NOTHING

    @admin.display(description="Links", ordering="link_count")
    def links(self, obj: Any) -> str:
        return link_to_list(Link, obj.link_count, q=obj.isd_as) if obj.link_count else "0"


@admin.register(Interface)
class InterfaceAdmin(FoundByAs, ReadOnlyAdmin):
    list_display = ["name", "as_link", linked("host"), "public_ip", "public_port", "bind_ip", "bind_port", "link"]
    as_paths = ["AS__"]
    search_text = ["AS__label"]
    search_ips = ["public_ip", "bind_ip"]
    search_help_text = "ISD-AS (17-ffaa:1:b6, ffaa:1:b6 or b6), IP address"
    fields = ["name", "as_link", "host", "border_router", "public_ip", "public_port", "bind_ip", "bind_port"]
    fields += ["vpn_client", "link"]
    note = (
        "The service assigns ids and ports. Edit the addresses of a user AS on its own page, others on the page "
        "of the host."
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Interface]:
        links = [f"link_as_{end}__interface_{end_}__AS__isd" for end in "ab" for end_ in "ab"]
        related = ("AS__isd", "AS__useras", "host__AS__isd", "border_router__host", "vpn_client__vpn", *links)
        return super().get_queryset(request).select_related(*related)

    @admin.display(description="interface", ordering="interface_id")
    def name(self, obj: Interface) -> str:
        return str(obj)

    @admin.display(description="AS", ordering="AS__as_id")
    def as_link(self, obj: Interface) -> str:
        return link_to(getattr(obj.AS, "useras", None) or obj.AS, obj.AS.isd_as)

    @admin.display(description="Link")
    def link(self, obj: Interface) -> str:
        return link_to(getattr(obj, "link_as_a", None) or getattr(obj, "link_as_b", None))


@admin.register(BorderRouter)
class BorderRouterAdmin(ServiceAdmin):
    form = ReasonForm
    list_display = ["name", linked("host"), "internal_port", "interfaces"]
    search_fields = ["host__label"]
    offers = ("add",)
    rule_field = "host"
    add_fieldsets = [(None, {"fields": ["host", "reason"]})]
    fields = ["name", "host", "internal_port", "interfaces"]
    note = (
        "A host is created with its first border router; further ones are added here. The service assigns numbers and "
        "ports. A router is in the configuration of its AS once it has a Link."
    )

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "host":
            infrastructure_hosts = Host.objects.filter(AS__isnull=False, AS__useras=None)
            kwargs["queryset"] = infrastructure_hosts.select_related("AS__isd")
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def save_model(self, request: HttpRequest, obj: BorderRouter, form: Any, change: bool) -> None:
        made = border_router_create(**form.cleaned_data, actor=actor_of(request))
        obj.pk, obj.number = made.pk, made.number

    def get_queryset(self, request: HttpRequest) -> QuerySet[BorderRouter]:
        rows: QuerySet[BorderRouter] = super().get_queryset(request)
        return rows.select_related("host__AS__isd").annotate(interfaces_here=Count("interfaces"))

    @admin.display(description="interfaces", ordering="interfaces_here")
    def interfaces(self, obj: Any) -> int:
        return int(obj.interfaces_here)


class VPNForm(ReasonForm):
    subnet = forms.CharField(max_length=43, help_text="For example 10.10.1.0/24. The server gets the first address.")


@admin.register(VPN)
class VPNAdmin(ServiceAdmin):
    form = VPNForm
    list_display = ["subnet", linked("host"), "server_ip", "server_port", "clients"]
    rule_field = "subnet"
    add_fieldsets = [(None, {"fields": ["host", "subnet", "server_port", "reason"]})]
    fields = ["host", "subnet", "server_ip", "server_port", "clients"]
    note = f"A VPN has at most {MAX_CLIENTS} clients, however large its subnet is."

    def get_queryset(self, request: HttpRequest) -> QuerySet[VPN]:
        rows: QuerySet[VPN] = super().get_queryset(request)
        return rows.select_related("host__AS__isd").annotate(clients_here=Count("clients"))

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "host":
            kwargs["queryset"] = Host.objects.filter(attachment_point__isnull=False, vpn=None).select_related("AS__isd")
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def save_model(self, request: HttpRequest, obj: VPN, form: Any, change: bool) -> None:
        if not change:
            made = infrastructure.vpn_create(**form.cleaned_data, actor=actor_of(request))
            obj.pk, obj.server_ip = made.pk, made.server_ip

    def delete_model(self, request: HttpRequest, obj: VPN) -> None:
        infrastructure.vpn_delete(vpn_id=obj.pk, actor=actor_of(request), reason=reason_of(request))

    @admin.display(description="clients", ordering="clients_here")
    def clients(self, obj: Any) -> int:
        return int(obj.clients_here)
