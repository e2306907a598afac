"""Upload of current rates of links whose page is open (docs/api.md)."""

from __future__ import annotations

from typing import Any, Final

from django.http import HttpRequest, HttpResponse, JsonResponse

from scionlab.delivery.host_api.auth import host_endpoint
from scionlab.delivery.host_api.document_reader import DocumentError, DocumentReader, load, require_schema
from scionlab.enforcement.directions import DIRECTIONS
from scionlab.platform.api_errors import error_response
from scionlab.platform.clock import database_now
from scionlab.testbed.models import Host
from scionlab.usage import live
from scionlab.usage.host_api.usage_format import MAX_COUNTER, MAX_RATE_KBIT

MAX_BYTES: Final = 64 * 1024
MAX_MS: Final = 600_000


@host_endpoint("POST")
def live_rates(request: HttpRequest, host: Host) -> HttpResponse:
    """Respond with the links whose page is open; an empty list means stop. Nothing is stored in the database."""
    if not hasattr(host, "attachment_point"):
        return error_response("not_attachment_point", "This host is not an attachment point, so it has no links.", 400)
    content = request.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        return error_response("too_large", f"Live rates have at most {MAX_BYTES} bytes.", 413)
    try:
        rates = parse_rates(content, now=database_now().timestamp())
    except DocumentError as exc:
        return error_response(exc.code, exc.message, 400, exc.fields)
    return JsonResponse({"links": [str(number) for number in live.store(host.uid, rates)]})


def parse_rates(content: bytes, *, now: float) -> dict[int, live.Rates]:
    """Return rates by interface id. Raises only `DocumentError`, for any bytes."""
    document = load(content)
    if not isinstance(document, dict):
        raise DocumentError("live_invalid", "The rates: send an object here.")
    require_schema(document)
    reader = DocumentReader()
    at = now - reader.integer(document.get("age_ms"), "age_ms", MAX_MS) / 1000
    found = reader.links(document.get("links"))
    rates = {number: _rates(reader, reader.mapping(value, place), place, at) for number, value, place in found}
    reader.expect(len(rates) <= live.MOST_LINKS, "links", f"at most {live.MOST_LINKS} links")
    reader.refuse("live_invalid", "The rates")
    return rates


def _rates(reader: DocumentReader, said: dict[str, Any], place: str, at: float) -> live.Rates:
    over_ms, in_force = reader.integer(said.get("over_ms"), f"{place}.over_ms", MAX_MS), said.get("in_force")
    reader.expect(over_ms > 0, f"{place}.over_ms", f"an integer from 1 to {MAX_MS}", said.get("over_ms"))
    reader.expect(isinstance(in_force, bool), f"{place}.in_force", "true or false", in_force)
    sides = [_side(reader, said.get(name), f"{place}.{name}") for name in DIRECTIONS]
    return live.Rates(at, max(1, over_ms), bool(in_force), *sides)


def _side(reader: DocumentReader, value: object, place: str) -> live.Side | None:
    if value is None:
        return None
    said = reader.mapping(value, place)
    return live.Side(
        reader.integer(said.get("rate_kbit"), f"{place}.rate_kbit", MAX_RATE_KBIT),
        reader.integer(said.get("passed_bytes"), f"{place}.passed_bytes", MAX_COUNTER),
        reader.integer(said.get("dropped_bytes"), f"{place}.dropped_bytes", MAX_COUNTER),
    )
