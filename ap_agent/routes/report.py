"""Output of `show` and `verify`: one document each, as JSON or text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from ap_agent.common.problem import Problem
from ap_agent.routes.plan import LAST_PRIORITY, Present
from ap_agent.routes.uplinks import Uplink
from ap_agent.routes.verify import Verdict
from bandwidth_config import format_number
from contract.link_info import LinkInfo
from terminal import table

_STRICT = 1
_COUNTED = ("received_bytes", "received_packets", "sent_bytes", "sent_packets")


def links_of(uplink: Uplink, links: Mapping[int, LinkInfo]) -> dict[int, LinkInfo]:
    return {
        number: one
        for number, one in links.items()
        if one.local_ip is not None and any(one.local_ip in source for source in uplink.sources)
    }


def show_document(
    uplinks: Iterable[Uplink],
    present: Present,
    links: Mapping[int, LinkInfo],
    sysctls: Mapping[str, Mapping[str, int]],
    problems: Iterable[Problem],
) -> dict[str, Any]:
    """`links` are those of the agent's configuration; `sysctls` by device."""
    return {
        "uplinks": [
            {
                "name": one.name,
                "dev": one.dev,
                "table": one.table,
                "gateways": [str(gateway) for gateway in one.gateways],
                "sources": [str(source) for source in (*one.addresses, *one.prefixes)],
                "links": {str(number): link.isd_as for number, link in links_of(one, links).items()},
            }
            for one in uplinks
        ],
        "links_of_unknown_uplink": [number for number, one in links.items() if one.local_ip is None],
        "rules": [
            str(one) for one in sorted(present.rules, key=lambda one: (one.source.version, one.priority, str(one)))
        ],
        "routes": sorted(map(str, present.routes)),
        "foreign_rules_in_front": [words for priority, words in present.foreign_rules if 0 < priority <= LAST_PRIORITY],
        "sysctls": sysctls,
        "problems": [asdict(one) for one in problems],
    }


def show_lines(document: Mapping[str, Any]) -> list[str]:
    """As text, without the problems."""
    rows = [
        (
            one["name"],
            one["dev"],
            str(one["table"]),
            ", ".join(one["gateways"]),
            ", ".join(one["sources"]),
            ", ".join(f"{number} ({isd_as})" if isd_as else number for number, isd_as in one["links"].items()) or "-",
        )
        for one in document["uplinks"]
    ]
    lines = [table(("UPLINK", "DEVICE", "TABLE", "GATEWAYS", "SOURCES", "LINKS"), rows), ""] if rows else []
    if unknown := document["links_of_unknown_uplink"]:
        lines.append(f"Links without a local address, whose uplink is unknown: {', '.join(map(str, unknown))}.")
    lines += [*document["rules"], *document["routes"]] or ["The kernel has none of our rules and routes."]
    lines += [f"Foreign rule in front of ours: {one}" for one in document["foreign_rules_in_front"]]
    for dev, found in document["sysctls"].items():
        words = f"{dev}: {', '.join(f'{name} = {value}' for name, value in found.items())}"
        strict = "; rp_filter drops packets whose replies would leave by another device"
        lines.append(f"{words}{strict if found.get('rp_filter') == _STRICT else ''}")
    return lines


def verify_document(verdicts: Iterable[Verdict], seconds: int) -> dict[str, Any]:
    return {
        "seconds": seconds,
        "uplinks": [
            {
                "name": one.name,
                "dev": one.dev,
                "answers": one.word,
                "left_by": one.left_by or None,
                "detours": [[None if part is None else str(part) for part in detour] for detour in one.detours],
                **{name: getattr(one.counted, name) for name in _COUNTED},
            }
            for one in verdicts
        ],
    }


def verify_lines(document: Mapping[str, Any]) -> list[str]:
    rows = [
        (
            one["name"],
            one["dev"],
            format_number(one["received_bytes"]),
            format_number(one["sent_bytes"]),
            _verdict_words(one),
        )
        for one in document["uplinks"]
    ]
    headings = ("UPLINK", "DEVICE", "RECEIVED (B)", "SENT (B)", "ANSWERS")
    return [table(headings, rows, right=frozenset({"RECEIVED (B)", "SENT (B)"}))]


def _verdict_words(one: Mapping[str, Any]) -> str:
    if one["detours"]:
        source, destination, dev = one["detours"][0]
        return f"WRONG: from {source} to {destination} they {f'leave by {dev}' if dev else 'have no route'}"
    words = {
        "right": "leave by the uplink where requests arrive",
        "elsewhere": f"WRONG: they leave by {one['left_by']}",
        "unanswered": "no device sent any; try again while there is traffic in both directions",
        "no traffic": "too few packets; try again while there is traffic",
    }
    return words[one["answers"]]
