"""The enforcement receipt: what the agent read back from the kernel, in the shape of docs/api.md. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from ap_agent import __version__
from ap_agent.model import LinkState, Problem
from bandwidth_config import LinkInfo

SCHEMA = 1


def build_receipt(
    *,
    version: str | None,
    limits_version: int | None,
    observed_at: datetime,
    writes: int,
    links: Iterable[LinkState],
    problems: Iterable[Problem],
) -> dict[str, Any]:
    """One receipt. `version` and `limits_version` are those of the bundle that is enforced, None where none is."""
    return {
        "schema": SCHEMA,
        "agent_version": __version__,
        "version": version,
        "limits_version": limits_version,
        "observed_at": f"{observed_at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
        "writes": writes,
        "links": {str(link.interface_id): _link(link) for link in links},
        "problems": [asdict(problem) for problem in problems],
    }


def _link(link: LinkState) -> dict[str, Any]:
    fields = asdict(link)
    del fields["interface_id"]
    return fields


def unread_links(links: Mapping[int, LinkInfo], why: str) -> tuple[LinkState, ...]:
    """The states of links whose kernel could not be read: nothing is claimed, the reason is given."""
    return tuple(
        LinkState(interface_id, link.bandwidth_kbit, "error", why, None, None)
        for interface_id, link in sorted(links.items())
        if link.is_user_as
    )


def news(receipt: Mapping[str, Any]) -> object:
    """What makes a receipt worth sending at once: everything but times, counters and the number of writes."""
    links = {
        interface_id: (link["kbit"], link["state"], link["problem"], _rate(link["to_user"]), _rate(link["from_user"]))
        for interface_id, link in receipt["links"].items()
    }
    problems = sorted((one["code"], one["subject"]) for one in receipt["problems"])
    return receipt["version"], receipt["limits_version"], links, problems


def _rate(direction: Mapping[str, Any] | None) -> tuple[str, int] | None:
    return None if direction is None else (direction["dev"], direction["rate_kbit"])
