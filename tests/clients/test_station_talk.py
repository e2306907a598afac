"""Both ends of a test over time, without a socket, on a network that loses, repeats and overtakes, and beside an
attacker who has read everything and sends it again from wherever he likes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from heapq import heappop, heappush
from ipaddress import ip_address
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from station.ap_talk import ApOrder, ApTalk
from station.messages import Kind
from station.pacing import SILENCE_S
from station.plan import Phase, ap_bytes, ap_kbit, frame_bytes
from station.report import COMPLETED, CUT, NOBODY, REFUSED, Report
from station.rounds import Sent
from station.talk import Clock, Peer
from station.user_talk import UserOrder, UserTalk

ID, KEY = "a" * 32, bytes(range(32))
AP, USER, VICTIM = Peer("192.0.2.1", 30300), Peer("192.0.2.11", 50000), Peer("192.0.2.99", 50000)
BEGINS, UNTIL, STEP_S = 10.0, 22.0, 0.01
TO_USER = Phase(0, "stream", "to_user", 100, 500, 1000, 0)
PLAN = (
    TO_USER,
    Phase(1, "stream", "from_user", 100, 500, 500, 0),
    Phase(2, "echo", "both", 16, 48, 400, 4),
    Phase(3, "mtu", "both", 200, 1452, 6000, 0),
)
DATA = {int(one) for one in Kind if one >= Kind.USER_DATA}
HELLO_AND_SO_ON = 69
BEGUN = b"SLT1" + bytes([Kind.BEGUN])


@dataclass
class Trouble:
    """What the network does. `loss`, `twice`: probabilities; `late_s`: a packet takes up to so much longer; `replay`:
    probability with which the attacker sends a packet again, from any address; `user_dies_at`: s; `loses_begun`: the
    first one."""

    loss: float = 0.0
    twice: float = 0.0
    late_s: float = 0.0
    replay: float = 0.0
    user_dies_at: float = float("inf")
    mtu: int = 1500
    seed: int = 0
    loses_begun: bool = False


class Out(NamedTuple):
    """A packet of the attachment point's end."""

    at: float
    packet: bytes
    to: Peer

    @property
    def is_data(self) -> bool:
        return self.packet[0] in DATA


@dataclass
class World:
    """Two ends and the network between them, from `now` on."""

    trouble: Trouble
    phases: tuple[Phase, ...] = PLAN
    key: bytes = KEY
    max_kbit: int = 0
    max_bytes: int = 0
    now: float = BEGINS
    registered: Peer = USER
    until_ms: int = round(UNTIL * 1000)
    secret: bytes = b"s" * 32
    out: list[Out] = field(default_factory=list)
    into_ap: list[tuple[float, bytes, Peer]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.trouble.seed)  # noqa: S311 - a network's dice
        self._under_way: list[tuple[float, int, bytes, Peer, bool]] = []
        self._recorded: list[bytes] = []
        budget = (self.max_kbit or ap_kbit(self.phases), self.max_bytes or ap_bytes(self.phases))
        of_ap = ApOrder(
            ID, KEY, 30300, None, ip_address(self.registered.ip), 0, round(BEGINS * 1000), round(UNTIL * 1000), *budget
        )
        of_user = UserOrder(ID, self.key, AP.ip, AP.port, of_ap.from_ms, self.until_ms, self.phases)
        self.ap = ApTalk(of_ap, self._from_ap, Clock(0), self.secret)
        self.user = UserTalk(of_user, AP, self._from_user, Clock(0))

    def _from_ap(self, packet: bytes, to: Peer, whole: bool) -> Sent:
        is_first = packet[:5] not in {one.packet[:5] for one in self.out}
        self.out.append(Out(self.now, packet, to))
        is_lost = to != USER or (whole and len(packet) + 28 > self.trouble.mtu)
        is_begun_lost = self.trouble.loses_begun and is_first and packet[:5] == BEGUN
        self._send(packet, USER, to_ap=False, lost=is_lost or is_begun_lost)
        return Sent.SENT

    def _from_user(self, packet: bytes, _to: Peer, whole: bool) -> Sent:
        if whole and len(packet) + 28 > self.trouble.mtu:
            return Sent.TOO_BIG
        self._send(packet, USER, to_ap=True)
        return Sent.SENT

    def _send(self, packet: bytes, source: Peer, *, to_ap: bool, lost: bool = False) -> None:
        trouble, dice = self.trouble, self._dice
        self._recorded.append(packet)
        for _ in range(1 + (dice.random() < trouble.twice)):
            if not lost and dice.random() >= trouble.loss:
                self._deliver(packet, source, to_ap, 0.005 + dice.random() * trouble.late_s)

    def _deliver(self, packet: bytes, source: Peer, to_ap: bool, after_s: float) -> None:
        heappush(self._under_way, (self.now + after_s, len(self._recorded), packet, source, to_ap))

    def _attack(self) -> None:
        if self._recorded and self._dice.random() < self.trouble.replay:
            source = self._dice.choice([USER, VICTIM, Peer(USER.ip, 50001)])
            heappush(self._under_way, (self.now, 0, self._dice.choice(self._recorded), source, True))

    def run(self, until: float = UNTIL + 5) -> tuple[Report, Report]:
        """The reports of both ends: the attachment point's, the user's."""
        while self.now < until and not (
            self.ap.is_over and (self.user.is_over or self.now > self.trouble.user_dies_at)
        ):
            self._attack()
            while self._under_way and self._under_way[0][0] <= self.now:
                _, _, packet, source, to_ap = heappop(self._under_way)
                if to_ap:
                    self.into_ap.append((self.now, packet, source))
                    self.ap.receive(self.now, packet, source)
                elif self.now < self.trouble.user_dies_at:
                    self.user.receive(self.now, packet, AP)
            self.ap.step(self.now)
            if self.now < self.trouble.user_dies_at:
                self.user.step(self.now)
            self.now += STEP_S
        return self.ap.report(), self.user.report()

    def data(self) -> list[Out]:
        return [one for one in self.out if one.is_data]


