"""Read-only pages of mails and of agents' reports."""

from __future__ import annotations

from django.contrib import admin

from scionlab.accounts.models import Mail
from scionlab.enforcement.models import HostReceipt
from scionlab.web.admin.base import ReadOnlyAdmin
from scionlab.web.admin.columns import aged, linked


@admin.register(Mail)
class MailAdmin(ReadOnlyAdmin):
    list_display = [aged("created_at", "created"), "recipient", "subject", aged("sent_at", "sent"), "attempts"]
    list_display += ["last_error"]
    list_filter = [("sent_at", admin.EmptyFieldListFilter), "created_at"]
    search_fields = ["recipient", "subject"]
    fields = ["recipient", "subject", "body", "kind", "created_at", "sent_at", "attempts", "not_before", "last_error"]
    ordering = ["-pk"]
    note = "Emails are written by the service. Failed deliveries are retried."


@admin.register(HostReceipt)
class HostReceiptAdmin(ReadOnlyAdmin):
    list_display = [aged("received_at", "received"), linked("host"), "generation", "config_version", "limits_version"]
    list_display += ["agent_version"]
    list_select_related = ["host__AS__isd"]
    list_filter = ["agent_version"]
    search_fields = ["host__label", "host__uid"]
    fields = ["host", "received_at", "observed_at", "generation", "config_version", "limits_version", "agent_version"]
    ordering = ["-received_at"]
    note = "The newest receipt of each agent. The cockpit shows what it reports of limits and problems."
