"""`test`: schedule a test of a Link, run its user's end on this host, report, and print the verdict."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import Any

from scionlab_bw import links, tables
from scionlab_bw.client import Service
from scionlab_bw.errors import Refused, Unreachable, UsageError
from scionlab_bw.reserve import reserve, until_over
from station.plan import read_phases
from station.user_end import UserOrder, run_user_end

POLL_S = 0.25
MAX_AHEAD_MS = 3_600_000
LONGEST_WAIT_S = 60  # before the service is asked again


def test_link(service: Service, arguments: Namespace) -> int:
    """0: enforced in both directions (`reach`: the ends reached each other). 1: not, or no verdict. Cancelled if
    interrupted."""
    made = _reserved(service, arguments)
    path = f"tests/{made['id']}/"
    tables.tell(arguments, f"Test {made['id']} ({made['tool']}) from {tables.moment(made['begins_at'])} on.")
    try:
        order = _order(service, made, arguments)
        report = run_user_end(order, lambda text: tables.tell(arguments, text))
        service.post(f"{path}report/", report)
        found = until_over(service, path)
    except KeyboardInterrupt:
        service.delete(path)
        raise
    tables.say(arguments, found, found["text"])
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
    body: dict[str, Any] = {"tool": arguments.tool, "parameters": dict(map(parameter, arguments.parameters))}
    return reserve(service, f"links/{link['id']}/tests/", body, arguments)


def parameter(written: str) -> tuple[str, int]:
    """Of --set. Raises `UsageError`."""
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
                tables.tell(arguments, told)
            after_s = exc.document.get("retry_after_s") or 1  # the service's clock: this one may be wrong
            time.sleep(min(after_s, LONGEST_WAIT_S) if after_s > 1 else POLL_S)
            continue
        answered_at = time.time()
        try:
            phases = read_phases(start["phases"])
            ahead_ms, length_ms = start["from_ms"] - start["now_ms"], start["until_ms"] - start["from_ms"]
            if abs(ahead_ms) > MAX_AHEAD_MS or not 0 < length_ms <= MAX_AHEAD_MS:
                raise ValueError(f"it begins in {ahead_ms} ms and takes {length_ms} ms")
        except ValueError as exc:
            raise Unreachable(f"{service.url} sent no test: {exc}.") from None
        return UserOrder(
            test_id=start["test"],
            key=bytes.fromhex(start["key"]),
            ip=start["ip"],
            port=start["port"],
            from_ms=start["from_ms"],
            until_ms=start["until_ms"],
            phases=phases,
            bind=arguments.bind,
            clock_off_ms=start["now_ms"] - round(500 * (asked_at + answered_at)),
        )
