"""Validators of configuration values: TOML value -> setting, or `ValueError` with the remedy as its text.

`settings` assigns them to keys; `credentials` has those of an enrolment.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import re
from collections.abc import Callable
from pathlib import Path

from ap_agent.common.keys import TrustedKey, parse_keys
from bandwidth_config import RuleError, check_bandwidth


def a_text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("write a string in quotes")
    return value


def an_absolute_path(value: object) -> Path:
    path = Path(a_text(value))
    if not path.is_absolute():
        raise ValueError('write an absolute path, beginning with "/"')
    return path


def a_boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("write true or false, without quotes")
    return value


def parse_boolean(text: str) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.strip().lower() not in words:
        raise ValueError("write true or false")
    return words[text.strip().lower()]


def seconds_between(low: float, high: float) -> Callable[[object], float]:
    def check(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ValueError(f"write a number of seconds from {low:g} to {high:g}")
        return float(value)

    return check


def an_interval_or_never(low: float, high: float) -> Callable[[object], float]:
    within = seconds_between(low, high)

    def check(value: object) -> float:
        if value == 0 and not isinstance(value, bool):
            return 0.0
        try:
            return within(value)
        except ValueError as exc:
            raise ValueError(f"{exc}, or 0 for never") from None

    return check


def an_address_to_listen_on(value: object) -> tuple[str, int]:
    """`127.0.0.1:9106`, `[::1]:9106`: the address and the port."""
    remedy = 'write an address and a port, like "127.0.0.1:9106" or "[::1]:9106"'
    found = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([0-9.]+)):([0-9]{1,5})", a_text(value), flags=re.ASCII)
    if found is None:
        raise ValueError(remedy)
    try:
        address = ipaddress.ip_address(found[1] or found[2])
    except ValueError:
        raise ValueError(remedy) from None
    if (address.version == 6) != (found[1] is not None) or not 1 <= int(found[3]) <= 65535:
        raise ValueError(remedy)
    return str(address), int(found[3])


def parse_number(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text.strip(), flags=re.ASCII):
        raise ValueError("write a number in decimal digits")
    return float(text)


def whole_between(low: int, high: int) -> Callable[[object], int]:
    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"write a whole number from {low} to {high}, without quotes")
        return value

    return check


def parse_whole(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,12}", text.strip(), flags=re.ASCII):
        raise ValueError("write a whole number in decimal digits")
    return int(text)


def a_bandwidth(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("write a whole number of kbit/s, without quotes")
    try:
        check_bandwidth(value)
    except RuleError as exc:
        raise ValueError(exc.message) from exc
    if value == 0:
        raise ValueError("0 would block all other traffic of this host, SSH included; write at least 1")
    return value


def one_of(*choices: str) -> Callable[[object], str]:
    def check(value: object) -> str:
        if value not in choices:
            raise ValueError("write " + " or ".join(f'"{choice}"' for choice in choices))
        return str(value)

    return check


def interface_names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError('write a list of interface names, for example ["eth0", "tun0"]')
    for name in value:
        # The kernel's own rule, dev_valid_name(): 1 to 15 bytes, no slash, no colon, no space, not "." or "..".
        if not re.fullmatch(r"[^\s/:]{1,15}", name) or name in {".", ".."} or len(name.encode()) > 15:
            raise ValueError(f'"{name}" is not an interface name; `ip link` lists the names of this host')
    if len(set(value)) != len(value):
        raise ValueError("an interface is listed twice")
    return tuple(value)


def networks(value: object) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError('write a list of addresses or networks, for example ["192.0.2.7", "2001:db8::/64"]')
    try:
        return tuple(ipaddress.ip_network(one) for one in value)
    except ValueError as exc:
        raise ValueError(f"{exc}; write addresses or networks like 192.0.2.0/24") from exc


def pinned_keys(value: object) -> tuple[TrustedKey, ...]:
    remedy = 'write what `manage.py signing_key list` prints: ["<public key in base64> 2028-11-21T00:00:00Z"]'
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError(remedy)
    if not value:
        return ()
    try:
        return parse_keys([_service_key(*one.split()) for one in value])
    except (TypeError, ValueError) as exc:
        raise ValueError(remedy) from exc


def _service_key(public_key: str, not_after: str) -> dict[str, str]:
    key_id = hashlib.sha256(base64.b64decode(public_key)).hexdigest()[:32]
    return {"key_id": key_id, "public_key": public_key, "not_after": not_after}
