"""Parses uplinks.toml, with all checks that need only the file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, Final

from ap_agent.common.errors import NotPermittedError, SettingsError
from ap_agent.common.files import read_toml
from ap_agent.common.setting_kinds import a_text, interface_names, whole_between
from bandwidth_config import RuleError
from contract.link_rules import IPAddress, check_bind_address

Network = IPv4Network | IPv6Network

FIRST_TABLE: Final = 1000
MAX_UPLINKS: Final = 64  # one table each
LAST_TABLE: Final = FIRST_TABLE + MAX_UPLINKS - 1
MAX_SOURCES: Final = 16  # addresses and prefixes: the kernel tries rules one after the other for each packet
_MAX_BYTES = 256 * 1024


@dataclass(frozen=True)
class Uplink:
    """`addresses` are this host's on `dev`; `prefixes` are further sources that use this uplink."""

    name: str
    dev: str
    table: int
    addresses: tuple[IPAddress, ...]
    gateway4: IPAddress | None = None
    gateway6: IPAddress | None = None
    prefixes: tuple[Network, ...] = ()

    @property
    def gateways(self) -> tuple[IPAddress, ...]:
        return tuple(one for one in (self.gateway4, self.gateway6) if one is not None)

    @property
    def sources(self) -> tuple[Network, ...]:
        """Addresses as host networks, and prefixes."""
        return (*(ip_network(one) for one in self.addresses), *self.prefixes)


class UplinksError(SettingsError):
    """uplinks.toml breaks a rule, named by `code`."""

    def __init__(self, path: Path, code: str, message: str) -> None:
        super().__init__(f"{path}: {message}", key=code)
        self.code = code


def read_uplinks(path: Path) -> tuple[tuple[Uplink, ...], str]:
    """The uplinks in the order of the file, and its text. Raises `UplinksError`, `NotPermittedError`."""
    try:
        document, text, _ = read_toml(path, _MAX_BYTES)
        return parse_uplinks(document), text
    except FileNotFoundError:
        text = "it does not exist; write it as uplinks.toml.example shows, or set uplinks_file."
        raise UplinksError(path, "missing", text) from None
    except PermissionError as exc:
        raise NotPermittedError(f"{path} cannot be read: {exc.strerror}. Run as root.") from exc
    except OSError as exc:
        raise UplinksError(path, "unreadable", f"it cannot be read: {exc.strerror}.") from exc
    except RuleError as exc:
        raise UplinksError(path, exc.code, exc.message) from exc
    except ValueError as exc:
        raise UplinksError(path, "not_toml", f"it {exc}; write it as uplinks.toml.example shows.") from exc


def parse_uplinks(document: Mapping[str, Any]) -> tuple[Uplink, ...]:
    """Raises `RuleError`."""
    if set(document) - {"uplink"}:
        unknown = sorted(set(document) - {"uplink"})[0]
        raise RuleError("unknown_key", f'unknown key "{unknown}"; each uplink is a table [[uplink]].')
    found = document.get("uplink")
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found) or not found:
        text = "there is no uplink; write a table [[uplink]] for each. `routes remove` removes all routes of ours."
        raise RuleError("no_uplink", text)
    if len(found) > MAX_UPLINKS:
        text = f"{len(found)} uplinks are more than {MAX_UPLINKS}; remove those that are unused."
        raise RuleError("too_many_uplinks", text)
    uplinks = tuple(_uplink(one, number) for number, one in enumerate(found, 1))
    _check_together(uplinks)
    return uplinks


def _uplink(values: Mapping[str, Any], number: int) -> Uplink:
    name = values.get("name")
    who = f'uplink "{name}"' if isinstance(name, str) and len(name) <= 40 else f"uplink {number}"
    for key in values:
        if key not in _KEYS:
            raise RuleError("unknown_key", f'{who}: unknown key "{key}". The keys are: {", ".join(_KEYS)}.')
    checked = {}
    for key, (wanted, check) in _KEYS.items():
        if key not in values:
            if key in _REQUIRED:
                raise RuleError("missing_key", f"{who}: {key} is missing; write {wanted}.")
            continue
        try:
            checked[key] = check(values[key])
        except RuleError as exc:
            raise RuleError(exc.code, f"{who}: {key}: {exc.message}") from exc
        except ValueError as exc:
            shown = repr(values[key])
            shown = shown if len(shown) <= 60 else shown[:57] + "..."
            raise RuleError("value_invalid", f"{who}: {key} = {shown} is not {wanted}: {exc}.") from exc
    uplink = Uplink(**checked)
    _check_families(uplink, who)
    return uplink


