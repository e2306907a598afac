"""Traffic between the hosts of a lab: say what each endpoint sends, run it, get what each endpoint received.

    plan = {ap: [Endpoint("l1", ("192.0.2.1", 50000), ("192.0.2.11", 50000), (data(2000), heartbeats()))],
            user: [Endpoint("l1", ("192.0.2.11", 50000), ("192.0.2.1", 50000), (data(2000), heartbeats()))]}
    results = run_traffic(plan, seconds=4)
    results.rate_kbit(user, "l1")           # what arrived at the user AS, kbit/s on the Ethernet
    results.heartbeats(user, "l1").downs    # what its border router would have concluded

One `measuring.station` process per host does all of that host's sending and receiving; all start at one moment of the
clock that they share. Offered rates are those of the wire (Ethernet), like the limits. Verdicts rest on what receivers
saw.

What a station manages, measured on a 2-core machine (kernel 6.18, veth, no limits): one stream of 1 Gbit/s in 1472-byte
datagrams (82 500 per second) without a loss, at 3 µs of processor per datagram sent and 4 µs per datagram received; or
60 links at 2 Mbit/s in both directions at 20 % of a core per station.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from measuring import judge
from measuring.arrivals import Arrivals, merged
from measuring.framing import Wire
from measuring.judge import NS, HeartbeatReport, RateVerdict, Span
from measuring.netns import Namespace
from measuring.scion_packet import HEARTBEAT_INTERVAL_S, MIN_DATA_BYTES, NEXT_HEADER_UDP, Kind
from measuring.station import unpack_arrivals
from measuring.tagged import Tagged
from measuring.worker import Worker, start_all

Address = tuple[str, int]
ROUTER_SEND_BUFFER_BYTES = 212_992  # net.core.wmem_default: what a border router's socket has (DOMAIN section 7)
LARGE_SEND_BUFFER_BYTES = 8 * 1024 * 1024  # the leaf of the limit drops, not the sender's own socket
PathMtu = Literal["want", "dont", "do"]


@dataclass(frozen=True)
class Stream:
    """What one end sends: data at `kbit` (wire) in packets of `payload_bytes` (96 to 65 507 with their fragments), or
    heartbeats or questions every `interval_s`.

    It lasts from `start_s` to `stop_s` of the run (None: to its end). `next_header` can lie (203: data that poses as
    a heartbeat).
    """

    kind: Kind
    kbit: float = 0
    payload_bytes: int = 1472
    next_header: int = NEXT_HEADER_UDP
    interval_s: float = HEARTBEAT_INTERVAL_S
    start_s: float = 0.0
    stop_s: float | None = None


def data(kbit: float, payload_bytes: int = 1472, **options: Any) -> Stream:
    """Data packets at an offered rate on the wire. Options are those of `Stream`."""
    return Stream("data", kbit=kbit, payload_bytes=payload_bytes, **options)


def echoes(interval_s: float = 0.05, payload_bytes: int = MIN_DATA_BYTES, **options: Any) -> Stream:
    """Questions that the other end answers at once: latency under load, on the link's ports."""
    return Stream("question", interval_s=interval_s, payload_bytes=payload_bytes, **options)


def heartbeats(**options: Any) -> Stream:
    """A border router's BFD heartbeats."""
    return Stream("heartbeat", **options)


@dataclass(frozen=True)
class Endpoint:
    """One end of a link (or of any other UDP conversation) with what it sends; the name pairs it with its other end.

    `ip_options` puts options into every packet (IPv4) or an extension header (IPv6). `mtu_bytes` is that of its
    interface: it decides what a datagram costs. `path_mtu`: "want" is what programs do who say nothing (no fragments
    of what fits, fragments of what does not), "dont" never sets "don't fragment", "do" always does and fails on what
    does not fit. `tagged`: its packets go as frames with priority tags, which cost 4 bytes more each where a limit
    counts them.
    """

    name: str
    local: Address
    remote: Address
    streams: tuple[Stream, ...] = ()
    send_buffer_bytes: int = LARGE_SEND_BUFFER_BYTES
    ip_options: bool = False
    mtu_bytes: int = 1500
    path_mtu: PathMtu = "want"
    tagged: Tagged | None = None


