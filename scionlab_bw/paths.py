"""`path`: limits along SCION paths, and tests of the user's own Links there. `paths`: combined capacity of an AS's
Links."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from scionlab_bw import links, tables
from scionlab_bw.client import Service
from scionlab_bw.errors import UsageError
from scionlab_bw.test_link import test_link
from scionlab_bw.units import format_bandwidth, format_number
from scionlab_bw.watch_load import watch_load
from terminal import clean, table


def path(service: Service, arguments: Namespace) -> int:
    """Limits along the paths printed by `scion showpaths`."""
    if arguments.json and arguments.test is not None:
        raise UsageError("--json prints one document: leave out --test, and test each link by `test LINK --json`.")
    body = {"paths": _content(arguments.paths)}
    if arguments.traceroute is not None:
        body["traceroute"] = _content(arguments.traceroute)
    found = service.post("paths/", body)
    shown = [tables.path(one, number) for number, one in enumerate(found["paths"], 1)]
    note = "LIMIT, ENFORCED and USED (in the last hour) are in kbit/s in the direction of travel, RTT is in ms."
    tables.show(arguments, found, "\n\n".join([*shown, note]))
    return 0 if arguments.test is None else _test_each(service, found["paths"], arguments)


def _test_each(service: Service, found: list[dict[str, Any]], arguments: Namespace) -> int:
    """Test each of the user's own Links along one path, one after the other. 0: of watches, one was full; of tests, all
    were good."""
    if len(found) != 1:
        raise UsageError(f"--test needs a single path; these are {len(found)}. Choose one of them.")
    own = [one for one in found[0]["links"] if one["kind"] == "shown"]
    number = len(found[0]["links"])
    count = f"{len(own)} of {number} links of this path {'is' if len(own) == 1 else 'are'} yours"
    if not own:
        raise UsageError(f"{count}: there is nothing to test.")
    print(f"\n{count}.", flush=True)
    is_watch, codes = arguments.test == _WATCH, []
    for one in own:
        print(f"\n{clean(one['from_isd_as'])} to {clean(one['to_isd_as'])}:", flush=True)
        asked = Namespace(link=str(one["link_id"]), tool=arguments.test, duration=arguments.duration, **_OF_A_TEST)
        codes.append((watch_load if is_watch else test_link)(service, asked))
    return min(codes) if is_watch else max(codes)


_WATCH = "watch"
_HEADERS = (
    "LINK",
    "ATTACHMENT POINT",
    "TO USER",
    "FROM USER",
    "WEIGHT",
    "USED TO",
    "USED FROM",
    "STATE",
    "LAST TEST",
)
_OF_A_TEST: dict[str, Any] = {"id": None, "at": None, "bind": None, "parameters": [], "json": False}


def _content(file: str) -> str:
    """Of a file, `-` for standard input. Raises `UsageError`."""
    try:
        if file == "-":
            return sys.stdin.read() if sys.stdin is not None else ""
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"{file} cannot be read: {exc}") from exc


def paths(service: Service, arguments: Namespace) -> int:
    """Limits, weights and shared bottlenecks of the active Links of an AS."""
    user_as = links.find_as(service, arguments.as_).content
    found = service.get(f"ases/{user_as['id']}/paths/").content
    lines = []
    if found["links"]:
        lines += [table(_HEADERS, map(_row, found["links"]), right=("LINK", *_HEADERS[2:7])), ""]
    lines += [f"Link {one['link_id']}: {'; '.join(notes)}." for one in found["links"] if (notes := _notes(one))]
    lines += [clean(text) for text in (found["text"], *(one["text"] for one in found["bottlenecks"]))]
    return tables.show(arguments, found, "\n".join(lines))


def _row(one: dict[str, Any]) -> tuple[Any, ...]:
    limits, weights = one["wanted"], one["weights"]
    same = weights["to_user_kbit"] == weights["from_user_kbit"]
    weight = str(weights["to_user_kbit"]) if same else f"{weights['to_user_kbit']} / {weights['from_user_kbit']}"
    used = one["used"] or {}
    rates = ["-" if used.get(name) is None else format_number(used[name]["kbit"]) for name in ("to_user", "from_user")]
    test = one["last_test"]
    return (
        one["link_id"],
        one["attachment_point"],
        format_number(limits["to_user_kbit"]),
        format_number(limits["from_user_kbit"]),
        weight,
        *rates,
        tables.state(one),
        "-" if test is None else test["text"],
    )


def _notes(one: dict[str, Any]) -> list[str]:
    """Notes of individual Links: another limit without the temporary one, a known uplink, and SCION's published
    figure."""
    notes = []
    if one["requested"] != one["wanted"]:
        notes.append(f"requested {tables.limits(one['requested'])}")
    if one["uplink_kbit"] is not None:
        notes.append(f"uplink of its attachment point {format_bandwidth(one['uplink_kbit'])}")
    if one["published_kbit"] is not None:
        notes.append(f"{format_bandwidth(one['published_kbit'])} in SCION's path metadata")
    return notes
