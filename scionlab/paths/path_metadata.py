"""Path metadata of an attachment point: the operator's part of SCION's staticInfoConfig.json, and whether limits of
Links are published in it.

The format is that of SCION v0.15 (doc/manuals/control.rst; control/beaconing/staticinfo_config.go). Its control service
ignores the whole file, with a line in its log, if one value is invalid. So all values are checked here.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from typing import Any, Final

from bandwidth_config import RuleError, format_number
from contract.link_rules import MAX_INTERFACE_ID, MIN_INTERFACE_ID
from scionlab.accounts.models import User
from scionlab.platform.field_errors import at_field
from scionlab.platform.notation import strict_json
from scionlab.testbed import audit
from scionlab.testbed.life import Life
from scionlab.testbed.models import AttachmentPoint
from scionlab.testbed.selectors import control_service_host
from scionlab.testbed.versions.counters import hosts_bump
from scionlab.web.pages.stale_pages import Values

logger = logging.getLogger(__name__)

MAX_CHARS: Final = 10_000  # it is read with each Link of the attachment point
_UNITS_NS: Final = {"h": 3600 * 10**9, "m": 60 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_MAX_DURATION_NS: Final = (2**32 - 1) * 1_000  # beacons carry microseconds in 32 bits
_LINK_TYPES: Final = ("direct", "multihop", "opennet")

Check = Callable[[object, str], None]  # a value and its location; raises `RuleError`


def checked_metadata(text: str) -> str:
    """Return it normalized; empty if it has no content. Raises `RuleError` (`path_metadata_not_json`,
    `path_metadata_invalid`, `path_metadata_long`)."""
    if not text.strip():
        return ""
    try:
        document = strict_json.load(text, "Path metadata")
    except strict_json.StrictJSONError as exc:
        raise RuleError("path_metadata_not_json", f"{exc} Correct it there.") from exc
    _document(document, "Path metadata")
    if not document:
        return ""
    stored = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False)
    if len(stored) > MAX_CHARS:
        raise RuleError(
            "path_metadata_long",
            f"Path metadata of {format_number(len(stored))} characters, as it is stored, is above "
            f"{format_number(MAX_CHARS)}. Leave out interfaces that do not need it.",
        )
    return stored


def checked_values(values: Values) -> Values:
    """For `AP_SETTINGS`. Raises `FieldRuleError`, as `checked_metadata`."""
    text = values.get("path_metadata")
    if text is None:
        return values
    with at_field("path_metadata"):
        return {**values, "path_metadata": checked_metadata(str(text))}


def metadata_store(ap: AttachmentPoint, new: Values, *, actor: User | None, reason: str) -> None:
    """Store `publishes_limits` and `path_metadata` if changed; H rises once. Its row is locked."""
    done = []
    if "publishes_limits" in new:
        ap.publishes_limits = bool(new["publishes_limits"])
        done.append("Limits are published" if ap.publishes_limits else "Limits are no longer published")
    if "path_metadata" in new:
        ap.path_metadata = str(new["path_metadata"])
        done.append("the operator's entries changed" if ap.path_metadata else "the operator's entries were removed")
    ap.save(update_fields=["publishes_limits", "path_metadata"])
    detail = "; ".join(done)
    audit.note(ap, kind=audit.Kind.AP_METADATA, actor=actor, detail=detail[0].upper() + detail[1:], reason=reason)
    metadata_changed(ap)
    logger.info("path_metadata.stored ap=%s publishes_limits=%s", ap.pk, ap.publishes_limits)


def metadata_changed(ap: AttachmentPoint) -> None:
    """Raise H of the host whose control service reads it; its row, or that of the attachment point, is locked."""
    host = control_service_host(ap.AS_id)
    if host is not None:
        hosts_bump(alone_ids={host.pk})


class MetadataLife(Life):
    """It ends with its attachment point."""

    def attachment_point_ends(self, ap: AttachmentPoint) -> None:
        if ap.has_path_metadata:
            metadata_changed(ap)


# --- the form of staticInfoConfig.json ----------------------------------------------------------------------------


def _members(**checks: Check) -> Check:
    def check(value: object, where: str) -> None:
        for name, one in _object(value, where, example=f'{{"{next(iter(checks))}": ...}}').items():
            if name not in checks:
                raise _refused(where, name, f"is none of {', '.join(checks)}", "Choose one of these, in this spelling")
            checks[name](one, f"{where}, {name}")

    return check


def _by_interface(inner: Check) -> Check:
    def check(value: object, where: str) -> None:
        for key, one in _object(value, where, example='{"1": ...}').items():
            if not re.fullmatch(r"[1-9][0-9]{0,3}", key, re.ASCII) or int(key) > MAX_INTERFACE_ID:
                wanted = f"an interface id from {MIN_INTERFACE_ID} to {MAX_INTERFACE_ID}"
                raise _refused(where, key, f"is not {wanted}", "Write it without leading zeros")
            inner(one, f"{where}, {key}")

    return check


def _whole_number(bits: int) -> Check:
    def check(value: object, where: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**bits:
            raise _refused(where, value, f"is not a whole number from 0 to {2**bits - 1}", "Write one, without quotes")

    return check


def _number(limit: int) -> Check:
    def check(value: object, where: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not -limit <= value <= limit:
            raise _refused(where, value, f"is not a number from -{limit} to {limit}", "Write degrees, without quotes")

    return check


def _text(value: object, where: str) -> None:
    if not isinstance(value, str):
        raise _refused(where, value, "is not a text", "Write it in quotes")
    try:
        value.encode()
    except UnicodeEncodeError as exc:
        raise _refused(where, value, "has half a character (a lone surrogate)", "Write the character itself") from exc


def _duration(value: object, where: str) -> None:
    found = re.fullmatch(r"([0-9]{1,16})(h|m|s|ms|us|ns)", value, re.ASCII) if isinstance(value, str) else None
    if found is None or int(found[1]) * _UNITS_NS[found[2]] > _MAX_DURATION_NS:
        rule = f"is not a duration up to {_MAX_DURATION_NS // 10**9}s in one of {', '.join(_UNITS_NS)}"
        raise _refused(where, value, rule, 'Write one like "12ms"')


def _link_type(value: object, where: str) -> None:
    if value not in _LINK_TYPES:
        raise _refused(where, value, f"is none of {', '.join(_LINK_TYPES)}", "Choose one of these")


_document: Final = _members(
    Latency=_by_interface(_members(Inter=_duration, Intra=_by_interface(_duration))),
    Bandwidth=_by_interface(_members(Inter=_whole_number(64), Intra=_by_interface(_whole_number(64)))),
    Geo=_by_interface(_members(Latitude=_number(90), Longitude=_number(180), Address=_text)),
    LinkType=_by_interface(_link_type),
    Hops=_by_interface(_members(Intra=_by_interface(_whole_number(32)))),
    Note=_text,
)


def _object(value: object, where: str, *, example: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _refused(where, value, "is not an object", f"Write {example}")
    return value


def _refused(where: str, value: object, rule: str, remedy: str) -> RuleError:
    written = json.dumps(value)
    shown = written if len(written) <= 40 else f"{written[:37]}..."
    return RuleError("path_metadata_invalid", f"{where}: {shown} {rule}. {remedy}.")
