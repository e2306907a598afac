"""Parser of link_info.json (DOMAIN section 3): strict for known keys, ignoring unknown ones.

`bandwidth_config.generate_link_info` is the writer. Both programs import this module; it does no I/O.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Any

from bandwidth_config import (
    FROM_USER_KEY,
    MAX_BANDWIDTH_KBIT,
    MIN_BANDWIDTH_KBIT,
    OBSERVE_KEY,
    TESTS_KEY,
    TIMED_KEY,
    TO_USER_KEY,
    Limits,
    LinkStep,
    RuleError,
    TimedLimits,
    check_limits,
    limits_at,
    time_text,
)
from contract.link_rules import (
    MAX_INTERFACE_ID,
    MAX_PORT,
    MAX_STEPS,
    MAX_TIMED_PER_LINK,
    MIN_INTERFACE_ID,
    IPAddress,
    check_steps,
    check_underlay_address,
    parse_ip,
    read_time,
)
from contract.link_tests import LinkTest, read_tests

_THESIS_KEYS = ("AS_ID", "IsUserAS", "Bandwidth", "IP-Address")
_MAX_NAMED = 20  # entries in one message
_MAX_STEP_NUMBER = 2**53  # longer numbers are neither offsets nor bandwidths


class LinkInfoError(RuleError):
    """A link_info.json that must not be enforced; `code` names the broken rule."""


@dataclass(frozen=True, slots=True, order=True)
class LinkInfo:
    """One entry of link_info.json: a Link as the AP's host sees it (DOMAIN section 3).

    `bandwidth_kbit` is the lower of both directions' limits. `remote_port`, `local_ip`, `local_port` and `vpn` are None
    if absent: then the link is matched by its remote address only. `is_user_as` is true only if this host's AS is the
    provider of a user AS: only these links are limited. `directions` is None if both have the same limit; `timed` are
    in order and do not overlap. `is_observed`: the link is measured, and nothing is dropped. `tests` are of known
    kinds.
    """

    interface_id: int
    as_id: int
    is_user_as: bool
    bandwidth_kbit: int
    remote_ip: IPAddress
    isd_as: str | None = None
    remote_port: int | None = None
    local_ip: IPAddress | None = None
    local_port: int | None = None
    vpn: bool | None = None
    directions: Limits | None = None
    timed: tuple[TimedLimits, ...] = ()
    is_observed: bool = False
    tests: tuple[LinkTest, ...] = ()

    @property
    def limits(self) -> Limits:
        """Limits without a timed limit."""
        return self.directions if self.directions is not None else Limits.both(self.bandwidth_kbit)

    def limits_at(self, when: datetime) -> Limits:
        return limits_at(self.limits, self.timed, when)

    def next_change(self, after: datetime) -> datetime | None:
        """The first moment after `after` at which a timed limit begins, steps or ends; None if there is none."""
        return next((one.next_change(after) for one in self.timed if after < one.ends_at), None)

    def with_limits(self, limits: Limits) -> LinkInfo:
        """A copy with these limits at all times."""
        directions = None if limits.is_symmetric else limits
        return replace(self, bandwidth_kbit=limits.lowest_kbit, directions=directions, timed=())


# Entries of one document by key, raw and parsed.
KnownEntries = dict[str, tuple[Mapping[str, Any], LinkInfo]]


def parse_link_info(
    document: bytes | str, *, max_bytes: int = 16 * 1024 * 1024, known: KnownEntries | None = None
) -> dict[int, LinkInfo]:
    """Parse link_info.json. Raises only `LinkInfoError`, for any bytes; a document is accepted whole or not at all.
    Entries with only the thesis' four keys are accepted; unknown keys are ignored (DOMAIN section 3). `known` are the
    entries of the previous document, which are not checked again if equal; it is updated to this document."""
    if len(document) > max_bytes:
        raise LinkInfoError("too_large", f"link_info.json has {len(document)} bytes, more than {max_bytes}.")
    try:
        text = document.decode("utf-8") if isinstance(document, bytes) else document
        loaded = json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except LinkInfoError:
        raise
    except UnicodeDecodeError as exc:
        raise LinkInfoError("not_utf8", f"link_info.json is not UTF-8: {exc.reason} at byte {exc.start}.") from exc
    except json.JSONDecodeError as exc:
        raise LinkInfoError(
            "not_json", f"link_info.json is not JSON at line {exc.lineno}, column {exc.colno}."
        ) from exc
    except RecursionError as exc:
        raise LinkInfoError("not_json", "link_info.json cannot be read: it is nested too deeply.") from exc
    except ValueError as exc:
        raise LinkInfoError("not_json", "link_info.json cannot be read: a number has thousands of digits.") from exc
    return check_link_info(loaded, known=known)


def check_link_info(document: object, *, known: KnownEntries | None = None) -> dict[int, LinkInfo]:
    """Parse a document that is already loaded from JSON."""
    if not isinstance(document, Mapping):
        raise LinkInfoError(
            "not_an_object",
            f"link_info.json holds {_kind(document)} at the top; expected an object keyed by interface ids.",
        )
    _check_keys(document)
    before = known if known is not None else {}
    found: KnownEntries = {}
    for key, value in document.items():
        former = before.get(key)
        if former is not None and _is_same(value, former[0]):
            found[key] = former
        else:
            interface_id = _interface_id(key)
            found[key] = (value, _link_info(interface_id, value))
    if known is not None:
        known.clear()
        known.update(found)
    links = {link.interface_id: link for _, link in found.values()}
    return {number: links[number] for number in sorted(links)}


def _check_keys(document: Mapping[Any, Any]) -> None:
    """Check the thesis' four keys in all entries at once, for people who write the file by hand."""
    lacking: list[str] = []
    for key, value in document.items():
        if isinstance(value, Mapping) and (missing := [f'"{one}"' for one in _THESIS_KEYS if one not in value]):
            names = " and ".join(", ".join(missing).rsplit(", ", 1))
            verb = "is" if len(missing) == 1 else "are"
            lacking.append(f"interface {str(key)[:20]}: {names} {verb} missing")
    if lacking:
        more = f"; and {len(lacking) - _MAX_NAMED} more" if len(lacking) > _MAX_NAMED else ""
        raise LinkInfoError("missing_key", f"link_info.json, {'; '.join(lacking[:_MAX_NAMED])}{more}.")


