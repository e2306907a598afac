"""The user's end of a test that sends, for the command line client."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable
from typing import Any

from station.connections import opener
from station.plan import USER
from station.report import ERROR, NOBODY, Report
from station.talk import Clock, Peer
from station.user_talk import UserOrder, UserTalk
from station.wire import Wire, drive

__all__ = ["UserOrder", "run_user_end"]

_NO_SUCH_ADDRESS = frozenset({errno.EADDRNOTAVAIL, errno.ENODEV, errno.EINVAL})
_AFTER_BEGIN_S = 0.1  # early packets, within this error of the clock, are ignored and repeated 0.3 s later
_REFUSED_EACH_S = 2.0  # Linux reports a closed port at least once a second (net.ipv4.icmp_ratelimit)
_NO_ROUTE = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN})


def run_user_end(order: UserOrder, say: Callable[[str], None]) -> dict[str, Any]:
    """Wait for the start, run the phases, and return this end's report (`station.report`). `say` prints sentences. Does
    not raise on network errors: the report has the reason."""
    report = _run(order, say)
    if report.why:
        say(report.why)
    return report.to_json()


def _run(order: UserOrder, say: Callable[[str], None]) -> Report:
    clock = Clock(time.time_ns() / 1_000_000 + order.clock_off_ms - time.monotonic() * 1000)
    try:
        ap, local_ip = _addresses(order)
        wire = Wire(ap.version, local_ip, 0, ap.scope)
    except OSError as exc:
        return Report(USER, ERROR, _no_socket(order, exc), None, ())
    try:
        wire.connect(ap)
        time.sleep(max(0.0, clock.at(order.from_ms) + _AFTER_BEGIN_S - time.monotonic()))
        talk = UserTalk(order, ap, wire.send, clock, opener(wire.local_ip))
        drive(wire, talk)
        if talk.outcome == NOBODY:
            talk.why = _no_answer(order, wire, talk.time_was_over)
    except OSError as exc:
        return Report(USER, ERROR, _no_socket(order, exc), None, ())
    finally:
        wire.close()
    for hint in talk.hints(is_told=errno.EMSGSIZE in wire.refused_at):
        say(hint)
    return talk.report()


def _addresses(order: UserOrder) -> tuple[Peer, str | None]:
    """The attachment point's address (with the interface, if link-local), and the address to send from. Raises
    `OSError`."""
    bind, _, dev = (order.bind or "").partition("%")
    ip, _, ap_dev = order.ip.partition("%")
    dev = dev or ap_dev
    scope = socket.if_nametoindex(dev) if dev and ip.lower().startswith("fe80:") else 0
    return Peer(ip, order.port, scope), bind or None


def _no_socket(order: UserOrder, exc: OSError) -> str:
    if order.bind and exc.errno in _NO_SUCH_ADDRESS:
        return f"This host has no address {order.bind}. Use --bind with an address of this host that is up."
    if order.ip.lower().startswith("fe80:"):
        return f"{order.ip} is a link-local address. Use --bind ADDRESS%INTERFACE, e.g. --bind fe80::1%eth0."
    return f"This host cannot send to {order.ip}: {exc.strerror or exc}. Check its routes."


def _no_answer(order: UserOrder, wire: Wire, time_was_over: bool) -> str:
    """In one or two sentences: what is known, and the remedy. A port that was closed briefly, before the other end
    started or after the test, is not the cause."""
    what = f"{order.ip}, UDP port {order.port}"
    closed_at = wire.refused_at.get(errno.ECONNREFUSED)
    if closed_at is not None and time.monotonic() - closed_at < _REFUSED_EACH_S and not time_was_over:
        return (
            f"{what}, is closed: the attachment point answers, but its end of the test does not run. "
            "Its operator may have stopped tests, or its agent did not start it."
        )
    if _NO_ROUTE & wire.refused_at.keys():
        return f"There is no route from {wire.local_ip} to {what}. Check the routes of this host."
    return (
        f"No answer from {what}. This host sends from {wire.local_ip}; the attachment point answers only the "
        "registered address of this link. If that is another one, use --bind with it; if not, a firewall stops UDP."
    )
