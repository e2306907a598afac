"""Access of a host: enrolment, secret, and the agent's configuration. Part of the host's page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, reverse
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_GET, require_POST

from bandwidth_config import RuleError
from scionlab.delivery.enrolment import enrol_command, enrolment_token_create
from scionlab.delivery.models import EnrolmentToken
from scionlab.delivery.render import config_for
from scionlab.delivery.signing import key_ring
from scionlab.platform.clock import database_now
from scionlab.testbed.host import host_rotate_secret
from scionlab.testbed.models import Host
from scionlab.web.admin.base import ServiceAdmin, actor_of, apply_to_each, reason_of


@dataclass(frozen=True)
class Rotation:
    """A way to rotate a host's secret: label, effect, and message afterwards."""

    label: str
    effect: str
    done: str
    options: dict[str, bool]


ROTATIONS = {
    "keep": Rotation(
        "Rotate without restart",
        "The previous secret stays valid for {hours} hours. scionlab-bw-agent fetches the new one; nothing restarts. "
        "A stock client gets the new secret only with the next change of its configuration: install it by hand within "
        "that time, or the client is rejected afterwards and exits.",
        "have a new secret. The previous one stays valid for {hours} hours.",
        {},
    ),
    "restart": Rotation(
        "Rotate and restart stock clients",
        "As above, and the configuration version rises: the stock client fetches the new secret and restarts SCION and "
        "OpenVPN once, on all hosts of the AS.",
        "have a new secret, which stock clients fetch now. The previous one stays valid for {hours} hours.",
        {"for_stock_client": True},
    ),
    "stolen": Rotation(
        "Revoke the stolen secret",
        "The previous secret is revoked immediately. The host is rejected as well, until it is enrolled again "
        "(scionlab-bw-agent) or the new secret is installed by hand (the stock client, which exits when rejected). Its "
        "limits stay enforced.",
        "have a new secret. The previous one is revoked: enrol them again.",
        {"keep_previous": False},
    ),
}


class HostAccess(ServiceAdmin):
    """The part of the host admin that grants and revokes access."""

    actions = ["rotate_secret"]

    @admin.action(description="Rotate the secret of the selected hosts")
    def rotate_secret(self, request: HttpRequest, queryset: QuerySet[Host]) -> HttpResponse | None:
        """Ask for the kind of rotation first."""
        hosts = queryset.order_by("pk")
        rotation = ROTATIONS.get(request.POST.get("how", ""))
        if rotation is None:
            context = {
                "reason": reason_of(request),
                "hosts": hosts,
                "rotations": rotations(),
                "checkbox": ACTION_CHECKBOX_NAME,
            }
            return self.own_page(request, "testbed/host/rotate.html", "Rotate secrets", **context)
        self._rotate(request, hosts, rotation)
        return None

    def _rotate(self, request: HttpRequest, hosts: QuerySet[Host], rotation: Rotation) -> None:
        def service(host: Host) -> None:
            why = reason_of(request)
            host_rotate_secret(host_id=host.pk, actor=actor_of(request), reason=why, **rotation.options)
            self.log_change(request, host, f"Rotated the secret ({rotation.label.lower()}).")

        apply_to_each(self, request, hosts, service, "{count} hosts " + in_hours(rotation.done))

    def get_urls(self) -> list[URLPattern]:
        return [
            self.own_path("<int:pk>/agent/", require_GET(self.agent_view), "agent"),
            self.own_path("<int:pk>/config/", require_GET(self.config_view), "config"),
            self.own_path("<int:pk>/enrol/", require_POST(self.enrol_view), "enrol"),
            self.own_path("<int:pk>/rotate/", require_POST(self.rotate_view), "rotate"),
            *super().get_urls(),
        ]

    def agent_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show how to enrol the host, its credentials for manual setup, and the rotation of its secret."""
        return self._agent_page(request, get_object_or_404(self.get_queryset(request), pk=pk))

    def _agent_page(self, request: HttpRequest, host: Host, **extra: Any) -> HttpResponse:
        until = host.previous_secret_until
        context = {
            "original": host,
            "agent_toml": agent_toml(host),
            "site_url": settings.SITE_URL,
            "last_token": EnrolmentToken.objects.filter(host=host).select_related("created_by").first(),
            "in_grace": until if until and until > database_now() else None,
            "rotations": rotations(),
        }
        return self.own_page(request, "testbed/host/agent.html", f"Agent of {host}", **context, **extra)

    @sensitive_variables("issued")
    def enrol_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Create a token and show it in this response only: it is never in a redirect, session or history."""
        host = get_object_or_404(self.get_queryset(request), pk=pk)
        try:
            issued = enrolment_token_create(host_id=pk, actor=actor_of(request), reason=reason_of(request))
        except RuleError as exc:
            self.message_user(request, exc.message, messages.ERROR)
            return HttpResponseRedirect(reverse("admin:testbed_host_agent", args=[pk]))
        self.log_change(request, host, "Created an enrolment token.")
        return self._agent_page(request, host, issued=issued, enrol_command=enrol_command())

    def config_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Download the tarball that the host would get now."""
        host = get_object_or_404(self.get_queryset(request), pk=pk)
        try:
            if host.AS is None:
                raise RuleError("host_without_as", f"{host} belongs to no AS: it has no configuration.")
            rendered = config_for(host)
        except RuleError as exc:
            self.message_user(request, exc.message, messages.ERROR)
            return HttpResponseRedirect(reverse("admin:testbed_host_change", args=[pk]))
        disposition = f'attachment; filename="{rendered.file_name}"'
        return HttpResponse(
            rendered.content, content_type="application/gzip", headers={"Content-Disposition": disposition}
        )

    def rotate_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        host = get_object_or_404(Host, pk=pk)
        rotation = ROTATIONS.get(request.POST.get("how", ""))
        if rotation is None:
            self.message_user(request, "Nothing was changed: choose how to rotate the secret.", messages.ERROR)
        else:
            self._rotate(request, Host.objects.filter(pk=host.pk), rotation)
        return HttpResponseRedirect(reverse("admin:testbed_host_agent", args=[pk]))


def in_hours(text: str) -> str:
    return text.format(hours=settings.SECRET_GRACE_HOURS)


def rotations() -> list[tuple[str, str, str]]:
    """Value, label and effect of each kind of rotation."""
    return [(name, one.label, in_hours(one.effect)) for name, one in ROTATIONS.items()]


def agent_toml(host: Host) -> str:
    """Return agent.toml for manual setup; uid, secret, URL and keys need no escaping."""
    keys = ", ".join(f'"{one["public_key"]} {one["not_after"]}"' for one in key_ring().entries)
    lines = [
        f'url = "{settings.SITE_URL}"',
        f'host_id = "{host.uid}"',
        f'host_secret = "{host.secret}"',
        f"service_keys = [{keys}]",
    ]
    if urlsplit(settings.SITE_URL).scheme == "http":
        lines.append("allow_plain_http = true  # lab only: the secret is sent in clear text")
    return "\n".join(lines) + "\n"