def _is_same(value: Any, former: Mapping[str, Any]) -> bool:
    """Whether an entry is unchanged. Python equates `true` and 1, so types are compared too; nested values are parsed
    again."""
    return (
        type(value) is type(former)
        and value == former
        and not former.keys() & {TIMED_KEY, TESTS_KEY}
        and list(map(type, value.values())) == list(map(type, former.values()))
    )


def _interface_id(key: object) -> int:
    if (
        not isinstance(key, str)
        or not re.fullmatch(r"[1-9][0-9]{0,3}", key, flags=re.ASCII)
        or int(key) > MAX_INTERFACE_ID
    ):
        raise LinkInfoError(
            "interface_id",
            f"link_info.json has the key {_shown(key)}; keys are interface ids from {MIN_INTERFACE_ID} to "
            f"{MAX_INTERFACE_ID}, in decimal without leading zeros.",
        )
    return int(key)


def _link_info(interface_id: int, value: object) -> LinkInfo:
    where = f"link_info.json, interface {interface_id}"
    if not isinstance(value, Mapping):
        raise LinkInfoError("entry", f"{where}: {_kind(value)} instead of an object.")

    def integer(key: str, low: int, high: int) -> int:
        found = value.get(key)
        if isinstance(found, bool) or not isinstance(found, int):
            raise LinkInfoError(
                "wrong_type", f'{where}: "{key}" is {_shown(found)}, not an integer from {low} to {high}.'
            )
        if not low <= found <= high:
            raise LinkInfoError("out_of_range", f'{where}: "{key}" is {_shown(found)}, outside {low} to {high}.')
        return found

    def boolean(key: str) -> bool:
        found = value.get(key)
        if not isinstance(found, bool):
            raise LinkInfoError("wrong_type", f'{where}: "{key}" is {_shown(found)}, not true or false.')
        return found

    def address(key: str) -> IPAddress:
        try:
            # Only the address of a limited link becomes a filter; infrastructure is not checked.
            return check_underlay_address(value.get(key)) if is_user_as else parse_ip(value.get(key))
        except RuleError as exc:
            raise LinkInfoError(exc.code, f'{where}: "{key}": {exc.message}') from exc

    is_user_as = boolean("IsUserAS")
    isd_as = value.get("ISD-AS")
    if isd_as is not None and (not isinstance(isd_as, str) or len(isd_as) > 24):
        raise LinkInfoError("wrong_type", f'{where}: "ISD-AS" is {_shown(isd_as)}, not a short text.')
    info = LinkInfo(
        interface_id=interface_id,
        as_id=integer("AS_ID", 0, 0xFFFF),
        is_user_as=is_user_as,
        bandwidth_kbit=integer("Bandwidth", MIN_BANDWIDTH_KBIT, MAX_BANDWIDTH_KBIT),
        remote_ip=address("IP-Address"),
        isd_as=isd_as,
        remote_port=integer("Port", 1, MAX_PORT) if value.get("Port") is not None else None,
        local_ip=address("Local-IP") if value.get("Local-IP") is not None else None,
        local_port=integer("Local-Port", 1, MAX_PORT) if value.get("Local-Port") is not None else None,
        vpn=boolean("VPN") if value.get("VPN") is not None else None,
        directions=_directions(value, integer, where),
        timed=_timed(value.get(TIMED_KEY), where),
        is_observed=value.get(OBSERVE_KEY) is not None and boolean(OBSERVE_KEY),
        tests=_tests(value.get(TESTS_KEY), where),
    )
    if info.local_ip is not None and info.local_ip.version != info.remote_ip.version:
        raise LinkInfoError(
            "address_family", f"{where}: {info.local_ip} and {info.remote_ip} are not of one address family."
        )
    return info


