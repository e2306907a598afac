"""The host API's door for receipts."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from msgspec import to_builtins

from scionlab.delivery.host_api.auth import host_endpoint
from scionlab.delivery.host_api.bodies import read_at_most
from scionlab.delivery.host_api.documents import DocumentError, Stored
from scionlab.delivery.host_api.schema import json_answer, operation_of, schema_of
from scionlab.delivery.host_api.views import logger
from scionlab.enforcement.receipt import receipt_refused, receipt_store
from scionlab.enforcement.receipt_format import MAX_BYTES, MAX_BYTES_WITHOUT_LINKS, Receipt, parse_receipt
from scionlab.platform.client_address import client_address
from scionlab.testbed.models.host import Host, trace_of


class ReceiptStored(Stored, frozen=True):
    evidence_wanted: bool = False


_EXAMPLE = {
    "schema": 1,
    "agent_version": "0.1.0",
    "version": "1.18",
    "limits_version": 7,
    "limits_digest": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "run": "5f0c9f0e6d6b4c0f8f1f3f6f1f0a9b7c",
    "number": 12,
    "clock_skew_ms": -20,
    "observed_at": "2026-11-21T06:00:00.123456Z",
    "writes": 0,
    "links": {},
    "problems": [],
}
_DESCRIBED = operation_of(
    "host_enforcement",
    "Send a receipt with the state of the kernel",
    body=("application/json", schema_of(Receipt), _EXAMPLE),
    responses={"200": json_answer("Result.", schema_of(ReceiptStored), {"stored": True})},
    errors=(400, 413),
)


@host_endpoint("POST", described=_DESCRIBED)
def enforcement(request: HttpRequest, host: Host) -> HttpResponse:
    """Store the receipt of the attachment point's agent (docs/api.md)."""
    # Read by hand: Django's limit for a body (DATA_UPLOAD_MAX_MEMORY_SIZE) is below a large receipt.
    if hasattr(host, "attachment_point"):
        content = read_at_most(request.read, MAX_BYTES, "A receipt")
    else:
        what = "A receipt of a host that is not an attachment point"
        content = read_at_most(request.read, MAX_BYTES_WITHOUT_LINKS, what)
    try:
        receipt = parse_receipt(content)
    except DocumentError as exc:
        receipt_refused(host_id=host.pk, why=exc.message)
        raise
    result = receipt_store(host_id=host.pk, receipt=receipt, address=client_address(request))
    if result.is_news and receipt.versions is not None:
        logger.info("receipt.news host=%s trace=%s", host.pk, trace_of(host.uid, *receipt.versions[1:]))
    answer = ReceiptStored(result.stored, list(map(str, result.unknown_links)), result.evidence_wanted)
    return JsonResponse(to_builtins(answer))
