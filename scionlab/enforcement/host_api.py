"""The host API's door for receipts."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse

from scionlab.delivery.host_api.auth import host_endpoint
from scionlab.delivery.host_api.document_reader import DocumentError
from scionlab.delivery.host_api.views import logger
from scionlab.enforcement.receipt import receipt_refused, receipt_store
from scionlab.enforcement.receipt_changes import known_links
from scionlab.enforcement.receipt_format import MAX_BYTES, MAX_BYTES_WITHOUT_LINKS, parse_receipt
from scionlab.platform.api_errors import error_response
from scionlab.platform.client_address import client_address
from scionlab.testbed.models.host import Host, trace_of


@host_endpoint("POST")
def enforcement(request: HttpRequest, host: Host) -> HttpResponse:
    """Store the receipt of the attachment point's agent (docs/api.md)."""
    # Read by hand: Django's limit for a body (DATA_UPLOAD_MAX_MEMORY_SIZE) is below a large receipt.
    content = request.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        return error_response("too_large", f"A receipt has at most {MAX_BYTES} bytes.", 413)
    if len(content) > MAX_BYTES_WITHOUT_LINKS and not hasattr(host, "attachment_point"):
        text = f"A receipt of a host that is not an attachment point has at most {MAX_BYTES_WITHOUT_LINKS} bytes."
        return error_response("too_large", text, 413)
    try:
        receipt = parse_receipt(content, known_links(host.pk))
    except DocumentError as exc:
        logger.warning("receipt.refused host=%s code=%s %s", host.pk, exc.code, exc.message)
        receipt_refused(host_id=host.pk, why=exc.message)
        return error_response(exc.code, exc.message, 400, exc.fields)
    result = receipt_store(host_id=host.pk, receipt=receipt, address=client_address(request))
    if result.is_news and receipt.versions is not None:
        logger.info("receipt.news host=%s trace=%s", host.pk, trace_of(host.uid, *receipt.versions[1:]))
    answer: dict[str, object] = {"stored": result.stored}
    if result.unknown_links:
        answer["ignored_links"] = [str(interface_id) for interface_id in result.unknown_links]
    if result.evidence_wanted:
        answer["evidence_wanted"] = True
    return JsonResponse(answer)