def ends(
    name: str,
    left: Address,
    right: Address,
    left_streams: Sequence[Stream] = (),
    *,
    right_streams: Sequence[Stream] | None = None,
    **options: Any,
) -> tuple[Endpoint, Endpoint]:
    """Both ends of one conversation; the right end sends the same as the left one unless said otherwise."""
    back = tuple(left_streams if right_streams is None else right_streams)
    return (
        Endpoint(name, left, right, tuple(left_streams), **options),
        Endpoint(name, right, left, back, **options),
    )


@dataclass
class EndpointResult:
    """What one end sent (per stream, heartbeats first) and what arrived at it."""

    spec: Endpoint
    sent_streams: list[dict[str, Any]]
    received: dict[str, Arrivals]  # by kind

    @property
    def data(self) -> Arrivals:
        """The data packets (whole datagrams) that arrived."""
        return self.received["data"]

    @property
    def heartbeats(self) -> Arrivals:
        """The heartbeats that arrived."""
        return self.received["heartbeat"]

    def sent(self, kind: Kind = "data") -> int:
        """Packets of this kind that its socket took."""
        return sum(stream["sent"] for stream in self.sent_streams if stream["kind"] == kind)

    def refused(self, kind: Kind = "data") -> int:
        """Packets (data) or tries (heartbeats) that its full socket refused."""
        return sum(stream["refused"] for stream in self.sent_streams if stream["kind"] == kind)

    @property
    def wire(self) -> Wire:
        """What its payloads cost on an Ethernet."""
        return Wire(6 if ":" in self.spec.local[0] else 4, mtu_bytes=self.spec.mtu_bytes)


@dataclass
class Results:
    """A finished run. Hosts are named by their namespace."""

    start_ns: int
    stop_ns: int
    endpoints: dict[tuple[str, str], EndpointResult]
    pauses: list[Span] = field(default_factory=list)  # in which every station stood still: the machine did
    pauses_of: dict[str, list[Span]] = field(default_factory=dict)  # of each host's station

    def at(self, host: Namespace, name: str) -> EndpointResult:
        """The endpoint of this name on this host."""
        return self.endpoints[host.name, name]

    def other_end(self, host: Namespace, name: str) -> EndpointResult:
        """The endpoint of this name on the other host."""
        return next(one for (where, what), one in self.endpoints.items() if what == name and where != host.name)

    def all_arrivals(self, host: Namespace, name: str) -> Arrivals:
        """Data, heartbeats and echoes together: a limit holds for their sum."""
        return merged(self.at(host, name).received.values())

    def rate_kbit(self, host: Namespace, name: str, *, wire: Wire | None = None, **window: Any) -> float:
        """Steady rate of everything that arrived, on the wire; 0 when (almost) nothing did."""
        found = judge.steady_rate(
            self.all_arrivals(host, name), wire or self.at(host, name).wire, **self._window(window)
        )
        return found or 0.0

    def judge_rate(
        self, host: Namespace, name: str, limit_kbit: int, *, wire: Wire | None = None, **window: Any
    ) -> RateVerdict:
        """The same against a limit; see `measuring.judge` on the tolerance and on pauses of the sender."""
        sender = next(where for where, what in self.endpoints if what == name and where != host.name)
        return judge.judge_rate(
            self.all_arrivals(host, name),
            wire or self.at(host, name).wire,
            limit_kbit=limit_kbit,
            pauses=self.pauses_of[sender],
            **self._window(window),
        )

    def excess_bytes(self, host: Namespace, name: str, limit_kbit: int, *, wire: Wire | None = None) -> float:
        """The most that any window carried above rate*T; see `measuring.judge`."""
        return judge.excess_bytes(self.all_arrivals(host, name), wire or self.at(host, name).wire, limit_kbit)

    def heartbeats(self, host: Namespace, name: str) -> HeartbeatReport:
        """The three-misses rule at this end."""
        return judge.judge_heartbeats(self.at(host, name).heartbeats, start_ns=self.start_ns, stop_ns=self.stop_ns)

    def goodput_kbit(self, host: Namespace, name: str, **window: Any) -> float:
        """Payload of complete data packets that arrived, in the mean after the warm-up; see `judge.goodput_kbit`."""
        return judge.goodput_kbit(self.at(host, name).data, **self._window(window))

    def goodput_samples(self, host: Namespace, name: str, **window: Any) -> list[float]:
        """The same per second of the run after the warm-up; see `judge.goodput_samples`."""
        return judge.goodput_samples(self.at(host, name).data, **self._window(window))

    def lost(self, host: Namespace, name: str, kind: Kind = "data") -> int:
        """Packets that the other end sent and this end never got; for one stream of that kind."""
        arrivals = self.at(host, name).received[kind]
        return judge.missing_count(arrivals, self.other_end(host, name).sent(kind))

    def _window(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"start_ns": self.start_ns, "stop_ns": self.stop_ns} | given


