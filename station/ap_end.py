"""The attachment point's end of one test that sends: a child of the agent without rights.

    python -m station.ap_end < order.json

The order is one JSON object on stdin: `id`, `key` (64 hexadecimal digits), `port`, `local_ip` (or null), `remote_ip`,
`ifindex` (0: none), `from_ms`, `until_ms` (Unix time), `max_kbit`, `max_bytes`, `tcp` (whether phases may use TCP on
the same port; default: false). The report (`station.report`) is one line of JSON on stdout; stderr is for diagnostics.
Exit code 0 even if no user connected, 1 if it could not listen, 2 for an invalid order.
"""

from __future__ import annotations

import json
import re
import secrets
import sys
import time
from collections.abc import Mapping
from ipaddress import ip_address

from station.ap_talk import ApOrder, ApTalk
from station.confine import confine
from station.connections import Listener
from station.plan import AP, MAX_KBIT, whole
from station.report import ERROR, Report
from station.talk import Clock, no_tcp
from station.wire import Wire, address_of, drive

MAX_ORDER_BYTES = 4_096
MAX_AHEAD_MS = 120_000  # from now until the end
DEADLINE_S = 1.0  # after `until`: the kernel's timer
_MAX_BYTES = 1 << 40


def read_order(value: object) -> ApOrder:
    """Raises `ValueError` with the place and the reason."""
    if not isinstance(value, Mapping):
        raise ValueError("the order is not an object")
    return ApOrder(
        _text(value, "id", r"[0-9a-f]{32}"),
        bytes.fromhex(_text(value, "key", r"[0-9a-f]{64}")),
        whole("port", value.get("port"), 1, 65_535),
        None if value.get("local_ip") is None else str(ip_address(_text(value, "local_ip", r"[0-9a-fA-F.:]{2,45}"))),
        ip_address(_text(value, "remote_ip", r"[0-9a-fA-F.:]{2,45}")),
        whole("ifindex", value.get("ifindex"), 0, 2**31 - 1),
        whole("from_ms", value.get("from_ms"), 0, 2**53),
        whole("until_ms", value.get("until_ms"), 0, 2**53),
        whole("max_kbit", value.get("max_kbit"), 1, MAX_KBIT),
        whole("max_bytes", value.get("max_bytes"), 1, _MAX_BYTES),
        value.get("tcp", False) is True,
    )


def run_ap_end(order: ApOrder, listener: Listener | None) -> Report:
    """Listen until the test is over; `listener`: for TCP. Raises `OSError` on failure."""
    clock = Clock(time.time_ns() / 1_000_000 - time.monotonic() * 1000)
    version, scope = order.remote_ip.version, order.ifindex if order.remote_ip.is_link_local else 0
    wire = Wire(version, order.local_ip, order.port, scope)
    try:
        if listener is not None:
            listener.bind(address_of(version, order.local_ip, order.port, scope))
        connect = no_tcp if listener is None else listener.connect
        talk = ApTalk(order, wire.send, clock, secrets.token_bytes(32), connect)
        drive(wire, talk)
    finally:
        wire.close()
        if listener is not None:
            listener.close()
    return talk.report()


def main() -> int:
    try:
        order = read_order(json.loads(sys.stdin.buffer.read(MAX_ORDER_BYTES)))
        left_ms = order.until_ms - time.time_ns() // 1_000_000
        if left_ms > MAX_AHEAD_MS:
            raise ValueError(f"until_ms is {left_ms} ms from now, more than {MAX_AHEAD_MS}")
    except (ValueError, RecursionError) as exc:
        print(f"station.ap_end: {exc}", file=sys.stderr)
        return 2
    try:
        listener = Listener(order.remote_ip.version) if order.tcp else None  # privileged processes may choose cubic
        confine(max(0, left_ms) / 1000 + DEADLINE_S)
        report = run_ap_end(order, listener)
    except OSError as exc:
        print(f"station.ap_end: {exc}", file=sys.stderr)
        report = Report(AP, ERROR, f"The attachment point's end did not start: {exc.strerror or exc}.", None, ())
    print(json.dumps(report.to_json(), separators=(",", ":")), flush=True)
    return 1 if report.outcome == ERROR else 0


def _text(order: Mapping[str, object], name: str, pattern: str) -> str:
    value = order.get(name)
    if not isinstance(value, str) or not re.fullmatch(pattern, value, flags=re.ASCII):
        raise ValueError(f"{name} is {'missing' if value is None else 'not as it should be'}")
    return value


if __name__ == "__main__":
    sys.exit(main())
