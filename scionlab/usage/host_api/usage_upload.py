"""Upload of traffic samples by agents (docs/api.md)."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from msgspec import to_builtins

from scionlab.delivery.host_api.auth import host_endpoint
from scionlab.delivery.host_api.bodies import read_body
from scionlab.delivery.host_api.documents import Stored
from scionlab.delivery.host_api.schema import json_answer, operation_of, schema_of
from scionlab.platform.api_errors import error_response
from scionlab.testbed.models import Host
from scionlab.usage.host_api.usage_format import UsageDocument, parse_usage
from scionlab.usage.ingest import usage_store

_USED = {"segment": "boot-1", "rate_kbit": [500], "bytes": [1200], "packets": [9], "drops": [0], "backlog_bytes": [0]}
_EXAMPLE = {
    "schema": 1,
    "batch": "0" * 31 + "1",
    "agent_version": "0.1.0",
    "version": "1.18",
    "times": ["2026-11-21T06:00:00.000Z"],
    "links": {"1": {"to_user": _USED, "from_user": _USED}},
}
_DESCRIBED = operation_of(
    "host_usage",
    "Upload a batch of counters",
    "Absolute counters of the kernel; `Content-Encoding: gzip` is accepted. Duplicates are ignored.",
    body=("application/json", schema_of(UsageDocument), _EXAMPLE),
    responses={"200": json_answer("False: the batch was stored before.", schema_of(Stored), {"stored": True})},
    errors=(400, 413),
)


@host_endpoint("POST", described=_DESCRIBED)
def usage(request: HttpRequest, host: Host) -> HttpResponse:
    """Store a batch of samples. Only from hosts of attachment points: every user has the credentials of some host."""
    if not hasattr(host, "attachment_point"):
        return error_response(
            "not_attachment_point", "This host is not an attachment point, so it has no usage to send.", 400
        )
    batch = parse_usage(read_body(request.read, request.headers.get("Content-Encoding", "").strip().lower()))
    result = usage_store(host_id=host.pk, batch=batch)
    return JsonResponse(to_builtins(Stored(result.stored, list(map(str, result.ignored_links)))))