def check_bounds(world: World) -> None:
    """What holds whatever happens."""
    data = world.data()
    assert all(one.to == world.registered for one in data)
    assert all(BEGINS <= one.at < UNTIL for one in world.out)
    assert sum(len(one.packet) for one in data) <= (world.max_bytes or ap_bytes(world.phases))
    kbit = world.max_kbit or ap_kbit(world.phases)
    frames = [(one.at, frame_bytes(len(one.packet), 4)) for one in data]
    for first in range(0, len(frames), 7):
        sent = 0
        for at, size in frames[first:]:
            sent += size
            assert sent <= (at - frames[first][0]) * kbit * 125 + kbit * 12.5 + 2 * 1514 + 1
    for one in world.out:  # the opening: to no address more than came from there
        if len(one.packet) == HELLO_AND_SO_ON and not one.is_data:
            came = sum(len(packet) for at, packet, source in world.into_ap if source == one.to and at <= one.at)
            answered = sum(len(other.packet) for other in world.out if other.to == one.to and other.at <= one.at)
            assert answered <= came or data


def test_a_test_on_a_clear_network_completes_and_counts_everything() -> None:
    ap, user = World(Trouble()).run()
    assert (ap.outcome, ap.why, user.outcome, user.why) == (COMPLETED, "", COMPLETED, "")
    assert (ap.peer, user.peer) == ("192.0.2.11:50000", "192.0.2.1:30300")
    for mine, theirs in zip(ap.phases, user.phases, strict=True):
        assert (mine.sent_packets, mine.sent_bytes) == (theirs.received_packets, theirs.received_bytes)
        assert (theirs.sent_packets, theirs.sent_bytes) == (mine.received_packets, mine.received_bytes)
        assert (mine.lost_packets, theirs.lost_packets, mine.reordered_packets) == (0, 0, 0)
        assert mine.mtu == theirs.mtu
        assert sum(row[0] for row in mine.seconds) == mine.sent_packets
    stream, back, echo, mtu = user.phases
    assert (stream.received_packets, stream.received_bytes) == (24, 12_000)  # 542 bytes each 43.4 ms, for 1 s
    assert (back.sent_packets, echo.sent_packets, echo.received_packets) == (12, 4, 4)
    assert echo.rtt_us is not None
    assert 10_000 <= echo.rtt_us[0] <= echo.rtt_us[2] <= 30_000
    assert mtu.mtu == (1500, 1500)


def test_data_of_a_phase_whose_begun_is_lost_is_counted_from_its_first_packet() -> None:
    ap, user = World(Trouble(loses_begun=True), phases=(TO_USER,)).run()
    assert (ap.phases[0].sent_packets, user.phases[0].received_packets) == (24, 24)
    assert user.phases[0].begins_at_ms - ap.phases[0].begins_at_ms <= 20


def test_the_path_mtu_is_found_each_way_and_what_blocks_is_said() -> None:
    world = World(Trouble(mtu=1400))
    ap, user = world.run()
    assert (ap.outcome, ap.phases[3].mtu, user.phases[3].mtu) == (COMPLETED, (1400, 1400), (1400, 1400))
    smaller = "From here, packets of more than 1400 bytes do not pass: the interface of this host has a smaller MTU."
    assert world.user.hints(is_told=False) == [smaller]


