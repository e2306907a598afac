"""Signing keys and enrolment tokens. Private parts are never shown."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from bandwidth_config import RuleError
from scionlab.delivery.models import EnrolmentToken, SigningKey
from scionlab.delivery.signing import service_key_line, signing_key_revoke, signing_key_rotate
from scionlab.platform.clock import database_now
from scionlab.web.admin.base import ReadOnlyAdmin, actor_of
from scionlab.web.admin.columns import Tone, aged, badge, linked

_ROTATE = (
    "Creates a new key. It signs every configuration from now on, and agents receive it with their next fetch. Older "
    "keys keep signing until they expire, so agents that were offline can follow. The limits version of every "
    "attachment point rises; nothing restarts."
)
_REVOKE = (
    "This key signs no more configurations, and agents stop trusting it with their next fetch. Agents that trust no "
    "other valid key must be enrolled again: if possible, create a new key first and wait until all agents have "
    "fetched it. Unused enrolment tokens are revoked. This cannot be undone."
)


TONES: Final[dict[str, Tone]] = {"revoked": "bad", "signs": "good", "expired": "quiet"}


@admin.register(SigningKey)
class SigningKeyAdmin(ReadOnlyAdmin):
    list_display = ["key_id", "state", aged("created_at", "created"), "until", aged("revoked_at", "revoked")]
    ordering = ["-created_at", "-pk"]
    fields = ["key_id", "state", "for_agents", "created_at", "not_after", "revoked_at"]
    change_list_template = "admin/delivery/signingkey/change_list.html"
    change_form_template = "admin/delivery/signingkey/change_form.html"
    note = (
        "Every valid key signs every configuration. Before a key expires, or if it leaked, create a new one, wait "
        "until all agents have fetched it, then revoke the old key."
    )

    @admin.display(description="state")
    def state(self, obj: SigningKey) -> SafeString:
        return badge(TONES[obj.state], obj.state)

    @admin.display(description="valid until", ordering="not_after")
    def until(self, obj: SigningKey) -> str:
        return f"{obj.not_after:%Y-%m-%d}"

    @admin.display(description="in service_keys of agent.toml")
    def for_agents(self, obj: SigningKey) -> str:
        return format_html('<code class="slb-copy">{}</code>', service_key_line(obj))

    # --- making and revoking --------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        return [
            self.own_path("rotate/", self.rotate_view, "rotate"),
            self.own_path("<int:pk>/revoke/", self.revoke_view, "revoke"),
            *super().get_urls(),
        ]

    def rotate_view(self, request: HttpRequest) -> HttpResponse:
        """Ask for confirmation; on POST, create a key."""
        if request.method != "POST":
            return self._confirm(request, "Create a new signing key?", _ROTATE, "Create new key")

        def make() -> str:
            key = signing_key_rotate(actor=actor_of(request))
            self.log_addition(request, key, "Created the key.")
            return f"Created the signing key {key}. Agents receive it with their next fetch."

        return self._done(request, make)

    def revoke_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Ask for confirmation; on POST, revoke the key."""
        key = get_object_or_404(SigningKey, pk=pk)
        if request.method != "POST":
            return self._confirm(request, f"Revoke the signing key {key}?", _REVOKE, "Revoke this key")

        def revoke() -> str:
            signing_key_revoke(key_id=key.key_id, actor=actor_of(request))
            self.log_change(request, key, "Revoked the key.")
            return f"Revoked the signing key {key}."

        return self._done(request, revoke)

    def _confirm(self, request: HttpRequest, title: str, effect: str, button: str) -> HttpResponse:
        return self.own_page(request, "delivery/signingkey/confirm.html", title, effect=effect, button=button)

    def _done(self, request: HttpRequest, change: Any) -> HttpResponse:
        try:
            self.message_user(request, change(), messages.SUCCESS)
        except RuleError as exc:
            self.message_user(request, exc.message, messages.ERROR)
        return HttpResponseRedirect(reverse("admin:delivery_signingkey_changelist"))


@admin.register(EnrolmentToken)
class EnrolmentTokenAdmin(ReadOnlyAdmin):
    list_display = [
        aged("created_at", "created"),
        linked("host"),
        "created_by",
        "state",
        aged("used_at", "used"),
        "used_from",
    ]
    list_select_related = ["host__AS__isd", "created_by"]
    search_fields = ["host__label", "host__uid", "used_from"]
    fields = ["host", "created_at", "created_by", "state", "expires_at", "used_at", "used_from", "voided_at"]
    note = "Tokens are created on the page of the host and are not stored. This is the record of their use."

    @admin.display(description="state")
    def state(self, obj: EnrolmentToken) -> SafeString:
        if obj.used_at is not None:
            return badge("good", "used")
        if obj.voided_at is not None:
            return badge("quiet", "revoked")
        return badge("warn", "not used yet") if obj.expires_at > database_now() else badge("quiet", "expired")
