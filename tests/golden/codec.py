"""The engine's values as small JSON files that a person can read and edit, and back.

Handles are `1:1001`, keys `value/mask@offset`; what has its default is left out, so that a case shows what it is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from ap_agent.model import (
    Desired,
    DesiredTree,
    Device,
    Filter,
    Handle,
    HtbClass,
    InstalledFilter,
    Key,
    Qdisc,
    TcState,
    Tree,
)

Json = dict[str, Any]


def plain(value: object) -> Any:
    """Any of the engine's frozen values."""
    if isinstance(value, Handle):
        return str(value)
    if isinstance(value, Key):
        return f"{value.value:08x}/{value.mask:08x}@{value.offset}"
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    if hasattr(value, "__dataclass_fields__"):
        return {
            one.name: _field(getattr(value, one.name))
            for one in fields(value)  # type: ignore[arg-type]  # checked above
            if not _is_default(one, getattr(value, one.name))
        }
    return value


def _field(value: object) -> Any:
    if isinstance(value, Mapping):
        # Filters with the links that they serve; anything else keyed is a tree by ifindex.
        return (
            [{"links": sorted(served), **plain(one)} for one, served in value.items()]
            if any(isinstance(one, Filter) for one in value)
            else {str(key): plain(one) for key, one in value.items()}
        )
    return plain(value)


def _is_default(one: Any, value: object) -> bool:
    if one.default_factory is not MISSING:
        return bool(value == one.default_factory())
    return one.default is not MISSING and bool(value == one.default)


# --- and back --------------------------------------------------------------------------------------------------


def _with_handles(data: Json, *names: str) -> Json:
    return {name: Handle.parse(value) if name in names and value is not None else value for name, value in data.items()}


def device(data: Json) -> Device:
    return Device(**data)


def htb_class(data: Json) -> HtbClass:
    loaded = _with_handles(data, "handle", "parent")
    if "accounting" in loaded:
        loaded["accounting"] = tuple(loaded["accounting"])
    return HtbClass(**loaded)


def qdisc(data: Json) -> Qdisc:
    return Qdisc(**_with_handles(data, "handle", "parent"))


def key(text: str) -> Key:
    value, _, rest = text.partition("/")
    mask, _, offset = rest.partition("@")
    return Key(int(offset), int(value, 16), int(mask, 16))


def filter_(data: Json) -> Filter:
    loaded = _with_handles(data, "hook", "flowid")
    return Filter(**{**loaded, "keys": tuple(key(one) for one in data["keys"])})


def installed(data: Json) -> InstalledFilter:
    loaded = _with_handles(data, "hook")
    if "meaning" in data:
        loaded["meaning"] = filter_(data["meaning"])
    return InstalledFilter(**{**loaded, "redirects_to": tuple(data.get("redirects_to", ()))})


def tree(data: Json) -> Tree:
    return Tree(
        root=qdisc(data["root"]) if "root" in data else None,
        ingress=data.get("ingress"),
        classes=tuple(htb_class(one) for one in data.get("classes", [])),
        leaves=tuple(qdisc(one) for one in data.get("leaves", [])),
        filters=tuple(installed(one) for one in data.get("filters", [])),
    )


def state(data: Json) -> TcState:
    return TcState(
        devices=tuple(device(one) for one in data["devices"]),
        trees={int(index): tree(one) for index, one in data.get("trees", {}).items()},
    )


def _served(data: list[Json]) -> dict[Filter, frozenset[int]]:
    return {
        filter_({name: value for name, value in one.items() if name != "links"}): frozenset(one["links"])
        for one in data
    }


def desired_tree(data: Json) -> DesiredTree:
    return DesiredTree(
        device=device(data["device"]),
        major=data["major"],
        has_root=data["has_root"],
        classes=tuple(htb_class(one) for one in data.get("classes", [])),
        leaves=tuple(qdisc(one) for one in data.get("leaves", [])),
        filters=_served(data.get("filters", [])),
        redirects=_served(data.get("redirects", [])),
    )


def desired(data: Json) -> Desired:
    return Desired(
        nics=tuple(desired_tree(one) for one in data.get("nics", [])),
        ifb=desired_tree(data["ifb"]) if "ifb" in data else None,
    )
