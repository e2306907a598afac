"""Counts Django's responses. First middleware, so that it times everything."""

from __future__ import annotations

import time
from collections.abc import Callable

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from scionlab.platform.metrics.names import ANSWERS, REQUESTS

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class MetricsMiddleware:
    """Labels are view names, of which there are a few dozen: never something that a client can choose."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        began = time.perf_counter()
        response = self._get_response(request)
        match = request.resolver_match
        view = match.view_name if match is not None and match.view_name else "none"
        REQUESTS.labels(view).observe(time.perf_counter() - began)
        method = request.method if request.method in METHODS else "other"
        ANSWERS.labels(view, method, response.status_code).inc()
        return response
