"""Reserves a time for a test, waits for a slot that becomes free soon, and for the end of the test."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable
from datetime import datetime
from typing import Any

from scionlab_bw import tables
from scionlab_bw.client import FOLLOW_S, Service
from scionlab_bw.errors import Refused, Unreachable
from scionlab_bw.units import iso, parse_moment

OPEN = {"scheduled", "armed", "running"}
PATIENCE_S = 120  # how long to wait for another test of the link


def start_of(service: Service, arguments: Namespace) -> dict[str, Any]:
    """What --at adds to a request; nothing for now. Raises `UsageError`."""
    now = service.now()
    begins_at = now if arguments.at is None else parse_moment(arguments.at, now=now)
    return {} if begins_at == now else {"begins_at": iso(begins_at)}


def reserve(service: Service, path: str, body: dict[str, Any], arguments: Namespace) -> dict[str, Any]:
    """The new test. Raises `Refused`, and `UsageError` for --at."""
    body = {**body, **start_of(service, arguments)}
    try:
        return service.post(path, body)
    except Refused as exc:
        free_at = exc.document.get("next_free_at")
        if "begins_at" in body or free_at is None:
            raise
        if (datetime.fromisoformat(free_at) - service.now()).total_seconds() > PATIENCE_S:
            raise
        tables.tell(arguments, f"{exc} Waiting for it.")
        return service.post(path, {**body, "begins_at": free_at})


def until_over(
    service: Service, path: str, seen: Callable[[dict[str, Any]], None] = lambda _found: None
) -> dict[str, Any]:
    """The test once it has ended; the service says when, also without a result. `seen` gets each change."""
    etag, found = "", None
    while found is None or found["state"] in OPEN:
        newer = service.newer(path, etag)
        if newer is not None:
            etag, found = newer.etag, newer.content
            seen(found)
        if found is None:
            raise Unreachable(f"{service.url} sent no test.")
        if found["state"] in OPEN:
            time.sleep(FOLLOW_S)
    return found
