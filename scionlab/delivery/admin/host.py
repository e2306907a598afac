"""Hosts: addresses, versions and role. The cockpit shows whether an agent reports."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import F, Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join

from scionlab.delivery.admin.host_access import HostAccess
from scionlab.delivery.admin.host_files import HostFiles, files_badge
from scionlab.platform.notation.shown import age
from scionlab.testbed.host import host_create, host_set_addresses
from scionlab.testbed.models import AS, Host, Interface
from scionlab.testbed.selectors import HAS_FILES_OF_OTHERS
from scionlab.web.admin.base import ReasonForm, actor_of
from scionlab.web.admin.columns import NOTHING, ChoiceFilter, aged, link_to, link_to_list
from scionlab.web.admin.search import FoundByAs


class KindFilter(ChoiceFilter):
    title = "kind"
    parameter_name = "kind"
    found = {
        "ap": ("attachment points", Q(attachment_point__isnull=False)),
        "infrastructure": ("other infrastructure", Q(attachment_point=None, AS__useras=None)),
        "user": ("of user ASes", Q(AS__useras__isnull=False)),
    }


class ConfigurationFilter(ChoiceFilter):
    title = "configuration"
    parameter_name = "state"
    found = {
        "behind": (
            "newest not fetched",
            Q(delivered_config_version__lt=F("config_version")) | Q(delivered_limits_version__lt=F("limits_version")),
        ),
        "limits_only": ("limits only", Q(limits_only=True)),
        "other": ("refused: files of another service", HAS_FILES_OF_OTHERS),
    }


def _address(label: str, help_text: str = "", initial: str | None = None) -> forms.CharField:
    return forms.CharField(label=label, required=False, max_length=64, help_text=help_text, initial=initial)


class HostForm(ReasonForm):
    """Addresses are plain text fields: the rule of the service parses them and has the message."""

    internal_ip = _address(
        "Internal IP",
        "Address for the other hosts of the AS. 127.0.0.1 is sufficient for the only host of an AS.",
        initial="127.0.0.1",
    )
    public_ipv4 = _address("Public IPv4")
    public_ipv6 = _address("Public IPv6")
    bind_ip = _address("Bind IP", "Local address if the host is behind NAT.")

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        return {name: (value or None) if name in ADDRESSES else value for name, value in cleaned.items()}


class NewHostForm(HostForm):
    """An additional host of an infrastructure AS; the first one is created with the AS."""

    AS = forms.ModelChoiceField(queryset=AS.objects.filter(useras=None).select_related("isd"), label="AS")
    internal_ip = _address("Internal IP", "Address for the other hosts of the AS, in the AS's own network.")


ADDRESSES = ("public_ipv4", "public_ipv6", "bind_ip")


@admin.register(Host)
class HostAdmin(FoundByAs, HostFiles, HostAccess):
    form = HostForm
    add_form = NewHostForm
    offers = ("add", "change")
    list_display = ["name", "as_link", "role", "addresses", "newest", "delivered", aged("last_seen_at", "last poll")]
    list_filter = [KindFilter, ConfigurationFilter, "last_seen_at"]
    as_paths = ["AS__"]
    search_text = ["label", "AS__label", "uid", "AS__useras__owner__email"]
    search_ips = ADDRESSES
    search_help_text = "ISD-AS (17-ffaa:1:b6, ffaa:1:b6 or b6), IP address, label, host id"
    change_form_template = "admin/testbed/host/change_form.html"
    rule_field = "public_ipv4"
    compared = ("label", *ADDRESSES, "internal_ip", "scion_packages", "reports_from_elsewhere")
    note = (
        "Changing an address also changes the interfaces of the host; the hosts at the other ends of its Links "
        "get a new configuration. Changing the SCION packages changes the names of units and files: all hosts of "
        "the AS get a new configuration, and SCION restarts. The first host of an AS is created with the AS; "
        "further hosts of an infrastructure AS are added here, each with a border router."
    )
    add_fieldsets = [(None, {"fields": ["AS", "label", *ADDRESSES, "internal_ip", "reason"]})]
    fieldsets = [
        ("Addresses", {"fields": ["label", *ADDRESSES, "internal_ip", "reports_from_elsewhere", "reason"]}),
        ("SCION", {"fields": ["scion_packages", "configuration"]}),
        ("Identity", {"fields": ["as_link", "role", "uid", "routers", "interfaces"]}),
        ("Versions", {"fields": ["newest", "delivered", "config_version_deployed", "last_poll"]}),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Host]:
        related = ("AS__isd", "AS__useras__owner", "attachment_point", "installed_files")
        return super().get_queryset(request).select_related(*related)

    def save_model(self, request: HttpRequest, obj: Host, form: Any, change: bool) -> None:
        label, actor = form.cleaned_data["label"], actor_of(request)
        values = {name: form.cleaned_data[name] for name in (*ADDRESSES, "internal_ip")}
        values["reason"] = form.cleaned_data["reason"]
        if not change:
            obj.pk = host_create(as_=form.cleaned_data["AS"], label=label, actor=actor, **values).pk
            return
        values |= {name: form.cleaned_data[name] for name in ("scion_packages", "reports_from_elsewhere")}
        host_set_addresses(host_id=obj.pk, actor=actor, label=label, shown=self.shown(request), **values)

    # --- columns --------------------------------------------------------------------------------------------

    @admin.display(description="host", ordering="label")
    def name(self, obj: Host) -> str:
        return str(obj)

    @admin.display(description="AS", ordering="AS__as_id")
    def as_link(self, obj: Host) -> str:
        if obj.AS is None:
            return NOTHING
        return link_to(getattr(obj.AS, "useras", None) or obj.AS, obj.AS.isd_as)

    @admin.display(description="role")
    def role(self, obj: Host) -> str:
        ap = getattr(obj, "attachment_point", None)
        user_as = getattr(obj.AS, "useras", None) if obj.AS else None
        role = "infrastructure" if user_as is None else format_html("user AS of {}", link_to(user_as.owner))
        role = role if ap is None else link_to(ap, "attachment point")
        return format_html("{} {}", role, files_badge(obj))

    @admin.display(description="addresses")
    def addresses(self, obj: Host) -> str:
        return format_html_join("", "{}<br>", ((ip,) for ip in obj.public_ips)) or NOTHING

    @admin.display(description="configuration")
    def configuration(self, obj: Host) -> str:
        """Which SCION files are in its tarball."""
        if obj.limits_only:
            return "limits only"
        page = reverse("admin:testbed_host_files", args=[obj.pk])
        return format_html('complete <a href="{}">SCION files</a>', page)

    @admin.display(description="border routers")
    def routers(self, obj: Host) -> str:
        return format_html_join(", ", "{}", ((link_to(one, one.name),) for one in obj.border_routers.all())) or NOTHING

    @admin.display(description="interfaces")
    def interfaces(self, obj: Host) -> str:
        return link_to_list(Interface, obj.interfaces.count(), host__id__exact=obj.pk)

    @admin.display(description="newest H / L", ordering="config_version")
    def newest(self, obj: Host) -> str:
        return f"{obj.config_version} / {obj.limits_version}"

    @admin.display(description="delivered H / L", ordering="delivered_config_version")
    def delivered(self, obj: Host) -> str:
        if obj.delivered_at is None:
            return NOTHING
        return f"{obj.delivered_config_version} / {obj.delivered_limits_version}"

    @admin.display(description="last poll")
    def last_poll(self, obj: Host) -> str:
        ap = getattr(obj, "attachment_point", None)
        if ap is None:
            return age(obj.last_seen_at)
        page = reverse("cockpit_ap", args=[ap.pk])
        return format_html('{} (<a href="{}">reports and problems</a>)', age(obj.last_seen_at), page)
