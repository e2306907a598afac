"""Hosts: who is silent, who is behind, and how to set up the agent of one."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from operator import itemgetter
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import F, Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from scionlab.admin.base import (
    NOTHING,
    ServiceForm,
    actor_of,
    ago,
    badge,
    kbit,
    link_to,
    link_to_list,
    table,
)
from scionlab.admin.host_access import HostAccess
from scionlab.admin.host_files import HostFiles, files_badge
from scionlab.admin.link import state_badge, with_status_rows
from scionlab.admin.records import problem_list
from scionlab.admin.search import search_query
from scionlab.enforcement.agents import SILENT_AFTER, agent_of, no_report_since
from scionlab.enforcement.remarks import clock_words
from scionlab.enforcement.status import link_status
from scionlab.enforcement.words import WORDS
from scionlab.models import AS, Host, HostReceipt, Link, selectors
from scionlab.network.host import host_create, host_set_addresses

MOST_NAMED = 5  # problems in the title of a badge: a receipt may hold a thousand long ones
MOST_LINKS = 100  # listed on the page of a host; an attachment point may have thousands


def receipt_of(host: Host) -> HostReceipt | None:
    return getattr(host, "receipt", None)


def last_seen(host: Host, as_: AS | None, *, now: datetime) -> SafeString:
    """A badge that tells at a glance whether somebody should look, and the last contact.

    Where an agent reports, its receipts count: a host whose agent died may go on polling (a stock client beside it).
    """
    agent = agent_of(host, "" if as_ is None else as_.isd_as, now=now)
    at = agent.reported_at or host.last_seen_at
    if at is None:
        title = "The host has not fetched its configuration yet. Its first poll is shown within two minutes."
        return badge("quiet", "never connected", title)
    if agent.removed_at is not None:
        shown = badge("bad", "limits removed", "The operator of the host removed the limits.")
    elif agent.is_silent:
        shown = badge(WORDS["no_report"].tone, "no report", f"{no_report_since(agent)}.")
    elif now - at > SILENT_AFTER:
        shown = badge("warn", "no contact", "The host has stopped fetching its configuration.")
    elif agent.receipt is None and hasattr(host, "attachment_point"):
        shown = badge("warn", "no agent", "The host fetches its configuration, but no agent reports what is enforced.")
    else:
        shown = badge("good", "connected")
    if agent.clock_off is not None:
        shown = format_html("{} {}", shown, badge("warn", "clock off", f"{clock_words(agent)}."))
    return format_html("{} {}", shown, ago(at, now=now))


class SeenFilter(admin.SimpleListFilter):
    title = "last contact"
    parameter_name = "seen"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [("live", "within 3 minutes"), ("silent", "no report"), ("never", "never")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Host]) -> QuerySet[Host]:
        since = timezone.now() - SILENT_AFTER
        lately = Q(receipt__received_at__gte=since) | Q(receipt=None, last_seen_at__gte=since)
        silent = Q(receipt__received_at__lt=since) | Q(receipt=None, last_seen_at__lt=since)
        never = Q(receipt=None, last_seen_at=None)
        chosen = {"live": lately, "silent": silent, "never": never}.get(self.value() or "")
        return queryset if chosen is None else queryset.filter(chosen)


class KindFilter(admin.SimpleListFilter):
    title = "kind"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [("ap", "attachment points"), ("infrastructure", "other infrastructure"), ("user", "of user ASes")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Host]) -> QuerySet[Host]:
        if self.value() == "ap":
            return queryset.filter(attachment_point__isnull=False)
        if self.value() == "infrastructure":
            return queryset.filter(attachment_point=None, AS__useras=None)
        return queryset.filter(AS__useras__isnull=False) if self.value() == "user" else queryset


class StateFilter(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [
            ("behind", "has not fetched the newest configuration"),
            ("problems", "reports problems"),
            ("limits_only", "limits only"),
            ("other", "refused: files of another service"),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Host]) -> QuerySet[Host]:
        if self.value() == "behind":
            behind = Q(delivered_config_version__lt=F("config_version"))
            return queryset.filter(behind | Q(delivered_limits_version__lt=F("limits_version")))
        if self.value() == "limits_only":
            return queryset.filter(limits_only=True)
        if self.value() == "other":
            return queryset.filter(pk__in=selectors.hosts_of_others())
        return (
            queryset.filter(receipt__isnull=False).exclude(receipt__problems=[])
            if self.value() == "problems"
            else queryset
        )


class HostForm(ServiceForm):
    """Addresses are text: the service's rule reads them and gives its own sentence."""

    internal_ip = forms.CharField(
        label="Internal IP",
        required=False,
        max_length=64,
        initial="127.0.0.1",
        help_text="Address for the other hosts of the AS. 127.0.0.1 is sufficient for the only host of an AS.",
    )
    public_ipv4 = forms.CharField(label="Public IPv4", required=False, max_length=64)
    public_ipv6 = forms.CharField(label="Public IPv6", required=False, max_length=64)
    bind_ip = forms.CharField(
        label="Bind IP",
        required=False,
        max_length=64,
        help_text="Local address if the host is behind NAT.",
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        return {name: (value or None) if name in ADDRESSES else value for name, value in cleaned.items()}


class NewHostForm(HostForm):
    """A further host of an infrastructure AS; the first one comes with the AS."""

    AS = forms.ModelChoiceField(queryset=AS.objects.filter(useras=None).select_related("isd"), label="AS")
    internal_ip = forms.CharField(
        label="Internal IP",
        required=False,
        max_length=64,
        help_text="Address for the other hosts of the AS, in the AS's own network.",
    )


ADDRESSES = ("public_ipv4", "public_ipv6", "bind_ip")


@admin.register(Host)
class HostAdmin(HostFiles, HostAccess):
    form = HostForm
    list_display = ["name", "as_link", "seen", "versions", "delivered", "deployed", "problems", "role", "addresses"]
    list_filter = [KindFilter, SeenFilter, StateFilter]
    search_fields = ["uid"]  # makes the search box appear; get_search_results does the work
    search_help_text = "ISD-AS (17-ffaa:1:b6, ffaa:1:b6 or b6), IP address, label, host id"
    change_form_template = "admin/scionlab/host/change_form.html"
    change_list_template = "admin/scionlab/host/change_list.html"
    rule_field = "public_ipv4"
    compared = ("label", *ADDRESSES, "internal_ip", "scion_packages")
    note = (
        "Changing an address also changes the interfaces of the host; the hosts at the other ends of its Links "
        "get a new configuration. Changing the SCION packages changes the names of units and files: all hosts of "
        "the AS get a new configuration, and SCION restarts. The first host of an AS is created with the AS; "
        "further hosts of an infrastructure AS are added here, each with a border router."
    )
    add_fieldsets = [(None, {"fields": ["AS", "label", *ADDRESSES, "internal_ip"]})]
    fieldsets = [
        (None, {"fields": ["seen", "versions", "delivered", "deployed", "enforced", "problems_in_words"]}),
        ("Addresses", {"fields": ["label", *ADDRESSES, "internal_ip"]}),
        ("SCION", {"fields": ["scion_packages", "configuration"]}),
        ("Identity", {"fields": ["as_link", "role", "uid", "routers"]}),
        ("Links of this host", {"fields": ["links"]}),
    ]
    readonly_fields = [
        "seen",
        "versions",
        "delivered",
        "deployed",
        "enforced",
        "problems_in_words",
        "configuration",
        "as_link",
        "role",
        "uid",
        "routers",
        "links",
    ]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.add_fieldsets if obj is None else self.fieldsets

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return () if obj is None else self.readonly_fields

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        return super().get_form(request, obj, change=change, **{"form": HostForm if change else NewHostForm, **kwargs})

    def get_queryset(self, request: HttpRequest) -> QuerySet[Host]:
        related = ("AS__isd", "AS__useras__owner", "attachment_point", "receipt", "installed_files")
        return super().get_queryset(request).select_related(*related)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Host], search_term: str
    ) -> tuple[QuerySet[Host], bool]:
        text = ["label", "AS__label", "uid", "AS__useras__owner__email"]
        return queryset.filter(search_query(search_term, as_paths=["AS__"], text=text, ips=ADDRESSES)), False

    def save_model(self, request: HttpRequest, obj: Host, form: Any, change: bool) -> None:
        label, actor = form.cleaned_data["label"], actor_of(request)
        values = {name: form.cleaned_data[name] for name in (*ADDRESSES, "internal_ip")}
        if not change:
            obj.pk = host_create(as_=form.cleaned_data["AS"], label=label, actor=actor, **values).pk
            return
        values["scion_packages"] = form.cleaned_data["scion_packages"]
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
        if ap is not None:
            role = link_to(ap, "attachment point")
        else:
            role = "infrastructure" if user_as is None else format_html("user AS of {}", link_to(user_as.owner))
        return format_html("{} {}", role, files_badge(obj))

    @admin.display(description="addresses")
    def addresses(self, obj: Host) -> str:
        return format_html_join("", "{}<br>", ((ip,) for ip in obj.public_ips)) or NOTHING

    @admin.display(description="configuration")
    def configuration(self, obj: Host) -> str:
        """What of SCION is in its tarball."""
        if obj.limits_only:
            return "limits only"
        page = reverse("admin:scionlab_host_files", args=[obj.pk])
        return format_html('{} <a href="{}">SCION files</a>', obj.get_configuration_format_display(), page)

    @admin.display(description="border routers")
    def routers(self, obj: Host) -> str:
        return format_html_join(", ", "{}", ((link_to(one, one.name),) for one in obj.border_routers.all())) or NOTHING

    @admin.display(description="last contact", ordering="last_seen_at")
    def seen(self, obj: Host) -> str:
        return last_seen(obj, obj.AS, now=timezone.now())

    @admin.display(description="newest H / L", ordering="config_version")
    def versions(self, obj: Host) -> str:
        return f"{obj.config_version} / {obj.limits_version}"

    @admin.display(description="delivered H / L", ordering="delivered_config_version")
    def delivered(self, obj: Host) -> str:
        if obj.delivered_at is None:
            return NOTHING
        shown = f"{obj.delivered_config_version} / {obj.delivered_limits_version}"
        newest = (obj.config_version, obj.limits_version)
        if (obj.delivered_config_version, obj.delivered_limits_version) == newest:
            return shown
        return format_html("{} {}", shown, badge("warn", "behind", "The newest configuration is not fetched."))

    @admin.display(description="deployed H", ordering="config_version_deployed")
    def deployed(self, obj: Host) -> str:
        return str(obj.config_version_deployed) if obj.config_version_deployed else NOTHING

    @admin.display(description="enforced H / L")
    def enforced(self, obj: Host) -> str:
        receipt = receipt_of(obj)
        if receipt is None or receipt.config_version is None:
            return "no receipt"
        shown = f"{receipt.config_version} / {receipt.limits_version}"
        return format_html("{}, receipt of {}", shown, ago(receipt.received_at, now=timezone.now()))

    @admin.display(description="problems")
    def problems(self, obj: Host) -> str:
        receipt = receipt_of(obj)
        if receipt is None or not receipt.problems:
            return NOTHING
        named = receipt.problems[:MOST_NAMED]
        title = "; ".join(str(one.get("message", ""))[:200] for one in named if isinstance(one, dict))
        return badge("bad", str(len(receipt.problems)), title)

    @admin.display(description="problems reported by the agent")
    def problems_in_words(self, obj: Host) -> str:
        receipt = receipt_of(obj)
        return "no receipt" if receipt is None else problem_list(receipt.problems)

    @admin.display(description="Links")
    def links(self, obj: Host) -> str:
        here = Link.objects.filter(Q(interface_a__host=obj) | Q(interface_b__host=obj))
        shown = list(with_status_rows(here).order_by("pk")[: MOST_LINKS + 1])
        rows: list[tuple[int, str, str, str, str]] = []
        for link in shown[:MOST_LINKS]:
            own = link.interface_a if link.interface_a.host_id == obj.pk else link.interface_b
            status = link_status(link, now=timezone.now())
            enforced = kbit(status.enforced_kbit) if link.is_limited else NOTHING
            state = state_badge(status) if link.is_limited else "not limited"
            rows.append((own.interface_id, link_to(link), kbit(link.bandwidth_kbit), enforced, state))
        listed = table(["Interface", "Link", "Requested", "Enforced", "State"], sorted(rows, key=itemgetter(0)))
        if len(shown) <= MOST_LINKS or obj.AS is None:
            return listed
        return format_html("{}{}", listed, link_to_list(Link, "all Links", kind="all", q=obj.AS.isd_as))
