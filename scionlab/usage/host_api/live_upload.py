"""Upload of current rates of links whose page is open (docs/api.md)."""

from __future__ import annotations

from typing import Annotated, Final

from django.http import HttpRequest, HttpResponse, JsonResponse
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import astuple

from scionlab.delivery.host_api.auth import host_endpoint
from scionlab.delivery.host_api.bodies import read_at_most
from scionlab.delivery.host_api.documents import Document, InterfaceId, Kind, Versioned
from scionlab.delivery.host_api.schema import json_answer, operation_of, schema_of
from scionlab.platform.api_errors import error_response
from scionlab.platform.clock import database_now
from scionlab.testbed.models import Host
from scionlab.usage import live
from scionlab.usage.host_api.usage_format import Counter, Rate

MAX_BYTES: Final = 64 * 1024
MAX_MS: Final = 600_000


class LiveSide(Document, frozen=True):
    rate_kbit: Rate
    passed_bytes: Counter
    dropped_bytes: Counter


class RatesDocument(Document, frozen=True):
    over_ms: Annotated[int, Meta(ge=1, le=MAX_MS, description="Between two samples.")]
    in_force: Annotated[bool, Meta(description="False: only observed, or not limited as wanted.")]
    to_user: LiveSide | UnsetType | None = UNSET
    from_user: LiveSide | UnsetType | None = UNSET


class LiveDocument(Versioned, frozen=True):
    age_ms: Annotated[int, Meta(ge=0, le=MAX_MS, description="Of the newer sample.")]
    links: Annotated[dict[InterfaceId, RatesDocument], Meta(max_length=live.MOST_LINKS)]


LIVE: Final = Kind(LiveDocument, "live_invalid", "The rates")


class LookedAt(Document, frozen=True):
    links: Annotated[list[str], Meta(max_length=live.MOST_LINKS)]


_SIDE = {"rate_kbit": 500, "passed_bytes": 51_500, "dropped_bytes": 0}
_RATES = {"over_ms": 1000, "in_force": True, "to_user": _SIDE, "from_user": _SIDE}
_DESCRIBED = operation_of(
    "host_live",
    "Report what passes now",
    "For Links whose page is open: what passed between the last two samples. Kept for an hour, never in the "
    "database. The first call comes with a poll (`live=1`, header `Scionlab-Looked-At`).",
    body=("application/json", schema_of(LiveDocument), {"schema": 1, "age_ms": 4, "links": {"1": _RATES}}),
    responses={"200": json_answer("The Links whose page is open now.", schema_of(LookedAt), {"links": ["1"]})},
    errors=(400, 413),
)


@host_endpoint("POST", described=_DESCRIBED)
def live_rates(request: HttpRequest, host: Host) -> HttpResponse:
    """Respond with the links whose page is open; an empty list means stop. Nothing is stored in the database."""
    if not hasattr(host, "attachment_point"):
        return error_response("not_attachment_point", "This host is not an attachment point, so it has no links.", 400)
    content = read_at_most(request.read, MAX_BYTES, "A document of live rates")
    rates = parse_rates(content, now=database_now().timestamp())
    return JsonResponse({"links": [str(number) for number in live.store(host.uid, rates)]})


def parse_rates(content: bytes, *, now: float) -> dict[int, live.Rates]:
    """Return rates by interface id. Raises only `DocumentError`, for any bytes."""
    document = LIVE.read(content)
    at = now - document.age_ms / 1000
    return {
        number: live.Rates(at, said.over_ms, said.in_force, _side(said.to_user), _side(said.from_user))
        for number, said in document.links.items()
    }


def _side(said: LiveSide | UnsetType | None) -> live.Side | None:
    return live.Side(*astuple(said)) if said else None