def _check_families(uplink: Uplink, who: str) -> None:
    """Each family has sources and a gateway, or neither."""
    for version, gateway in ((4, uplink.gateway4), (6, uplink.gateway6)):
        if gateway is not None and gateway.version != version:
            text = f"{who}: gateway{version} = {gateway} is an IPv{gateway.version} address; write it as gateway"
            raise RuleError("family_mismatch", f"{text}{gateway.version}.")
        first = next((one for one in uplink.addresses if one.version == version), None)
        if (first is None) != (gateway is None):
            what = f"address {first}, but no gateway{version}" if first else f"gateway{version}, but no such address"
            text = f"{who} has the IPv{version} {what}; add one, or remove the other."
            raise RuleError("family_mismatch", text)
        for one in uplink.prefixes:
            if one.version == version and gateway is None:
                text = (
                    f"{who}: prefix {one} needs gateway{version} and an IPv{version} address; add them, or remove it."
                )
                raise RuleError("family_mismatch", text)
    own = next((one for one in uplink.gateways if one in uplink.addresses), None)
    if own is not None:
        text = f"{who}: gateway {own} is an address of this host; write that of the router."
        raise RuleError("gateway_own", text)


def _check_together(uplinks: tuple[Uplink, ...]) -> None:
    for what, code in (("name", "name_taken"), ("table", "table_overlap")):
        used: dict[object, str] = {}
        for one in uplinks:
            value = getattr(one, what)
            if value in used:
                text = f'uplinks "{used[value]}" and "{one.name}" have the same {what} {value}; give each its own.'
                raise RuleError(code, text)
            used[value] = one.name
    claimed: list[tuple[Network, str]] = []
    for one in uplinks:
        for source in one.sources:
            for other, name in claimed:
                if _overlap(source, other):
                    both = f'"{name}" and "{one.name}"' if name != one.name else f'"{name}" twice'
                    shown = source if source.prefixlen >= other.prefixlen else other
                    text = f"{_bare(shown)} is claimed by {both}; leave it to one."
                    raise RuleError("address_claimed", text)
            claimed.append((source, one.name))


def _overlap(one: Network, other: Network) -> bool:
    return one.version == other.version and one.overlaps(other)


def _bare(network: Network) -> str:
    return str(network.network_address if network.prefixlen == network.max_prefixlen else network)


# --- keys -----------------------------------------------------------------------------------------------------------


def _name(value: object) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,31}", a_text(value), flags=re.ASCII):
        raise ValueError("write 1 to 32 lower-case letters, digits, - or _, beginning with a letter or digit")
    return str(value)


def _address(value: object) -> IPAddress:
    address = check_bind_address(value)
    if address.is_link_local:
        text = f"{address} is link-local, so it does not belong to one uplink alone. Leave it out."
        raise RuleError("address_refused", text)
    return address


def _network(value: object) -> Network:
    try:
        network = ip_network(a_text(value))
    except ValueError as exc:
        raise ValueError(f"write networks like 203.0.113.0/24 ({exc})") from exc
    if network.prefixlen == 0 or network.is_multicast or network.is_loopback or network.is_link_local:
        raise ValueError(f"{network} is not a network of other hosts")
    return network


def _list_of(check: Callable[[object], Any], low: int) -> Callable[[object], tuple[Any, ...]]:
    def checked(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list) or not low <= len(value) <= MAX_SOURCES:
            many = f" ({len(value)} are given)" if isinstance(value, list) else ""
            raise ValueError(f"write a list of {low} to {MAX_SOURCES}{many}")
        return tuple(check(one) for one in value)

    return checked


_KEYS: Final[Mapping[str, tuple[str, Callable[[object], Any]]]] = {
    "name": ("a name", _name),
    "dev": ("an interface", lambda value: interface_names([value])[0]),
    "table": ("a routing table", whole_between(FIRST_TABLE, LAST_TABLE)),
    "addresses": ("the addresses of this host there", _list_of(_address, 1)),
    "gateway4": ("the IPv4 address of the router there", check_bind_address),
    "gateway6": ("the IPv6 address of the router there", check_bind_address),
    "prefixes": ("further source networks", _list_of(_network, 0)),
}
_REQUIRED: Final[Iterable[str]] = ("name", "dev", "table", "addresses")
