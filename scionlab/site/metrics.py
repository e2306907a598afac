"""The metrics page for Prometheus, closed unless `METRICS_TOKEN` or `METRICS_NETWORKS` is set."""

from __future__ import annotations

import hmac
import ipaddress
import logging
from collections.abc import Iterator

from django.conf import settings
from django.db import Error as DatabaseError
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from scionlab.platform.client_address import client_address
from scionlab.platform.metrics import shared
from scionlab.platform.queue import queue_length, redis_problem
from scionlab.site import figures

logger = logging.getLogger(__name__)


@require_safe
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    """404 if closed; 401 without a token; otherwise 200 with what is available, even while a part is down."""
    if not settings.METRICS_TOKEN and not settings.METRICS_NETWORKS:
        raise Http404("METRICS_TOKEN and METRICS_NETWORKS are not set.")
    if not (_has_token(request) or _is_near(request)):
        headers = {"WWW-Authenticate": 'Bearer realm="metrics"'} if settings.METRICS_TOKEN else {}
        return HttpResponse("Send METRICS_TOKEN as a bearer token.\n", "text/plain", 401, headers=headers)
    return HttpResponse(exposition(), content_type=CONTENT_TYPE_PLAIN_0_0_4)


def exposition() -> bytes:
    """Text format 0.0.4."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Everything())
    return generate_latest(registry)


class _Everything:
    """Collects all metrics; a part that is down is reported as down, without its figures."""

    def collect(self) -> Iterator[Metric]:
        yield from shared.collect()
        found = _figures()
        yield from found or ()
        up = GaugeMetricFamily("scionlab_up", "1 while this part is available.", labels=("part",))
        waiting = queue_length()
        if waiting is not None:
            yield GaugeMetricFamily("scionlab_queue_tasks", "Tasks that wait for a worker.", value=waiting)
        up.add_metric(("redis",), 0 if redis_problem(settings.REDIS_URL) else 1)
        up.add_metric(("database",), 0 if found is None else 1)
        yield up


def _figures() -> list[Metric] | None:
    try:
        return list(figures.families())
    except DatabaseError as exc:
        logger.warning("metrics.database_away error=%s", type(exc).__name__)
        return None


def _has_token(request: HttpRequest) -> bool:
    kind, _, given = request.headers.get("Authorization", "").partition(" ")
    expected: str = settings.METRICS_TOKEN
    return (
        bool(expected) and kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), expected.encode())
    )


def _is_near(request: HttpRequest) -> bool:
    address = client_address(request)
    if address is None:
        return False
    found = ipaddress.ip_address(address)
    return any(found in network for network in settings.METRICS_NETWORKS)
