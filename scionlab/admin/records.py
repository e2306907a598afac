"""What happened: changes of bandwidths, mails, and what attachment points reported. Nobody edits any of it."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html_join

from scionlab.admin.base import NOTHING, ReadOnlyAdmin, ago, badge, kbit, link_to
from scionlab.models import BandwidthChange, HostReceipt, LinkEnforcement, Mail

MOST_PROBLEMS = 100  # shown of one receipt


@admin.register(BandwidthChange)
class BandwidthChangeAdmin(ReadOnlyAdmin):
    list_display = ["at", "kind", "subject_link", "old", "new", "who", "address", "reason"]
    list_display_links = ["at"]
    list_filter = ["kind", "at"]
    list_select_related = ["link", "attachment_point", "actor"]
    search_fields = ["subject", "actor_email", "reason", "address"]
    date_hierarchy = "at"
    fields = ["at", "kind", "subject_link", "old", "new", "who", "address", "reason"]
    readonly_fields = ["subject_link", "old", "new", "who"]
    why_read_only = "The audit log is append-only."

    @admin.display(description="subject", ordering="subject")
    def subject_link(self, obj: BandwidthChange) -> str:
        target = obj.link or obj.attachment_point
        return link_to(target, obj.subject) if target is not None else obj.subject

    @admin.display(description="by", ordering="actor_email")
    def who(self, obj: BandwidthChange) -> str:
        return obj.by if obj.actor is None else link_to(obj.actor)

    @admin.display(description="old", ordering="old_kbit")
    def old(self, obj: BandwidthChange) -> str:
        return NOTHING if obj.old is None else str(obj.old)

    @admin.display(description="new", ordering="new_kbit")
    def new(self, obj: BandwidthChange) -> str:
        return obj.detail or (NOTHING if obj.new is None else str(obj.new))


@admin.register(Mail)
class MailAdmin(ReadOnlyAdmin):
    list_display = ["created_at", "recipient", "subject", "sent", "attempts", "last_error"]
    list_filter = [("sent_at", admin.EmptyFieldListFilter), "created_at"]
    search_fields = ["recipient", "subject"]
    ordering = ["-pk"]
    why_read_only = "Emails are written by the service. Failed deliveries are retried."

    @admin.display(description="sent", ordering="sent_at")
    def sent(self, obj: Mail) -> str:
        if obj.sent_at is not None:
            return ago(obj.sent_at)
        return badge("bad", "not yet", obj.last_error) if obj.last_error else badge("warn", "not yet")


def problem_list(problems: object) -> str:
    """The problems of a receipt, as the agent wrote them."""
    if not isinstance(problems, list) or not problems:
        return "none"
    shown = problems[:MOST_PROBLEMS]
    rows = [(str(one.get("code", "")), str(one.get("message", ""))) for one in shown if isinstance(one, dict)]
    if len(problems) > MOST_PROBLEMS:
        rows.append(("...", f"and {len(problems) - MOST_PROBLEMS} more."))
    return format_html_join("", '<p class="slb-problem"><code>{}</code> {}</p>', rows)


@admin.register(HostReceipt)
class HostReceiptAdmin(ReadOnlyAdmin):
    list_display = ["host_link", "received", "enforced_version", "agent_version", "problem_count"]
    list_display_links = ["received"]
    list_select_related = ["host__AS__isd"]
    search_fields = ["host__label", "host__uid"]
    fields = ["host_link", "received", "observed_at", "enforced_version", "agent_version", "reported_problems"]
    readonly_fields = ["host_link", "received", "enforced_version", "reported_problems"]
    ordering = ["-received_at"]
    why_read_only = "The newest receipt of each agent: the state read back from the kernel."

    @admin.display(description="host")
    def host_link(self, obj: HostReceipt) -> str:
        return link_to(obj.host)

    @admin.display(description="received", ordering="received_at")
    def received(self, obj: HostReceipt) -> str:
        return ago(obj.received_at)

    @admin.display(description="version G.H, limits L")
    def enforced_version(self, obj: HostReceipt) -> str:
        if obj.config_version is None:
            return "none"
        return f"{obj.generation}.{obj.config_version}, limits {obj.limits_version}"

    @admin.display(description="problems")
    def problem_count(self, obj: HostReceipt) -> str:
        count = len(obj.problems)
        return badge("bad", str(count)) if count else "0"

    @admin.display(description="problems")
    def reported_problems(self, obj: HostReceipt) -> str:
        return problem_list(obj.problems)


@admin.register(LinkEnforcement)
class LinkEnforcementAdmin(ReadOnlyAdmin):
    list_display = ["link_link", "enforced", "state", "since", "received", "to_user_drops", "from_user_drops"]
    list_display_links = ["since"]
    list_filter = ["state"]
    search_fields = ["link__interface_b__AS__label"]
    ordering = ["-received_at"]
    why_read_only = "The newest receipt for each Link. Counters restart when the attachment point recreates its class."

    def get_queryset(self, request: HttpRequest) -> QuerySet[LinkEnforcement]:
        ends = [f"link__interface_{end}__AS__isd" for end in "ab"]
        return super().get_queryset(request).select_related(*ends)

    @admin.display(description="Link")
    def link_link(self, obj: LinkEnforcement) -> str:
        return link_to(obj.link)

    @admin.display(description="enforced", ordering="kbit")
    def enforced(self, obj: LinkEnforcement) -> str:
        return kbit(obj.kbit)

    @admin.display(description="received", ordering="received_at")
    def received(self, obj: LinkEnforcement) -> str:
        return ago(obj.received_at)
