"""SCION files of a host: limits only, takeover. Part of the host's page."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, reverse
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET, require_POST

from bandwidth_config import RuleError
from scionlab.accounts.models import User
from scionlab.delivery.download import install_commands
from scionlab.delivery.installed import (
    USUAL_FILES,
    Effect,
    effect_of,
    full_configuration,
    host_set_limits_only,
    host_take_over,
    host_take_over_undo,
)
from scionlab.testbed.audit import host_subject
from scionlab.testbed.models import Host
from scionlab.testbed.models.installed import FILES_WORDS, files_state
from scionlab.web.admin.base import ServiceAdmin, actor_of, reason_of
from scionlab.web.admin.columns import Tone, badge

_BADGES: dict[str, tuple[Tone, str]] = {
    "limits_only": ("quiet", "limits only"),
    "other": ("bad", "refused: files of another service"),
    "taken_over": ("info", "taken over"),
}


def files_badge(host: Host) -> SafeString:
    """Empty if this service manages its SCION files."""
    state = files_state(host)
    return badge(*_BADGES[state], f"{FILES_WORDS[state]}.") if state in _BADGES else SafeString()


def _limits_only(value: bool) -> Callable[[Host, User, str], None]:
    def change(host: Host, actor: User, reason: str) -> None:
        host_set_limits_only(host_id=host.pk, limits_only=value, actor=actor, reason=reason)

    return change


# Of each button: the service to call, the message, and the reason kept in the history.
CHANGES: dict[str, tuple[Callable[[Host, User, str], None], str]] = {
    "limits_only": (_limits_only(True), "Set to limits only."),
    "not_limits_only": (_limits_only(False), "No longer limits only."),
    "take_over": (lambda host, actor, _: host_take_over(host_id=host.pk, actor=actor), "Taken over."),
    "undo": (lambda host, actor, _: host_take_over_undo(host_id=host.pk, actor=actor), "Takeover undone."),
}


class HostFiles(ServiceAdmin):
    """The part of the host admin that decides which service manages the SCION files."""

    def get_urls(self) -> list[URLPattern]:
        return [
            self.own_path("<int:pk>/files/", require_GET(self.files_view), "files"),
            self.own_path("<int:pk>/files/change/", require_POST(self.files_change), "files_change"),
            *super().get_urls(),
        ]

    def files_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show the known SCION files of the host, the effect of a takeover, and the buttons."""
        host = get_object_or_404(self.get_queryset(request), pk=pk)
        state, known = files_state(host), getattr(host, "installed_files", None)
        paths: set[str] = set()
        units: list[str] = []
        effect: Effect | None = None
        try:
            if host.AS is not None:
                paths, units = full_configuration(host)
            if known is not None and state in {"other", "taken_over"}:
                effect = effect_of(host, known)
        except RuleError as exc:  # for example, an unreadable secret
            self.message_user(request, exc.message, messages.ERROR)
        context = {
            "original": host,
            "state": state,
            "words": FILES_WORDS[state],
            "known": known if known is not None and known.owner == "other" else None,
            "effect": effect,
            "usual_files": USUAL_FILES,
            "paths": sorted(paths),
            "units": units,
            "commands": install_commands(uid=host.uid, secret=host.secret, site_url=settings.SITE_URL),
            "subject": host_subject(host),
        }
        return self.own_page(request, "testbed/host/files.html", f"SCION files of {host}", **context)

    def files_change(self, request: HttpRequest, pk: int) -> HttpResponse:
        host = get_object_or_404(Host, pk=pk)
        change, done = CHANGES.get(request.POST.get("do", ""), (None, ""))
        try:
            if change is None:
                raise RuleError("nothing_chosen", "Nothing was changed: use one of the buttons.")
            change(host, actor_of(request), reason_of(request))
        except RuleError as exc:
            self.message_user(request, exc.message, messages.ERROR)
        else:
            self.log_change(request, host, done)
            self.message_user(request, f"{host}: {done}", messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:testbed_host_files", args=[pk]))
