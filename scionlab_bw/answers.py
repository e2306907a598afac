"""What this program reads of the service's answers: their shape is checked once, when they arrive.

A shape is a type, a predicate, a list with the shape of its items, an object (keys that end with `?` may be missing;
further ones are ignored), or a tuple of a shape and None.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

MAX_NUMBER = 10**15  # what is larger is no number of ours, and more than clocks and formats can bear


def number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_NUMBER


def positive(value: object) -> bool:
    return number(value) and value > 0  # type: ignore[operator]  # a number


def whole(value: object) -> bool:
    return number(value) and not isinstance(value, float)


def natural(value: object) -> bool:
    return whole(value) and value >= 0  # type: ignore[operator]  # a number


def port(value: object) -> bool:
    return whole(value) and 0 < value < 65_536  # type: ignore[operator]  # a number


def moment(value: object) -> bool:
    """With an offset, and a day inside the calendar in every zone."""
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return False
    return found is not None and found.tzinfo is not None and 1 < found.year < 9999


def key(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) is not None


def address(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(ipaddress.ip_address(value.partition("%")[0]))
    except ValueError:
        return False


def hops(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)


def wrong(value: Any, shape: Any, place: str = "answer") -> str | None:
    """The first place that has another shape, with its value; None if there is none."""
    if isinstance(shape, tuple):
        return None if value is None else wrong(value, shape[0], place)
    if isinstance(shape, dict | list) and isinstance(value, type(shape)):
        inside = _keys(value, shape, place) if isinstance(shape, dict) else _items(value, shape, place)
        return next((found for one in inside if (found := wrong(*one)) is not None), None)
    if isinstance(value, shape) if isinstance(shape, type) else callable(shape) and shape(value):
        return None
    if value is MISSING:
        return f"{place} is missing"
    if place.endswith((".key", ".token")):
        return f"{place} has another form"
    return f"{place} is {value!r:.40}"


def _keys(value: Any, shape: dict[str, Any], place: str) -> Iterator[tuple[Any, Any, str]]:
    for name, inner in shape.items():
        plain = name.removesuffix("?")
        if plain in value or plain == name:
            yield value.get(plain, MISSING), inner, f"{place}.{plain}"


def _items(value: Any, shape: list[Any], place: str) -> Iterator[tuple[Any, Any, str]]:
    for index, one in enumerate(value):
        yield one, shape[0], f"{place}[{index}]"


MISSING: Any = object()  # of no shape

LIMITS = {"to_user_kbit": whole, "from_user_kbit": whole}
STATUS = {
    "state": str,
    "stage": str,
    "text": str,
    "requested": LIMITS,
    "wanted": LIMITS,
    "enforced": (LIMITS, None),
    "last_known": (LIMITS, None),
    "maximum_kbit": whole,
    "running": ({"kind": str, "ends_at": moment}, None),
    "upcoming": [{"kind": str, "begins_at": moment}],
    "since": (moment, None),
    "read_at?": (moment, None),
    "remark?": ({"text": str}, None),
}
LINK = LIMITS | {
    "id": natural,
    "isd_as": str,
    "as_label": str,
    "attachment_point": str,
    "public_ip": (str, None),
    "public_port": (whole, None),
    "bind_ip": (str, None),
    "use_vpn": bool,
    "status": STATUS,
}
AS = {"id": natural, "isd_as": str, "label": str, "links": [{"attachment_point": str, "status": STATUS}]}
TIMED = {"id": natural, "kind": str, "state": str, "begins_at": moment, "ends_at": moment, "steps": [dict]}
USED = (
    {"kbit": (number, None), "limit_kbit": (number, None), "bytes": whole, "drops": (number, None)},
    None,
)
USAGE = {"step_s": number, "points": [{"begins_at": moment, "to_user": USED, "from_user": USED}]}
HISTORY = {"results": [{"at": moment, "actor": (str, None), "text": str, "reason": (str, None)}]}
COUNTED = (
    {"passed_bytes": number, "limit_kbit": number, "dropped_packets": number, "lost_packets": number},
    None,
)
POINT = {"begins_at": moment, "took_s": positive, "in_force": bool, "to_user": COUNTED, "from_user": COUNTED}
TEST = {
    "id": natural,
    "link_id": natural,
    "tool": str,
    "state": str,
    "text": str,
    "begins_at": moment,
    "verdict": ({"code": str}, None),
    "sending_verdict": ({"is_good": bool}, None),
}
TEST_RESULT = TEST | {"points": [POINT]}
START = {
    "test": str,
    "key": key,
    "ip": address,
    "port": port,
    "from_ms": whole,
    "until_ms": whole,
    "now_ms": whole,
    "phases": list,
}
SUM = {f"{name}_kbit": (number, None) for name in ("passed", "limit", "arrived")} | {"dropped_percent": (number, None)}
SIDE = {
    "alone": [{"link_id": natural, "sum": SUM}],
    "links": [{"link_id": natural, "attachment_point": str, "sum": SUM}],
    "alone_kbit": (number, None),
    "total": SUM,
}
JOINT = {
    "id": natural,
    "as_id": natural,
    "state": str,
    "text": str,
    "begins_at": moment,
    "is_good": (bool, None),
    "parts": [{"id": natural, "link_id": natural}],
}
JOINT_RESULT = JOINT | {"to_user": SIDE, "from_user": SIDE}
PATH_LINK = {
    "kind": str,
    "state": (str, None),
    "link_id?": (natural, None),
    "from_isd_as": str,
    "from_interface_id": (whole, None),
    "to_isd_as": str,
    "to_interface_id": (whole, None),
    "limit_kbit": (number, None),
    "enforced_kbit": (number, None),
    "used": ({"kbit": (number, None)}, None),
    "to_rtt_ms": (number, None),
    "is_narrowest": bool,
}
PATHS = {"paths": [{"hops": hops, "text": str, "links": [PATH_LINK]}]}
RATE = ({"kbit": number}, None)
AS_PATHS = {
    "text": str,
    "bottlenecks": [{"text": str}],
    "links": [
        {
            "link_id": natural,
            "attachment_point": str,
            "state": str,
            "wanted": LIMITS,
            "requested": LIMITS,
            "weights": {"to_user_kbit": number, "from_user_kbit": number},
            "used": ({"to_user?": RATE, "from_user?": RATE}, None),
            "last_test": ({"text": str}, None),
            "uplink_kbit": (whole, None),
            "published_kbit": (whole, None),
        }
    ],
}
REFUSAL = {
    "message": str,
    "code?": str,
    "current?": ({"to_user_kbit?": whole, "from_user_kbit?": whole}, None),
    "next_free_at?": (moment, None),
    "retry_after_s?": (number, None),
}


def _page(shape: dict[str, Any]) -> dict[str, Any]:
    return {"results": [shape], "next": (str, None)}


# Of a path below /api/v1/, with # for numbers; GET of lists, and what POST and PATCH make.
SHAPES: dict[str, Any] = {
    "GET profile/": {"email": str},
    "POST token/": {"token": str},
    "GET ases/": _page(AS),
    "GET ases/#/": AS,
    "PATCH ases/#/": AS,
    "GET ases/#/paths/": AS_PATHS,
    "POST ases/#/tests/": JOINT,
    "GET links/": _page(LINK),
    "GET links/#/": LINK,
    "PATCH links/#/": LINK,
    "GET links/#/history/": HISTORY,
    "GET links/#/usage/": USAGE,
    "GET links/#/timed-limits/": _page(TIMED),
    "POST links/#/timed-limits/": TIMED,
    "POST links/#/tests/": TEST,
    "GET tests/#/": TEST_RESULT,
    "POST tests/#/start/": START,
    "GET joint-tests/#/": JOINT_RESULT,
    "POST paths/": PATHS,
}


def wrong_answer(method: str, path: str, value: Any) -> str | None:
    return wrong(value, SHAPES.get(f"{method} {re.sub('[0-9]+', '#', path)}", dict))
