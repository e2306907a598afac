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
    limits_digest: str | None,
    run: str,
    number: int,
    clock_skew_ms: int | None,
    evidence: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """One receipt. `version`, `limits_version` and `limits_digest` are those of the bundle that is enforced, None where
    none is. `run` names the start of the agent and `number` counts its receipts from 1, so that the service knows the
    newest whatever the clock does. `evidence` is the bundle's signed text, where the service asked for it."""
    receipt = {
        "schema": SCHEMA,
        "agent_version": __version__,
        "version": version,
        "limits_version": limits_version,
        "observed_at": f"{observed_at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
        "writes": writes,
        "links": {str(link.interface_id): _link(link) for link in links},
        "problems": [_problem(problem) for problem in list(problems)[:_MAX_PROBLEMS]],
        "limits_digest": limits_digest,
        "run": run,
        "number": number,
        "clock_skew_ms": clock_skew_ms,
    }
    return receipt if evidence is None else {**receipt, "evidence": dict(evidence)}


def _problem(problem: Problem) -> dict[str, str]:
    return {
        "code": problem.code,
        "subject": _clipped(problem.subject, _MAX_SUBJECT_CHARS),
        "message": _clipped(problem.message, _MAX_TEXT_CHARS),
    }


def link_fields(link: LinkState) -> dict[str, Any]:
    """`kbit` is the lower of both directions, for readers that know one limit."""
    fields = asdict(link)
    del fields["interface_id"], fields["limits"]
    return {"kbit": link.limits.lowest_kbit, **link.limits._asdict(), **fields}


def _link(link: LinkState) -> dict[str, Any]:
    fields = link_fields(link)
    if link.problem is not None:
        fields["problem"] = _clipped(link.problem, _MAX_TEXT_CHARS)
    return fields


def _clipped(text: str, chars: int) -> str:
    storable = text.encode("utf-8", "replace").decode().replace("\0", "?")  # no half characters, no NUL
    return storable if len(storable) <= chars else storable[: chars - 3] + "..."


def unread_links(links: Mapping[int, LinkInfo], why: str) -> tuple[LinkState, ...]:
    """The states of links whose kernel could not be read: nothing is claimed, the reason is given."""
    return tuple(
        LinkState(interface_id, link.limits, "error", why, None, None)
        for interface_id, link in sorted(links.items())
        if link.is_user_as
    )


def news(receipt: Mapping[str, Any]) -> object:
    """What makes a receipt worth sending at once: everything but times, counters and the number of writes.

    Nor what a timed limit changes by the clock while the kernel follows: the service has the same timetable, and a
    receipt of thousands of links every second would tell it nothing new.
    """
    links = {interface_id: _said(link) for interface_id, link in receipt["links"].items()}
    problems = sorted((one["code"], one["subject"]) for one in receipt["problems"])
    return receipt["version"], receipt["limits_version"], receipt["limits_digest"], links, problems


def _said(link: Mapping[str, Any]) -> tuple[object, ...]:
    directions = (link["to_user"], link["from_user"])
    devices = [one and one["dev"] for one in directions]
    wanted = [link["to_user_kbit"], link["from_user_kbit"]]
    found = [one and one["rate_kbit"] for one in directions]
    follows = link["state"] == "enforced" and found == wanted
    return link["state"], link["problem"], devices, None if follows else (wanted, found)
