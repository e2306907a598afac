"""`test`: schedule a test of a Link, run its user's end on this host, report, and print the verdict."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from datetime import UTC, datetime
from typing import Any

from scionlab_bw import links, tables
from scionlab_bw.client import HELD_S, Service
from scionlab_bw.errors import Refused, Unreachable, UsageError
from scionlab_bw.units import parse_moment
from station.plan import read_phases
from station.user_end import UserOrder, run_user_end

POLL_S = 0.25
PATIENCE_S = 120  # how long to wait for another test of the link
OPEN = {"scheduled", "armed", "running"}


def test_link(service: Service, arguments: Namespace) -> int:
    """0: enforced in both directions (`reach`: the ends reached each other). 1: not, or no verdict. Cancelled if
    interrupted."""
    made = _reserved(service, arguments)
    path = f"tests/{made['id']}/"
    _say(arguments, f"Test {made['id']} ({made['tool']}) from {tables.moment(made['begins_at'])} on.")
    try:
        order = _order(service, made, arguments)
        report = run_user_end(order, lambda text: _say(arguments, text))
        service.post(f"{path}report/", report)
        found = _result(service, path)
    except KeyboardInterrupt:
        service.delete(path)
        raise
    if arguments.json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        print(tables.clean(found["text"]))
    verdict = found["sending_verdict"]
    return 0 if found["state"] == "finished" and verdict is not None and verdict["is_good"] else 1


test_link.__test__ = False  # type: ignore[attr-defined]  # pytest takes it for one of its own


def _reserved(service: Service, arguments: Namespace) -> dict[str, Any]:
    link = links.find(service, arguments.link).content
    if arguments.id is not None:
        found = service.get(f"tests/{arguments.id}/").content
        if found["link_id"] != link["id"]:
            raise UsageError(f"Test {arguments.id} is one of Link {found['link_id']}, not of Link {link['id']}.")
        return found
    body: dict[str, Any] = {"tool": arguments.tool, "parameters": dict(map(_parameter, arguments.parameters))}
    if arguments.at is not None:
        moment = parse_moment(arguments.at, now=datetime.now(UTC))
        body["begins_at"] = moment.isoformat(timespec="seconds").replace("+00:00", "Z")
    try:
        return service.post(f"links/{link['id']}/tests/", body)
    except Refused as exc:
        free_at = exc.document.get("next_free_at")
        if arguments.at is not None or free_at is None:
            raise
        if datetime.fromisoformat(free_at).timestamp() - time.time() > PATIENCE_S:
            raise
        _say(arguments, f"{exc} Waiting for it.")
        return service.post(f"links/{link['id']}/tests/", {**body, "begins_at": free_at})


def _parameter(written: str) -> tuple[str, int]:
    name, equals, value = written.partition("=")
    if not equals or not (value.isascii() and value.isdigit()):
        raise UsageError(f'"{written[:60]}" is not NAME=NUMBER, for example seconds=3.')
    return name, int(value)


def _order(service: Service, made: dict[str, Any], arguments: Namespace) -> UserOrder:
    """The service's order once the attachment point is ready. Raises `Refused` if that is too late."""
    told = ""
    while True:
        asked_at = time.time()
        try:
            start = service.post(f"tests/{made['id']}/start/", {})
        except Refused as exc:
            if exc.code != "test_not_armed":
                raise
            if str(exc) != told:
                told = str(exc)
                _say(arguments, told)
            after_s = exc.document.get("retry_after_s", 1)  # the service's clock: this one may be wrong
            time.sleep(after_s if after_s > 1 else POLL_S)
            continue
        answered_at = time.time()
        return UserOrder(
            test_id=start["test"],
            key=bytes.fromhex(start["key"]),
            ip=start["ip"],
            port=start["port"],
            from_ms=start["from_ms"],
            until_ms=start["until_ms"],
            phases=read_phases(start["phases"]),
            bind=arguments.bind,
            clock_off_ms=start["now_ms"] - round(500 * (asked_at + answered_at)),
        )


def _result(service: Service, path: str) -> dict[str, Any]:
    """Wait for the attachment point's report; the service ends the wait."""
    etag, found = "", None
    while found is None or found["state"] in OPEN:
        newer = service.newer(path, etag, wait_s=HELD_S)
        if newer is not None:
            etag, found = newer.etag, newer.content
        if found is None:
            raise Unreachable(f"{service.url} sent no test.")
        if found["state"] in OPEN:
            time.sleep(POLL_S)
    return found


def _say(arguments: Namespace, text: str) -> None:
    if not arguments.json:
        print(tables.clean(text), flush=True)