@settings(max_examples=60)
@given(
    st.builds(
        Trouble,
        loss=st.sampled_from([0.0, 0.1, 0.3, 0.6]),
        twice=st.sampled_from([0.0, 0.5, 1.0]),
        late_s=st.sampled_from([0.0, 0.05, 0.5]),
        replay=st.sampled_from([0.0, 0.3, 1.0]),
        user_dies_at=st.sampled_from([float("inf"), 10.3, 10.9, 11.6]),
        seed=st.integers(0, 2**32),
    ),
    st.sampled_from([0, 1_000, 3_000]),
)
def test_no_trouble_moves_data_elsewhere_or_beyond_a_bound(trouble: Trouble, max_bytes: int) -> None:
    world = World(trouble, max_bytes=max_bytes)
    ap, user = world.run()
    check_bounds(world)
    assert world.ap.is_over
    if not trouble.loss:  # who sees a report that is lost can hand it in later: that is a new one
        heard_until = trouble.user_dies_at + trouble.late_s + 0.02
        assert all(one.at <= heard_until + SILENCE_S for one in world.data())
    for mine, theirs in zip(ap.phases, user.phases, strict=False):
        assert theirs.received_packets <= mine.sent_packets
        assert mine.received_packets <= theirs.sent_packets
    if trouble.loss < 0.3 and trouble.late_s < 0.5 and trouble.user_dies_at > UNTIL and not max_bytes:
        assert (ap.outcome, user.outcome) == (COMPLETED, COMPLETED)


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.3]))
def test_whoever_has_not_answered_the_challenge_gets_no_data(seed: int, loss: float) -> None:
    """The registered address is a victim's: the attacker has the key, sends from elsewhere and in the victim's name,
    and sees no answer that goes to the victim."""
    world = World(Trouble(seed=seed, loss=loss, replay=1.0), registered=VICTIM)
    ap, user = world.run()
    assert (ap.outcome, user.outcome, world.data()) == (NOBODY, NOBODY, [])
    check_bounds(world)


@pytest.mark.parametrize("now", [BEGINS - 6, UNTIL + 0.01], ids=["early", "late"])
def test_who_is_early_or_late_gets_no_answer_at_all(now: float) -> None:
    world = World(Trouble(), now=now, until_ms=round(now * 1000) + 10_000)
    world.run(until=now + 5.5)
    assert (world.user.outcome, world.out) == (NOBODY, [])


def test_a_response_that_is_sent_again_from_another_port_or_later_opens_nothing() -> None:
    world = World(Trouble())
    world.run()
    again = World(Trouble(), secret=b"t" * 32)  # another run has another one
    for at, packet, source in world.into_ap:
        again.now = at
        for one in (source, Peer(USER.ip, 50001), VICTIM):
            again.ap.receive(at, packet, one)
            again.ap.step(at)
    assert again.ap.peer is None
    assert again.data() == []


@pytest.mark.parametrize("replay", [0.0, 1.0])
@pytest.mark.parametrize("dies_at", [10.1, 10.5])
def test_nothing_is_sent_two_seconds_after_the_last_report(dies_at: float, replay: float) -> None:
    """The user's end reports every 200 ms, so its last one is as old as that. One that is sent again is none."""
    long = (Phase(0, "stream", "to_user", 100, 500, 8000, 0),)
    world = World(Trouble(user_dies_at=dies_at, replay=replay), phases=long)
    ap, _ = world.run()
    assert dies_at + 1.7 < world.data()[-1].at <= dies_at + 2.03
    assert (ap.outcome, ap.why) == (CUT, "No report arrived for 2 s.")
    assert world.now < dies_at + 3.3


def test_a_sender_from_the_user_stops_when_the_attachment_points_end_is_silent() -> None:
    world = World(Trouble(), phases=(Phase(0, "stream", "from_user", 100, 500, 8000, 0),))
    world.run(until=11.0)
    world.ap.outcome = "killed"
    _, user = world.run()
    assert user.outcome == CUT
    assert sum(row[0] for row in user.phases[0].seconds[:3]) == user.phases[0].sent_packets


def test_a_phase_above_the_rate_is_refused() -> None:
    world = World(Trouble(), max_kbit=99)
    ap, user = world.run()
    assert (ap.outcome, user.outcome, world.data()) == (REFUSED, REFUSED, [])
    assert ap.why == "A phase of 100 kbit/s exceeds the 99 kbit/s of this test."
    assert (
        user.why == "The attachment point's end refused phase 0: it exceeds what was granted, or cannot be run there."
    )
