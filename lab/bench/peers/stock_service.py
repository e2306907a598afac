"""The way in which the field's own service answers polls, written anew: the row of the host is saved at every poll, and
the tarball is made at every 200. On our database and with our tarballs, so that only the way of working differs.

Serve with `gunicorn lab.bench.peers.stock_service:application`, settings `lab.bench.peers.stock_settings`.
"""

from __future__ import annotations

import base64
import hmac
import os

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import path
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt

import config_tar

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lab.bench.peers.stock_settings")
application = get_wsgi_application()

from scionlab.delivery.signing import key_ring  # noqa: E402
from scionlab.testbed import selectors  # noqa: E402  need the settings
from scionlab.testbed.models import Host  # noqa: E402  need the settings


@method_decorator(csrf_exempt, name="dispatch")
class HostConfig(View):
    """`GET config[?version=]`"""

    def get(self, request: HttpRequest, uid: str) -> HttpResponse:
        host = get_object_or_404(Host, uid=uid)
        _, _, encoded = request.headers.get("Authorization", "").partition(" ")
        user, _, password = base64.b64decode(encoded).decode().partition(":")
        if user != uid or not hmac.compare_digest(password, host.secret):
            return HttpResponse(status=401)
        host.last_seen_at = timezone.now()
        host.save(update_fields=["last_seen_at"])
        version = request.GET.get("version", "")
        if version and int(version.partition(".")[2]) >= host.config_version:
            return HttpResponse(status=304)
        members = config_tar.host_members(
            host,
            generation=selectors.generation(),
            site_url=settings.SITE_URL,
            keys=key_ring(),
            as_hosts=list(Host.objects.filter(AS_id=host.AS_id)),
        )
        return HttpResponse(config_tar.pack(members), content_type="application/gzip")


urlpatterns = [path("api/v4/host/<str:uid>/config", HostConfig.as_view())]
