"""Resolves arguments that name a Link (number, AS, or AS and attachment point) or an AS."""

from __future__ import annotations

from typing import Any

from scionlab_bw.client import Document, Service
from scionlab_bw.errors import UsageError


def find(service: Service, written: str) -> Document:
    """`7`, `17-ffaa:1:b6`, or `17-ffaa:1:b6@17-ffaa:0:1107`. Raises `UsageError`, or errors of the service."""
    if written.isascii() and written.isdigit():
        return service.get(f"links/{written}/")
    as_name, _, ap_name = written.lower().partition("@")
    found = [
        link
        for link in service.all_of("links/")
        if as_name
        and as_name in {link["isd_as"], link["as_label"].lower()}
        and ap_name in {"", link["attachment_point"]}
    ]
    if not found:
        raise UsageError(f'You have no Link "{written[:60]}". `scionlab-bw links` lists them.')
    if len(found) > 1:
        names = ", ".join(name_of(link) for link in found[:5])
        raise UsageError(f'"{written[:60]}" has {len(found)} Links. Write a number, or one of: {names}.')
    return service.get(f"links/{found[0]['id']}/")


def name_of(link: dict[str, Any]) -> str:
    return f"{link['isd_as']}@{link['attachment_point']}"


def find_as(service: Service, written: str) -> Document:
    """An AS by number (`scionlab-bw ases`), ISD-AS or label. Raises `UsageError`, or errors of the service."""
    if written.isascii() and written.isdigit():
        return service.get(f"ases/{written}/")
    wanted = written.lower()
    found = [one for one in service.all_of("ases/") if wanted and wanted in {one["isd_as"], one["label"].lower()}]
    if not found:
        raise UsageError(f'You have no AS "{written[:60]}". `scionlab-bw ases` lists them.')
    if len(found) > 1:
        names = ", ".join(one["isd_as"] for one in found[:5])
        raise UsageError(f'{len(found)} ASes match "{written[:60]}". Write one of: {names}.')
    return service.get(f"ases/{found[0]['id']}/")
