"""Bugs as somebody might make them, put in to prove that hostile inputs find them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ap_agent.agent import archive, bundle
from ap_agent.document import signatures as trust
from ap_agent.document.signed_text import Signed
from lab.fuzz import targets
from link_info import LinkInfo

_REAL_LINKS = bundle._links
_REAL_HEADER = archive._header


def _forgotten_key(members: Mapping[str, bytes]) -> dict[int, LinkInfo]:
    """A VPN link over IPv6 is looked up in a table that has no such row."""
    links = _REAL_LINKS(members)
    for link in links.values():
        if link.vpn and link.remote_ip.version == 6:
            raise KeyError(link.interface_id)
    return links


def _short_header(block: bytes, limits: archive.Limits) -> tuple[str, int]:
    """A prefix of a name is expected to end with a slash."""
    prefix = block[345:500].split(b"\0")[0]
    if prefix and prefix.split(b"/")[1] == b"scion":
        return _REAL_HEADER(block, limits)
    return _REAL_HEADER(block, limits)


def _any_signature(manifest: Mapping[str, Any], **_how: object) -> Signed | None:
    """Whoever signed it."""
    return trust.read_signed(manifest)


@dataclass(frozen=True)
class Planted:
    """`places`: module, name there, and what stands in for it; an input for `target` then raises `error`."""

    target: str
    places: tuple[tuple[ModuleType, str, Callable[..., object]], ...]
    error: type[BaseException]


PLANTED = {
    "a key that is missing": Planted("bundle", ((bundle, "_links", _forgotten_key),), KeyError),
    "an index beyond the end": Planted("bundle", ((archive, "_header", _short_header),), IndexError),
    "a signature that nobody checks": Planted(
        "manifest", ((targets, "_verify", _any_signature),), targets.BrokenPromiseError
    ),
}
