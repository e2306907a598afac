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
# The service refuses a receipt with longer texts as a whole; a shortened sentence is better than no receipt.
_MAX_TEXT_CHARS = 2000
_MAX_SUBJECT_CHARS = 200
_MAX_PROBLEMS = 1000


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
        "problems": [_problem(problem) for problem in list(problems)[:_MAX_PROBLEMS]],
    }


def _problem(problem: Problem) -> dict[str, str]:
    return {
        "code": problem.code,
        "subject": _clipped(problem.subject, _MAX_SUBJECT_CHARS),
        "message": _clipped(problem.message, _MAX_TEXT_CHARS),
    }


def _link(link: LinkState) -> dict[str, Any]:
    fields = asdict(link)
    del fields["interface_id"]
    if link.problem is not None:
        fields["problem"] = _clipped(link.problem, _MAX_TEXT_CHARS)
    return fields


def _clipped(text: str, chars: int) -> str:
    storable = text.encode("utf-8", "replace").decode().replace("\0", "?")  # no half characters, no NUL
    return storable if len(storable) <= chars else storable[: chars - 3] + "..."


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
