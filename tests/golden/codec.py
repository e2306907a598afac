"""The engine's values as small JSON files that a person can read and edit, and back.

Handles are `1:1001`, filters `4:7:10` (table, bucket, node), keys `value/mask@offset`; what has its default is left
out, so that a case shows what it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any

from ap_agent.model import (
    Desired,
    DesiredTree,
    Device,
    Filter,
    Handle,
    HtbClass,
    Index,
    InstalledFilter,
    Key,
    Qdisc,
    Rule,
    Selector,
    TcState,
    Tree,
)

Json = dict[str, Any]


_WRITTEN: dict[type, Callable[[Any], object]] = {
    Handle: str,
    Key: lambda key: f"{key.value:08x}/{key.mask:08x}@{key.offset}",
    Selector: lambda selector: selector.position,
}


def plain(value: object) -> Any:
    """Any of the engine's frozen values."""
    if type(value) in _WRITTEN:
        return _WRITTEN[type(value)](value)
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    if hasattr(value, "__dataclass_fields__"):
        named = [(one, getattr(value, one.name)) for one in fields(value)]  # type: ignore[arg-type]  # checked above
        return {one.name: _field(one, found) for one, found in named if not _is_default(one, found)}
    return value


def _field(field: Field[Any], value: object) -> Any:
    if field.type == "int" and field.name == "handle":
        assert isinstance(value, int)
        return f"{value >> 20:x}:{value >> 12 & 0xFF:x}:{value & 0xFFF:x}"
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


def keys(data: list[str]) -> tuple[Key, ...]:
    return tuple(key(one) for one in data)


def filter_(data: Json) -> Filter:
    loaded = _with_handles(data, "hook", "flowid")
    if "selector" in data:
        loaded["selector"] = Selector(data["selector"])
    return Filter(**{**loaded, "keys": keys(data["keys"])})


def rule(data: Json) -> Rule:
    loaded = _with_handles(data, "flowid")
    return Rule(**{**loaded, "keys": keys(data["keys"]), "links": frozenset(data.get("links", ()))})


def index(data: Json) -> Index:
    loaded = _with_handles(data, "hook")
    loaded |= {name: keys(data[name]) for name in ("head", "guard")}
    loaded["address"] = tuple(data["address"])
    loaded["splits"] = {int(at): order for at, order in data["splits"].items()}
    loaded["rules"] = tuple(rule(one) for one in data["rules"])
    loaded["redirects"] = {
        int(order): tuple(keys(one) for one in found) for order, found in data.get("redirects", {}).items()
    }
    return Index(**loaded)


def _filter_handle(text: str) -> int:
    table, bucket, node = (int(part, 16) for part in text.split(":"))
    return table << 20 | bucket << 12 | node


def installed(data: Json) -> InstalledFilter:
    loaded = _with_handles(data, "hook") | {"handle": _filter_handle(data["handle"])}
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
        indexes=tuple(index(one) for one in data.get("indexes", [])),
        redirects=_served(data.get("redirects", [])),
        redirect_indexes=tuple(index(one) for one in data.get("redirect_indexes", [])),
    )


def desired(data: Json) -> Desired:
    return Desired(
        nics=tuple(desired_tree(one) for one in data.get("nics", [])),
        ifb=desired_tree(data["ifb"]) if "ifb" in data else None,
    )
