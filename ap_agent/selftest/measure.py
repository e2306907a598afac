"""Measures one round: who sends what, and what arrived. `verdict` judges the figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ap_agent.selftest.cases import AP_ADDRESS, OPTION_BYTES, WARM_UP_S, Case, Direction, Form, Round
from ap_agent.selftest.verdict import Heartbeats, Measured, Strain
from measuring.framing import ETHERNET_BYTES, Wire
from measuring.judge import NS
from measuring.netns import Namespace
from measuring.tagged import Tagged
from measuring.tcp import run_tcp
from measuring.traffic import ROUTER_SEND_BUFFER_BYTES, Endpoint, Results, data, heartbeats, run_traffic

DEV = "eth0"  # of both hosts
AP_MAC, USERS_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
MAX_SEGMENTS = 65_535  # maximum of a super-packet, the kernel's default
_TAG_BYTES = 4

Refused = Callable[[Case, Direction], int]  # packets counted by the engine so far


class TwoHosts:
    """The attachment point and the host of all user ASes, connected by one wire."""

    def __init__(self, ap: Namespace, users: Namespace, refused: Refused) -> None:
        self.ap = ap
        self.users = users
        self._refused = refused

    def measure(self, one: Round) -> list[Measured]:
        """Every case of a round in its directions. Raises `LabError`."""
        return self._tcp(one) if one.form is Form.TCP else self._datagrams(one)

    def _datagrams(self, one: Round) -> list[Measured]:
        """Through sockets with a border router's send buffer: a full queue blocks them like a router."""
        clock = ProcessorTimes()
        rows = [(case, way) for case in one.cases for way in one.directions]
        before = {row: self._refused(*row) for row in rows}
        plan = {
            self.ap: [_end(case, case.local, case.remote, AP_MAC, USERS_MAC) for case in one.cases],
            self.users: [_end(case, case.remote, case.local, USERS_MAC, AP_MAC) for case in one.cases],
        }
        results = run_traffic(plan, seconds=one.seconds, linger_s=1.0)
        strain = clock.strain(results)
        return [
            replace(
                self._arrived(results, case, way, one),
                refused=self._refused(case, way) - before[case, way],
                strain=strain,
            )
            for case, way in rows
        ]

    def _arrived(self, results: Results, case: Case, way: Direction, one: Round) -> Measured:
        receiver = self.users if way is Direction.TO_USER else self.ap
        sender = results.other_end(receiver, case.name)
        wire = _wire(case, way)
        # What a full socket rejected was offered as well: the limit's own queue blocked it.
        offered = sender.sent() + sender.refused()
        beats = results.heartbeats(receiver, case.name)
        return Measured(
            case,
            way,
            one.measured_s,
            results.rate_kbit(receiver, case.name, wire=wire),
            offered_kbit=offered * wire.bytes(case.payload_bytes) / one.seconds / 125,
            excess_bytes=results.excess_bytes(receiver, case.name, case.judged_kbit, wire=wire),
            arrived=len(results.all_arrivals(receiver, case.name)),
            lost=results.lost(receiver, case.name),
            heartbeats=Heartbeats(
                sender.sent("heartbeat"), results.lost(receiver, case.name, "heartbeat"), beats.downs
            ),
        )

    def _tcp(self, one: Round) -> list[Measured]:
        """With super-packets of up to 64 kB, the default of every host."""
        (case,), (way,) = one.cases, one.directions
        for host in (self.ap, self.users):
            host.ip("link", "set", DEV, "gso_max_segs", str(MAX_SEGMENTS))
        clock = ProcessorTimes()
        if way is Direction.TO_USER:
            result = run_tcp(self.ap, self.users, case.user_address, seconds=one.seconds)
        else:
            result = run_tcp(self.users, self.ap, AP_ADDRESS[4], seconds=one.seconds, source=case.user_address)
        kbit = result.wire_kbit(warm_up_s=WARM_UP_S)
        return [Measured(case, way, one.measured_s, kbit, strain=clock.strain())]


def _end(case: Case, here: tuple[str, int], there: tuple[str, int], own_mac: str, other_mac: str) -> Endpoint:
    return Endpoint(
        case.name,
        here,
        there,
        (heartbeats(), data(case.offered_kbit, case.payload_bytes)),
        send_buffer_bytes=ROUTER_SEND_BUFFER_BYTES,
        ip_options=case.form is Form.OPTIONS,
        tagged=Tagged(DEV, own_mac, other_mac) if case.form is Form.TAGGED else None,
    )


def _wire(case: Case, way: Direction) -> Wire:
    """Linux removes the tag from a frame before the ingress hook."""
    more = OPTION_BYTES[case.family] if case.form is Form.OPTIONS else 0
    if case.form is Form.TAGGED and way is Direction.TO_USER:
        more = _TAG_BYTES
    return Wire(case.family, ETHERNET_BYTES + more)


class ProcessorTimes:
    """CPU times since construction, from /proc/stat."""

    def __init__(self) -> None:
        self._before = _processor_times()

    def strain(self, results: Results | None = None) -> Strain:
        """Including the pauses of all stations, if any."""
        spent = [
            [later - earlier for earlier, later in zip(before, after, strict=True)]
            for before, after in zip(self._before, _processor_times(), strict=False)
        ]
        totals = [sum(one) or 1 for one in spent]
        idle = [(one[3] + one[4]) / total for one, total in zip(spent, totals, strict=True)]
        stolen = sum(one[7] for one in spent) / sum(totals)
        pauses = [] if results is None else [end - begin for begin, end in results.pauses]
        measured_ns = 1 if results is None else results.stop_ns - results.start_ns
        return Strain(sum(pauses) / measured_ns, max(pauses, default=0) / NS, min(idle, default=1.0), stolen)


def _processor_times() -> list[list[int]]:
    """Of each CPU: user, nice, system, idle, iowait, irq, softirq, steal (proc(5))."""
    lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    return [[int(one) for one in line.split()[1:9]] for line in lines if line[:3] == "cpu" and line[3].isdigit()]
