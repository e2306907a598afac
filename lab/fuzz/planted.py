"""Bugs as somebody might make them, put in so that the fuzzer proves that it would find them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ap_agent.agent import archive, bundle, store
from ap_agent.agent.bundle import Bundle
from ap_agent.common.errors import BundleError
from ap_agent.document import signatures as trust
from ap_agent.document.signed_text import Signed
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


def _almost_any_name(name: str, _limits: archive.Limits = archive.DEFAULT_LIMITS) -> None:
    """Looks at where a name begins, and forgets that it can lead back."""
    is_elsewhere = name != archive.MANIFEST and not name.startswith(archive.ALLOWED_FOLDERS)
    if is_elsewhere or {"", "."} & set(name.split("/")) or not name.isprintable():
        raise BundleError("That name lies elsewhere.", code="member_name")


def _write_anywhere(folder: Path, bundle: Bundle) -> None:
    """Makes whatever folders a name has."""
    for name, data in bundle.members.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _any_signature(manifest: Mapping[str, Any], **_how: object) -> Signed | None:
    """Whoever signed it."""
    return trust.read_signed(manifest)


def _plant_escape() -> None:
    for module in (archive, store):
        setattr(module, "check_name", _almost_any_name)  # noqa: B010  # which no type checker would let pass
    store._write_tree = _write_anywhere


def _plant_forgotten_key() -> None:
    bundle._links = _forgotten_key


def _plant_short_header() -> None:
    archive._header = _short_header


def _plant_unsigned() -> None:
    from lab.fuzz import targets  # noqa: PLC0415  # which binds its `verify` when it is imported

    targets._verify = _any_signature  # type: ignore[assignment]


@dataclass(frozen=True)
class Planted:
    """`target` is where it is found, `says` what the fuzzer's log then has."""

    target: str
    put_in: Callable[[], None]
    says: str


PLANTED = {
    "a key that is missing": Planted("bundle", _plant_forgotten_key, "KeyError"),
    "an index beyond the end": Planted("bundle", _plant_short_header, "IndexError"),
    "a name that leads out": Planted("bundle", _plant_escape, "TrespassError"),
    "a signature that nobody checks": Planted("manifest", _plant_unsigned, "nobody signed"),
}