Plan = Mapping[Namespace, Sequence[Endpoint]]


class TrafficRun:
    """A run in progress: the stations are bound and ready when this is made, and send from `go` on."""

    def __init__(self, plan: Plan, *, seconds: float, linger_s: float = 0.3) -> None:
        """Raises `LabError` when a station cannot bind its endpoints."""
        self._plan = plan
        self._seconds = seconds
        self._linger_s = linger_s
        self.start_ns = 0
        streams = [stream for endpoints in plan.values() for one in endpoints for stream in one.streams]
        shared = {
            "seconds": seconds,
            "linger_s": linger_s,
            "largest_bytes": max((stream.payload_bytes for stream in streams), default=0),
        }
        self._stations = {
            host: Worker(
                host,
                "measuring.station",
                spec=shared | {"endpoints": [_endpoint_spec(one, seconds) for one in endpoints]},
            )
            for host, endpoints in plan.items()
        }
        for station in self._stations.values():
            station.expect("ready")

    def go(self, start_ns: int | None = None) -> TrafficRun:
        """Start sending everywhere at one moment: this one [ns], or a tenth of a second from now."""
        self.start_ns = start_all(self._stations.values(), start_ns)
        return self

    def sleep_until(self, second: float) -> None:
        """Wait for a moment of the run, counted from its start."""
        time.sleep(max(0.0, (self.start_ns - time.monotonic_ns()) / NS + second))

    def finish(self) -> Results:
        """Wait for the end of the run and collect. Raises `LabError` when a station failed or hangs."""
        results = Results(self.start_ns, self.start_ns + int(self._seconds * NS), {})
        deadline_s = self.start_ns / NS + self._seconds + self._linger_s + 20
        for host, station in self._stations.items():
            report = station.collect(deadline_s)
            specs = {one.name: one for one in self._plan[host]}
            for name, end in report["endpoints"].items():
                results.endpoints[host.name, name] = EndpointResult(
                    spec=specs[name],
                    sent_streams=end["streams"],
                    received={kind: unpack_arrivals(packed) for kind, packed in end["received"].items()},
                )
            results.pauses_of[host.name] = [(begin, end) for begin, end in report["pauses"]]
        results.pauses = judge.common_pauses(list(results.pauses_of.values()))
        return results


def run_traffic(plan: Plan, *, seconds: float, linger_s: float = 0.3) -> Results:
    """Start, run and collect. `linger_s`: how long receivers listen after the senders stopped."""
    return TrafficRun(plan, seconds=seconds, linger_s=linger_s).go().finish()


def _endpoint_spec(endpoint: Endpoint, seconds: float) -> dict[str, Any]:
    spec = asdict(endpoint)
    for stream in spec["streams"]:
        stream["stop_s"] = seconds if stream["stop_s"] is None else stream["stop_s"]
    return spec
