"""Upload of traffic samples by agents (docs/api.md)."""

from __future__ import annotations

import logging

from django.http import HttpRequest, HttpResponse, JsonResponse

from scionlab.delivery.host_api.auth import host_endpoint
from scionlab.delivery.host_api.bodies import TooLargeError, read_body
from scionlab.delivery.host_api.document_reader import DocumentError
from scionlab.platform.api_errors import error_response
from scionlab.testbed.models import Host
from scionlab.usage.host_api.usage_format import parse_usage
from scionlab.usage.ingest import usage_store

logger = logging.getLogger(__name__)


@host_endpoint("POST")
def usage(request: HttpRequest, host: Host) -> HttpResponse:
    """Store a batch of samples. Only from hosts of attachment points: every user has the credentials of some host."""
    if not hasattr(host, "attachment_point"):
        return error_response(
            "not_attachment_point", "This host is not an attachment point, so it has no usage to send.", 400
        )
    try:
        batch = parse_usage(read_body(request.read, request.headers.get("Content-Encoding", "").strip().lower()))
    except DocumentError as exc:
        logger.warning("usage.refused host=%s code=%s %s", host.pk, exc.code, exc.message)
        return error_response(exc.code, exc.message, 413 if isinstance(exc, TooLargeError) else 400, exc.fields)
    result = usage_store(host_id=host.pk, batch=batch)
    answer: dict[str, object] = {"stored": result.stored}
    if result.ignored_links:
        answer["ignored_links"] = [str(interface_id) for interface_id in result.ignored_links]
    return JsonResponse(answer)
