"""Enrolment of a host: exchanges a one-time token for its credentials and this service's keys (docs/api.md)."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Final, cast

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from rest_framework.request import Request
from rest_framework.views import APIView

from scionlab.delivery.enrolment import host_enrol
from scionlab.delivery.host_api.bodies import read_at_most
from scionlab.delivery.host_api.documents import Document, DocumentError, Kind, TooLargeError
from scionlab.platform.api_errors import error_response
from scionlab.platform.client_address import client_address
from scionlab.platform.throttles import EnrolThrottle

MAX_BYTES = 4096
MAX_TOKEN_CHARS = 200


class EnrolDocument(Document, frozen=True):
    token: str


ENROL: Final = Kind(EnrolDocument, "request_invalid", "The enrolment")


@csrf_exempt  # no cookies involved
def enrol(request: HttpRequest) -> HttpResponse:
    """POST {"token": the random part}. Any invalid token gets the same 403."""
    response = _answer(request)
    response["Cache-Control"] = "no-store"  # contains the host's secret
    return response


def _answer(request: HttpRequest) -> HttpResponse:
    if request.method != "POST":
        response = error_response("method_not_allowed", "Use POST here.", 405)
        response["Allow"] = "POST"
        return response
    throttle = EnrolThrottle()
    if not throttle.allow_request(Request(request), cast(APIView, None)):
        seconds = math.ceil(throttle.wait() or 1)
        response = error_response("throttled", f"Too many attempts. Try again in {seconds} s.", 429)
        response["Retry-After"] = str(seconds)
        return response
    try:
        token = ENROL.read(read_at_most(request.read, MAX_BYTES, "An enrolment")).token
    except TooLargeError as exc:
        return error_response(exc.code, exc.message, exc.status)
    except DocumentError:
        return error_response("request_invalid", 'Send JSON: {"token": "the random part of the token"}.', 400)
    found = host_enrol(random=token, address=client_address(request)) if len(token) <= MAX_TOKEN_CHARS else None
    if found is None:
        text = "The token is unknown, used or expired. Ask an administrator for a new one."
        return error_response("token_invalid", text, 403)
    return JsonResponse(asdict(found))
