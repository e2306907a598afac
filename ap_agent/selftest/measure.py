"""Measuring one round: who sends what, and what arrived. The figures are judged in `verdict`."""

from __future__ import annotations

from pathlib import Path

from ap_agent.selftest.cases import AP_ADDRESS, WARM_UP_S, Case, Direction, Protocol, Round
from ap_agent.selftest.verdict import Heartbeats, Measured, Strain
from measuring.judge import NS
from measuring.netns import Namespace
from measuring.tcp import run_tcp
from measuring.traffic import ROUTER_SEND_BUFFER_BYTES, Results, data, ends, heartbeats, run_traffic

FULL_PAYLOAD_BYTES = 1472
DEV = "eth0"  # of both hosts
MAX_SEGMENTS = 65_535  # of a super-packet, as the kernel has it by itself


class TwoHosts:
    """The attachment point and the host of all user ASes, one wire between them."""

    def __init__(self, ap: Namespace, users: Namespace) -> None:
        self.ap = ap
        self.users = users

    def measure(self, one: Round, capable_kbit: float | None = None) -> list[Measured]:
        """Every case of a round in its directions. Raises `LabError`.

        `capable_kbit` is what the same flow gets here without a limit: TCP cannot offer more than that.
        """
        return self._datagrams(one) if one.protocol is Protocol.UDP else self._tcp(one, capable_kbit)

    def _datagrams(self, one: Round) -> list[Measured]:
        """Through sockets with a border router's own send buffer: a full queue holds up what it would hold up there."""
        pairs = [
            ends(
                case.name,
                case.local,
                case.remote,
                (heartbeats(), data(case.judged_kbit * case.overload, FULL_PAYLOAD_BYTES)),
                send_buffer_bytes=ROUTER_SEND_BUFFER_BYTES,
            )
            for case in one.cases
        ]
        clock = ProcessorTimes()
        plan = {self.ap: [pair[0] for pair in pairs], self.users: [pair[1] for pair in pairs]}
        results = run_traffic(plan, seconds=one.seconds, linger_s=1.0)
        strain = clock.strain(results)
        return [self._arrived(results, case, way, one, strain) for case in one.cases for way in one.directions]

    def _arrived(self, results: Results, case: Case, way: Direction, one: Round, strain: Strain) -> Measured:
        receiver = self.users if way is Direction.TO_USER else self.ap
        sender = results.other_end(receiver, case.name)
        # What a full socket refused was offered as well: the limit's own queue held it up.
        offered = sender.sent() + sender.refused()
        beats = results.heartbeats(receiver, case.name)
        return Measured(
            case,
            way,
            one.measured_s,
            results.rate_kbit(receiver, case.name),
            offered_kbit=offered * sender.wire.bytes(FULL_PAYLOAD_BYTES) / one.seconds / 125,
            excess_bytes=results.excess_bytes(receiver, case.name, case.judged_kbit),
            heartbeats=Heartbeats(
                sender.sent("heartbeat"), results.lost(receiver, case.name, "heartbeat"), beats.downs
            ),
            strain=strain,
        )

    def _tcp(self, one: Round, capable_kbit: float | None) -> list[Measured]:
        """With super-packets, as every host sends unless it is told not to: frame by frame two processors that send,
        limit and receive reach 600 to 950 Mbit/s (docs/evaluation.md), which says nothing of the limit."""
        (case,), (way,) = one.cases, one.directions
        for host in (self.ap, self.users):
            host.ip("link", "set", DEV, "gso_max_segs", str(MAX_SEGMENTS))
        clock = ProcessorTimes()
        if way is Direction.TO_USER:
            result = run_tcp(self.ap, self.users, case.user_address, seconds=one.seconds)
        else:
            result = run_tcp(self.users, self.ap, AP_ADDRESS, seconds=one.seconds, source=case.user_address)
        kbit = result.wire_kbit(warm_up_s=WARM_UP_S)
        return [Measured(case, way, one.measured_s, kbit, capable_kbit, strain=clock.strain())]


class ProcessorTimes:
    """What the processors did since this was made, from /proc/stat."""

    def __init__(self) -> None:
        self._before = _processor_times()

    def strain(self, results: Results | None = None) -> Strain:
        """With the pauses of all stations, where there were any."""
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
    """Of each processor: user, nice, system, idle, iowait, irq, softirq, steal (proc(5))."""
    lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    return [[int(one) for one in line.split()[1:9]] for line in lines if line[:3] == "cpu" and line[3].isdigit()]
