"""The commands. Each gets a service and the arguments, prints, and returns the exit code."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from scionlab_bw import links, tables
from scionlab_bw.answers import LIMITS
from scionlab_bw.client import Document, Service
from scionlab_bw.errors import ClientError, Refused, UsageError
from scionlab_bw.reserve import start_of
from scionlab_bw.units import format_number, format_seconds, iso, parse_bandwidth, parse_duration, parse_moment
from terminal import clean, table

POLL_S = 1.0


def _list(
    arguments: Namespace,
    found: list[Any],
    headers: Sequence[str],
    row: Callable[[Any], Sequence[Any]],
    *,
    right: Sequence[str] = (),
    none: str = "",
    note: str = "",
) -> int:
    """A table with a row per item and its note; `none` if empty."""
    if arguments.json:
        tables.print_json(found)
    else:
        print(table(headers, [row(one) for one in found], right=right) + note if found or not none else none)
    return 0


# --- looking ------------------------------------------------------------------------------------------------


def ases(service: Service, arguments: Namespace) -> int:
    def row(one: dict[str, Any]) -> Sequence[Any]:
        return one["id"], one["isd_as"], one["label"], len(one["links"]), _states(one["links"])

    headers = ["ID", "AS", "LABEL", "LINKS", "STATES"]
    return _list(arguments, list(service.all_of("ases/")), headers, row, right=("ID", "LINKS"), none="You have no AS.")


def _states(found: list[dict[str, Any]]) -> str:
    states = [tables.state(one["status"]) for one in found]
    return ", ".join(f"{states.count(name)} {name}" for name in dict.fromkeys(states))


def rename(service: Service, arguments: Namespace) -> int:
    """Set the label, unless it was changed concurrently."""
    found = links.find_as(service, arguments.as_)
    changed = service.patch(f"ases/{found.content['id']}/", {"label": arguments.label}, etag=found.etag)
    name = f'"{changed["label"]}"' if changed["label"] else "without a label"
    return tables.say(arguments, changed, f"{changed['isd_as']} is {name}.")


def list_links(service: Service, arguments: Namespace) -> int:
    def row(one: dict[str, Any]) -> Sequence[Any]:
        status, limits = one["status"], (one["to_user_kbit"], one["from_user_kbit"])
        remark = (status.get("remark") or {}).get("text", "")
        place = one["id"], one["isd_as"], one["attachment_point"]
        return *place, *map(format_number, limits), _enforced(status), tables.state(status), remark

    found = list(service.all_of("links/", state=arguments.state))
    headers = ["ID", "AS", "ATTACHMENT POINT", "TO USER", "FROM USER", "ENFORCED", "STATE", "REMARK"]
    none = "You have no Links." if arguments.state is None else "You have no Links in this state."
    note = "\n\nTO USER and FROM USER are the requested limits, in kbit/s like ENFORCED."
    return _list(arguments, found, headers, row, right=("ID", *headers[3:6]), none=none, note=note)


def _enforced(status: dict[str, Any]) -> str:
    found = status["enforced"]
    if found is None:
        return "-"
    both = (format_number(found["to_user_kbit"]), format_number(found["from_user_kbit"]))
    return both[0] if both[0] == both[1] else " / ".join(both)


def show(service: Service, arguments: Namespace) -> int:
    link = links.find(service, arguments.link).content
    return tables.show(arguments, link, tables.described(link, service.now()))


def history(service: Service, arguments: Namespace) -> int:
    link = links.find(service, arguments.link).content
    found = service.get(f"links/{link['id']}/history/", limit=arguments.limit).content["results"]

    def row(one: dict[str, Any]) -> Sequence[Any]:
        return tables.moment(one["at"]), one["actor"] or "the service", one["text"], one["reason"]

    return _list(arguments, found, ["TIME", "BY", "CHANGE", "REASON"], row)


def usage(service: Service, arguments: Namespace) -> int:
    link = links.find(service, arguments.link).content
    ends_at = service.now()
    begins_at = ends_at - timedelta(seconds=parse_duration(arguments.last))
    query = {"begins_at": iso(begins_at), "ends_at": iso(ends_at), "step": arguments.step}
    path = f"links/{link['id']}/usage/"
    if arguments.csv:
        sys.stdout.write(service.text(path, **query, format="csv"))
        return 0
    found = service.get(path, **query).content
    return tables.show(arguments, found, tables.used(found))


# --- changing -----------------------------------------------------------------------------------------------


def set_limits(service: Service, arguments: Namespace) -> int:
    """Permanently, or as a timed limit; an omitted direction is kept."""
    link = links.find(service, arguments.link)
    to_user, from_user = _directions(arguments)
    if arguments.duration is not None or arguments.until is not None:
        if arguments.active is not None:
            raise UsageError("A temporary limit does not take --active or --inactive. Set them alone.")
        now = link.content
        limits = {
            "to_user_kbit": now["to_user_kbit"] if to_user is None else to_user,
            "from_user_kbit": now["from_user_kbit"] if from_user is None else from_user,
        }
        return _make_timed(
            service, link, {"kind": "constant", "limits": limits, **_length(service, arguments)}, arguments
        )
    if arguments.at is not None:
        raise UsageError("--at is the start of a temporary limit. Add --for or --until.")
    body: dict[str, Any] = {"to_user_kbit": to_user, "from_user_kbit": from_user, "active": arguments.active}
    body = {name: value for name, value in body.items() if value is not None}
    if not body:
        raise UsageError("Nothing to set. Give a bandwidth, --to, --from, --active or --inactive.")
    try:
        changed = service.patch(f"links/{link.content['id']}/", body, etag=link.etag)
    except Refused as exc:
        if exc.code == "stale":
            raise Refused(f"The Link was changed concurrently. {_now(exc.document)} Try again.") from exc
        raise
    status = changed["status"]
    running = status["running"]
    later = f"It takes effect when the temporary limit ends, {tables.moment(running['ends_at'])}. " if running else ""
    return tables.say(arguments, changed, f"Saved. {tables.limits(status['requested'])}. {later}{status['text']}")


def set_all(service: Service, arguments: Namespace) -> int:
    """One limit for all Links of an AS: all of them, or none."""
    found = links.find_as(service, arguments.as_)
    body = {"bandwidth_kbit": parse_bandwidth(arguments.bandwidth)}
    changed = service.patch(f"ases/{found.content['id']}/", body, etag=found.etag)
    said = [f"{one['attachment_point']}: {one['status']['text']}" for one in changed["links"]]
    return tables.say(arguments, changed, " ".join(["Saved.", *said]))


def _now(document: dict[str, Any]) -> str:
    current = document.get("current") or {}
    return f"Its limit is now {tables.limits(current)}." if "to_user_kbit" in current else ""


def _directions(arguments: Namespace) -> tuple[int | None, int | None]:
    if arguments.bandwidth is not None:
        if arguments.to is not None or arguments.from_ is not None:
            raise UsageError("A single bandwidth sets both directions. Give it alone, or use --to and --from.")
        both = parse_bandwidth(arguments.bandwidth)
        return both, both
    given = (arguments.to, arguments.from_)
    to_user, from_user = (None if one is None else parse_bandwidth(one) for one in given)
    return to_user, from_user


def _length(service: Service, arguments: Namespace) -> dict[str, Any]:
    if arguments.duration is not None:
        return {"duration_s": parse_duration(arguments.duration)}
    return {"ends_at": iso(parse_moment(arguments.until, now=service.now()))}


def profile(service: Service, arguments: Namespace) -> int:
    """A timed limit of any kind."""
    link = links.find(service, arguments.link)
    body: dict[str, Any] = {"kind": arguments.kind}
    if arguments.kind in {"constant", "outage"}:
        body |= _length(service, arguments)
    if arguments.kind == "constant":
        body["limits"] = _limits(arguments.limits)
    if arguments.kind == "stair":
        body |= {"start": _limits(arguments.start), "end": _limits(arguments.end), "count": arguments.steps}
        body["step_s"] = parse_duration(arguments.step)
    if arguments.kind == "square":
        body |= {"low": _limits(arguments.low), "high": _limits(arguments.high), "cycles": arguments.cycles}
        body["half_period_s"] = parse_duration(arguments.half_period)
    return _make_timed(service, link, body, arguments)


def _limits(text: str) -> int | dict[str, int]:
    """`500`, or `1M/200k`: to the user AS, then from it."""
    to_user, slash, from_user = text.partition("/")
    if not slash or not from_user or not from_user[0].isdigit():  # Mbit/s has a slash too
        return parse_bandwidth(text)
    return {"to_user_kbit": parse_bandwidth(to_user), "from_user_kbit": parse_bandwidth(from_user)}


def _make_timed(service: Service, link: Document, body: dict[str, Any], arguments: Namespace) -> int:
    made = service.post(f"links/{link.content['id']}/timed-limits/", {**body, **start_of(service, arguments)})
    status = link.content["status"]
    then = tables.limits({name: min(status["requested"][name], status["maximum_kbit"]) for name in LIMITS})
    count = "1 step" if len(made["steps"]) == 1 else f"{len(made['steps'])} steps"
    text = (
        f"Temporary limit {made['id']} ({made['kind']}, {count}) from "
        f"{tables.moment(made['begins_at'])} until {tables.moment(made['ends_at'])}; then {then} again."
    )
    return tables.say(arguments, made, text)


def timed(service: Service, arguments: Namespace) -> int:
    link = links.find(service, arguments.link).content
    found = list(service.all_of(f"links/{link['id']}/timed-limits/", all="true" if arguments.all else None))

    def row(one: dict[str, Any]) -> Sequence[Any]:
        begins_at, ends_at = tables.moment(one["begins_at"]), tables.moment(one["ends_at"])
        return one["id"], one["kind"], one["state"], begins_at, ends_at, len(one["steps"])

    headers = ["ID", "KIND", "STATE", "START", "ENDS", "STEPS"]
    return _list(arguments, found, headers, row, right=("ID", "STEPS"), none="The Link has no temporary limits.")


def cancel(service: Service, arguments: Namespace) -> int:
    """Cancel the running one, the given one, or all that have not ended."""
    path = f"links/{links.find(service, arguments.link).content['id']}/"
    found = list(service.all_of(f"{path}timed-limits/"))
    if arguments.id is not None:
        wanted = [one for one in found if one["id"] == arguments.id]
    else:
        wanted = found if arguments.all else [one for one in found if one["state"] == "running"]
    if not wanted:
        raise Refused("No running or scheduled temporary limit matches. `scionlab-bw timed` lists them.")
    for one in wanted:
        service.delete(f"timed-limits/{one['id']}/")
    ids, status = ", ".join(str(one["id"]) for one in wanted), service.get(path).content["status"]
    return tables.say(arguments, wanted, f"Cancelled {ids}. {tables.limits(status['wanted'])}. {status['text']}")


# --- following ----------------------------------------------------------------------------------------------


def wait(service: Service, arguments: Namespace) -> int:
    """0 once the limit is enforced."""
    link = links.find(service, arguments.link).content
    deadline = time.monotonic() + parse_duration(arguments.timeout)
    for found in _versions(service, link["id"], until=lambda: time.monotonic() >= deadline):
        link = found
        if link["status"]["stage"] == "observed":
            raise ClientError(link["status"]["text"])
        if _is_enforced(link):
            return tables.say(arguments, link, f"{tables.limits(link['status']['enforced'])}. {link['status']['text']}")
    raise ClientError(
        f"Not enforced within {format_seconds(parse_duration(arguments.timeout))}: {link['status']['text']}"
    )


def _is_enforced(link: dict[str, Any]) -> bool:
    status = link["status"]
    return bool(status["stage"] == "enforced" and status["enforced"] == status["wanted"])


def watch(service: Service, arguments: Namespace) -> int:
    """Print a line for every change, until interrupted."""
    link = links.find(service, arguments.link).content
    shown = None
    for found in _versions(service, link["id"], until=lambda: False):
        status = found["status"]
        line = f"{tables.state(status)}: {tables.limits(status['wanted'])}. {status['text']}"
        if arguments.json:
            tables.print_json(found, indent=None)
        elif line != shown:
            print(f"{datetime.now():%H:%M:%S} {clean(line)}", flush=True)
        shown = line
        if arguments.once:
            return 0
    return 0


def _versions(service: Service, link_id: int, *, until: Callable[[], bool]) -> Iterator[dict[str, Any]]:
    etag = ""
    while True:
        newer = service.newer(f"links/{link_id}/", etag)
        if newer is not None:
            etag = newer.etag
            yield newer.content
        if until():
            return
        time.sleep(POLL_S)
