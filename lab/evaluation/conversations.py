"""Both ends of tests that send, over the wires of a bed: real programs, started as agent and client start them."""

from __future__ import annotations

import json
import secrets
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta

from contract.link_tests import FIRST_TEST_PORT, UDP, LinkTest
from lab.bench.core import Label
from lab.evaluation.bed import Bed
from lab.evaluation.core import FROM_USER, TO_USER, labels_of
from lab.evaluation.limiters import OURS
from lab.running import given, until
from measuring.iproute import LabError
from measuring.netns import Namespace
from station.plan import TCP, Phase, ap_bytes, ap_kbit, total_s
from station.report import Report, read_report
from station.user_end import UserOrder

NO_KEY_S = 2  # how long the user's end tries in vain
START_S = 3  # the user's end starts later
_LISTENS_WITHIN_S = 10.0


WAYS = {TO_USER: "to_user", FROM_USER: "from_user"}


@dataclass(frozen=True)
class Ends:
    """What both ends of one wire reported."""

    ap: Report
    user: Report


def test_port(wire: int) -> int:
    """Of the test of that wire, numbered from 1; an attachment point has four."""
    return FIRST_TEST_PORT + wire - 1


def labels(experiment: str, way: str, kbit: int) -> dict[str, Label]:
    """Of what our limiter did."""
    return labels_of(experiment, OURS, way, kbit=kbit)


def limit_tested(bed: Bed, limits: Mapping[int, int], *, has_entry: bool = True) -> None:
    """With a test on each wire; without its entry the limiter knows the links alone."""
    tests = {wire: _test(test_port(wire)) if has_entry else () for wire in limits}
    bed.enforce(replace(one, tests=tests[one.interface_id]) for one in bed.links(limits))


def _test(port: int) -> tuple[LinkTest]:
    begins_at = datetime.now(UTC).replace(microsecond=0)
    return (LinkTest(begins_at, begins_at + timedelta(seconds=60), secrets.token_hex(16), UDP, port, 1_000, 1_000_000),)


def converse(bed: Bed, plans: Mapping[int, Sequence[Phase]], *, has_key: bool = True) -> dict[int, Ends]:
    """A test on each of these wires, all at once. Without `has_key` the user's end has another key. Raises
    `LabError`."""
    longest_s = max(total_s(phases) for phases in plans.values()) if has_key else NO_KEY_S
    now_ms = time.time_ns() // 1_000_000
    ids = {wire: secrets.token_hex(16) for wire in plans}
    keys = {wire: secrets.token_bytes(32) for wire in plans}
    ap_ends = {}
    for wire, phases in plans.items():
        (local, _), (remote, _) = bed.wire(wire).ends
        ap_ends[wire] = given(
            bed.ap,
            json.dumps({
                "id": ids[wire], "key": keys[wire].hex(), "port": test_port(wire), "local_ip": local,
                "remote_ip": remote, "ifindex": 0, "from_ms": now_ms, "until_ms": now_ms + (longest_s + START_S) * 1000,
                "max_kbit": ap_kbit(phases), "max_bytes": ap_bytes(phases),
                "tcp": any(one.kind == TCP for one in phases),
            }),
            "station.ap_end",
        )  # fmt: skip
    ports = {test_port(wire) for wire in plans}
    until(lambda: ports <= udp_ports(bed.ap), "the attachment point's ends do not listen", _LISTENS_WITHIN_S)
    user_ends = {}
    for wire, phases in plans.items():
        (local, _), (remote, _) = bed.wire(wire).ends
        key = keys[wire] if has_key else secrets.token_bytes(32)
        until_ms = time.time_ns() // 1_000_000 + longest_s * 1000
        order = UserOrder(ids[wire], key, local, test_port(wire), now_ms, until_ms, tuple(phases), remote)
        user_ends[wire] = given(bed.users, json.dumps(asdict(order) | {"key": key.hex()}), "lab.evaluation.user_end")
    users = {wire: _report(process, longest_s + 15) for wire, process in user_ends.items()}
    return {wire: Ends(_report(process, longest_s + 15), users[wire]) for wire, process in ap_ends.items()}


def udp_ports(host: Namespace) -> set[int]:
    """On which anybody listens."""
    return {int(line.split()[3].rpartition(":")[2]) for line in host.run("ss", "-Huln").splitlines()}


def _report(process: subprocess.Popen[str], within_s: float) -> Report:
    out, said = process.communicate(timeout=within_s)
    try:
        return read_report(json.loads(out))
    except ValueError as exc:
        raise LabError(f"an end of a test reported nothing: {exc}; {said.strip()[-400:]}") from exc
