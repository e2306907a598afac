"""The host API v4: hosts fetch their configuration and report what they installed and enforce.

It is SCIONLab's own API, so responses are those that the unmodified stock client expects (DOMAIN section 4).
"""

from __future__ import annotations

import logging
from typing import Final

from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from bandwidth_config import RuleError
from scionlab.delivery.host_api import schema
from scionlab.delivery.host_api.auth import host_endpoint, is_agent
from scionlab.delivery.host_api.bodies import read_at_most
from scionlab.delivery.host_api.documents import DocumentError, Kind
from scionlab.delivery.host_api.poll_versions import Held, is_digest, is_number, is_version
from scionlab.delivery.installed import Manifest, full_fetched, manifest_note, refusal
from scionlab.delivery.last_contact import CONTACTS
from scionlab.delivery.render import config_for
from scionlab.platform.api_errors import error_response
from scionlab.testbed.life import LIVES
from scionlab.testbed.models.host import Host, trace_of
from scionlab.testbed.versions.counters import host_note_delivered, host_set_deployed_version

logger = logging.getLogger(__name__)

RETRY_AFTER_S = 60  # wait for an administrator
MAX_MANIFEST_BYTES: Final = 1024 * 1024
_MANIFEST: Final = Kind(Manifest, "manifest_invalid", "The scionlab-config.json")


@host_endpoint("GET", "HEAD", described=schema.CONFIG, tells_deleted=True)
def config(request: HttpRequest, host: Host) -> HttpResponse:
    """Return the configuration, or 304 if the host has it; a 304 costs one SQL statement. Our agent sends `limits` and
    `digest`. `wait` is ignored here: `scionlab.delivery.polls` holds waiting polls and forwards them when
    there is something to deliver."""
    CONTACTS.note([host.pk])
    version, limits, digest = (request.GET.get(name, "") for name in ("version", "limits", "digest"))
    malformed = _malformed(version, limits, digest)
    if malformed is not None:
        return malformed
    if host.AS_id is None:
        return HttpResponse(status=204)
    if version and Held(version, limits, digest).is_newest(host):
        return HttpResponse(status=304)
    return _tarball(request, host) if is_agent(request) else _full(request, host, version)


def _malformed(version: str, limits: str, digest: str) -> HttpResponse | None:
    if version and not is_version(version):
        return _version_invalid(version)
    if limits and not is_number(limits):
        return error_response(
            "limits_invalid", f'limits "{limits[:40]}" is not a number. Send the limits version (L) that you have.', 400
        )
    if digest and not is_digest(digest):
        text = f'digest "{digest[:80]}" is not 64 hexadecimal digits. Send the SHA-256 of the link_info.json in force.'
        return error_response("digest_invalid", text, 400)
    return None


def _full(request: HttpRequest, host: Host, version: str) -> HttpResponse:
    """The tarball for a client that installs SCION files, unless that would delete files of another service."""
    generation = host.generation  # type: ignore[attr-defined]  # annotated by host_auth
    refused = refusal(host, generation=generation, version=version)
    if refused is not None:
        answer = _refused(refused)
        answer._has_been_logged = True  # type: ignore[attr-defined]  # Django would, as an error, every ten seconds
        return answer
    response = _tarball(request, host)
    if request.method == "GET" and response.status_code == 200:
        full_fetched(host_id=host.pk)
    return response


def _refused(exc: RuleError) -> HttpResponse:
    """Respond 503, after which the stock client changes nothing and keeps polling until an administrator resolves
    it."""
    refused = error_response(exc.code, exc.message, 503)
    refused["Retry-After"] = str(RETRY_AFTER_S)
    return refused


def _tarball(request: HttpRequest, host: Host) -> HttpResponse:
    try:
        rendered = config_for(host)
    except RuleError as exc:  # an administrator must correct it; the host keeps its configuration and polls again
        logger.error("config.refused host=%s code=%s %s", host.pk, exc.code, exc.message)
        return _refused(exc)
    response = HttpResponse(rendered.content, content_type="application/gzip")
    response["Content-Disposition"] = f'attachment; filename="{rendered.file_name}"'
    response["Content-Length"] = str(len(rendered.content))
    response["ETag"] = rendered.etag
    response["Cache-Control"] = "private, no-store"  # contains the host's secret
    versions = rendered.version[1:]
    logger.info("config.delivered host=%s trace=%s", host.pk, trace_of(host.uid, *versions))
    rises = host.delivered_config_version < versions[0] or host.delivered_limits_version < versions[1]
    if request.method == "GET" and rises:
        host_note_delivered(host_id=host.pk, config_version=versions[0], limits_version=versions[1])
    return response


@host_endpoint("POST", described=schema.DEPLOYED)
def deployed_config_version(request: HttpRequest, host: Host) -> HttpResponse:
    """Store the version that the stock client has installed."""
    version = request.POST.get("version", "")
    if not is_version(version):
        return _version_invalid(version)
    generation, _, written = (one.lstrip("0") or "0" for one in version.partition("."))
    if generation != str(host.generation):  # type: ignore[attr-defined]  # its H counts something else
        return HttpResponse(status=304)
    if len(written) > len(str(host.config_version)):  # also keeps thousands of digits away from int()
        return HttpResponse(status=304)
    with transaction.atomic():
        if not host_set_deployed_version(host_id=host.pk, config_version=int(written)):
            return HttpResponse(status=304)
        for life in LIVES:
            life.deployed(host.pk)
    return HttpResponse(status=200)


@host_endpoint("POST", described=schema.INSTALLED)
def installed(request: HttpRequest, host: Host) -> HttpResponse:
    """Store what SCION files a host has, sent before the stock client's first fetch (docs/api.md)."""
    content = read_at_most(request.read, MAX_MANIFEST_BYTES, "A manifest")
    try:
        manifest = _MANIFEST.read(content)
    except DocumentError as exc:
        if exc.code == "not_json" or "" in exc.fields:
            text = "Send the scionlab-config.json of the host, or {} if it has none."
            raise DocumentError("request_invalid", text) from exc
        raise
    refused = manifest_note(host_id=host.pk, manifest=manifest)
    if refused is not None:
        return error_response(refused.code, refused.message, 409)
    return JsonResponse({"installed": "nothing" if manifest.is_empty else "noted"})


@csrf_exempt
def gone(request: HttpRequest, rest: str = "") -> HttpResponse:  # noqa: ARG001  whatever it asks
    """410 for older versions of the host API."""
    return error_response(
        "gone", "This version of the host API was removed. Use /api/v4/host/, or a newer client.", 410
    )


def _version_invalid(version: str) -> HttpResponse:
    return error_response("version_invalid", f'Version "{version[:40]}" is not of the form G.H, for example 1.18.', 400)
