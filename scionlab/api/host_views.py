"""The host API v4: hosts pull their configuration, and say what they installed and what they enforce.

It is SCIONLab's own API, so the answers are those that the unmodified stock client expects (DOMAIN section 4).
"""

from __future__ import annotations

import logging
import re

from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt

from scionlab.api.errors import error_response
from scionlab.api.host_auth import host_endpoint
from scionlab.api.receipt_format import MAX_BYTES, ReceiptError, parse_receipt
from scionlab.models import Host
from scionlab.services.host import SEEN_INTERVAL, host_note_delivered, host_note_seen, host_set_deployed_version
from scionlab.services.receipt import deployment_note, receipt_store
from scionlab.services.render import config_for

logger = logging.getLogger(__name__)

_VERSION = re.compile(r"([0-9]+)\.([0-9]+)", flags=re.ASCII)
_NUMBER = re.compile(r"[0-9]+", flags=re.ASCII)


@host_endpoint("GET", "HEAD")
def config(request: HttpRequest, host: Host) -> HttpResponse:
    """The configuration, unless the host has it already. A poll that is answered 304 costs one SQL statement.

    `limits` is sent by our agent; `wait` is accepted, and answered at once.
    """
    if host.last_seen_at is None or timezone.now() - host.last_seen_at > SEEN_INTERVAL:
        host_note_seen(host_id=host.pk)
    version, limits = request.GET.get("version", ""), request.GET.get("limits", "")
    if version and not _VERSION.fullmatch(version):
        return _version_invalid(version)
    if limits and not _NUMBER.fullmatch(limits):
        return error_response(
            "limits_invalid", f'limits "{limits[:40]}" is not a number. Send L of what you have.', 400
        )
    if host.AS_id is None:
        return HttpResponse(status=204)
    if version and _is_current(host, version, limits):
        return HttpResponse(status=304)
    return _tarball(request, host)


def _tarball(request: HttpRequest, host: Host) -> HttpResponse:
    rendered = config_for(host)
    response = HttpResponse(rendered.content, content_type="application/gzip")
    response["Content-Disposition"] = f'attachment; filename="{rendered.file_name}"'
    response["Content-Length"] = str(len(rendered.content))
    response["ETag"] = rendered.etag
    response["Cache-Control"] = "private, no-store"  # it holds the host's secret
    if request.method == "GET":
        host_note_delivered(
            host_id=host.pk, config_version=rendered.config_version, limits_version=rendered.limits_version
        )
    return response


@host_endpoint("POST")
def deployed_config_version(request: HttpRequest, host: Host) -> HttpResponse:
    """The stock client says which version it has installed."""
    version = request.POST.get("version", "")
    match = _VERSION.fullmatch(version)
    if match is None:
        return _version_invalid(version)
    written = match[2].lstrip("0") or "0"
    if len(written) > len(str(host.config_version)):  # also keeps int() away from thousands of digits
        return HttpResponse(status=304)
    with transaction.atomic():
        if not host_set_deployed_version(host_id=host.pk, config_version=int(written)):
            return HttpResponse(status=304)
        deployment_note(host_id=host.pk)
    return HttpResponse(status=200)


@host_endpoint("POST")
def enforcement(request: HttpRequest, host: Host) -> HttpResponse:
    """The receipt of the attachment point's agent (docs/api.md)."""
    # Read by hand: Django's own limit for a body (DATA_UPLOAD_MAX_MEMORY_SIZE) is below that of a large receipt.
    content = request.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        return error_response("too_large", f"A receipt has at most {MAX_BYTES} bytes.", 413)
    try:
        receipt = parse_receipt(content)
    except ReceiptError as exc:
        logger.warning("receipt.refused host=%s code=%s %s", host.pk, exc.code, exc.message)
        return error_response(exc.code, exc.message, 400, exc.fields)
    result = receipt_store(host_id=host.pk, receipt=receipt)
    answer: dict[str, object] = {"stored": result.stored}
    if result.unknown_links:
        answer["ignored_links"] = [str(interface_id) for interface_id in result.unknown_links]
    return JsonResponse(answer)


@csrf_exempt
def gone(request: HttpRequest, rest: str = "") -> HttpResponse:  # noqa: ARG001  whatever it asks
    """Older versions of the host API, for clients that nobody updated."""
    return error_response("gone", "This version of the host API is gone. Use /api/v4/host/, or a newer client.", 410)


def _is_current(host: Host, version: str, limits: str) -> bool:
    """True if and only if what the host has is the newest; a version from the future is not."""
    generation, _, config_version = version.partition(".")
    wanted = [(generation, host.generation), (config_version, host.config_version)]  # type: ignore[attr-defined]  # annotated
    if limits:
        wanted.append((limits, host.limits_version))
    # Compared as text: int() of somebody's thousands of digits is slow, then refused.
    return all((written.lstrip("0") or "0") == str(number) for written, number in wanted)


def _version_invalid(version: str) -> HttpResponse:
    return error_response("version_invalid", f'Version "{version[:40]}" is not of the form G.H, for example 1.18.', 400)
