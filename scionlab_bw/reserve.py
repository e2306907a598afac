"""Reserves a time for a test; waits for a slot that becomes free soon."""

from __future__ import annotations

from argparse import Namespace
from datetime import datetime
from typing import Any

from scionlab_bw import tables
from scionlab_bw.client import Service
from scionlab_bw.errors import Refused
from scionlab_bw.units import iso, parse_moment

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