def _directions(value: Mapping[str, Any], integer: Callable[[str, int, int], int], where: str) -> Limits | None:
    given = [key for key in (TO_USER_KEY, FROM_USER_KEY) if value.get(key) is not None]
    if not given:
        return None
    to_user, from_user = (integer(key, MIN_BANDWIDTH_KBIT, MAX_BANDWIDTH_KBIT) for key in (TO_USER_KEY, FROM_USER_KEY))
    limits = Limits(to_user, from_user)
    if limits.lowest_kbit != value["Bandwidth"]:
        raise LinkInfoError(
            "bandwidth_mismatch",
            f'{where}: "Bandwidth" is {_shown(value["Bandwidth"])}, not the lower of {to_user} and {from_user}.',
        )
    return None if limits.is_symmetric else limits


def _tests(value: object, where: str) -> tuple[LinkTest, ...]:
    try:
        return read_tests(value)
    except RuleError as exc:
        raise LinkInfoError(exc.code, f"{where}: {exc.message}") from exc


def _timed(value: object, where: str) -> tuple[TimedLimits, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise LinkInfoError("wrong_type", f'{where}: "{TIMED_KEY}" is {_kind(value)}, not a list.')
    if len(value) > MAX_TIMED_PER_LINK:
        raise LinkInfoError(
            "timed_many", f'{where}: "{TIMED_KEY}" has {len(value)} entries, more than {MAX_TIMED_PER_LINK}.'
        )
    timed = tuple(_one_timed(one, f'{where}, "{TIMED_KEY}" {index}') for index, one in enumerate(value))
    for earlier, later in pairwise(timed):
        if later.begins_at < earlier.ends_at:
            raise LinkInfoError(
                "timed_overlap",
                f'{where}: "{TIMED_KEY}" has an entry from {time_text(later.begins_at)} behind one until '
                f"{time_text(earlier.ends_at)}; they must be in order and not overlap.",
            )
    return timed


def _one_timed(value: object, where: str) -> TimedLimits:
    if not isinstance(value, Mapping):
        raise LinkInfoError("wrong_type", f"{where}: {_kind(value)} instead of an object.")
    begins_at, ends_at = (_moment(value.get(key), f'{where}: "{key}"') for key in ("From", "Until"))
    if not isinstance(steps := value.get("Steps"), list):
        raise LinkInfoError("wrong_type", f'{where}: "Steps" is {_kind(steps)}, not a list.')
    timed = TimedLimits(begins_at, ends_at, tuple(_step(step, where) for step in steps[: MAX_STEPS + 1]))
    try:
        check_steps(timed.steps, timed.duration_s)
        for step in timed.steps:
            check_limits(step.limits)
    except RuleError as exc:
        raise LinkInfoError(exc.code, f"{where}: {exc.message}") from exc
    return timed


def _step(value: object, where: str) -> LinkStep:
    numbers: list[Any] = value if isinstance(value, list) and len(value) == 3 else [None]
    if not all(type(number) is int and abs(number) <= _MAX_STEP_NUMBER for number in numbers):
        raise LinkInfoError(
            "wrong_type", f"{where}: a step is {_kind(value)}, not three integers: [offset in s, to user, from user]."
        )
    offset_s, to_user_kbit, from_user_kbit = numbers
    return LinkStep(offset_s, Limits(to_user_kbit, from_user_kbit))


def _moment(value: object, where: str) -> datetime:
    if (found := read_time(value)) is None:
        raise LinkInfoError("wrong_type", f"{where} is {_shown(value)}, not a time like 2026-11-21T23:00:00Z.")
    return found


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise LinkInfoError("duplicate_key", f"link_info.json has the key {_shown(twice)} twice; it is ambiguous.")
    return found


def _no_constant(name: str) -> Any:
    raise LinkInfoError("not_json", f"link_info.json holds {name}, which is not JSON.")


def _kind(value: object) -> str:
    if isinstance(value, int | float):
        return "a truth value" if isinstance(value, bool) else "a number"
    names = {list: "a list", dict: "an object", str: "a text", type(None): "nothing"}
    return names.get(type(value), type(value).__name__)


def _shown(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return "a number of more than 38 digits"
    text = json.dumps(value) if isinstance(value, str | int | float | bool | type(None)) else _kind(value)
    return text if len(text) <= 60 else text[:57] + "..."
