"""The loss-controlled sender, on a path made of arithmetic: one bottleneck with a queue, both ends on one clock."""

from __future__ import annotations

from collections import deque

import pytest

from lab.measuring.newreno import INITIAL_WINDOW_PACKETS, NewReno

MS = 1_000_000
PACKET = 1200


class Path:
    """A bottleneck of `kbit` with room for so many packets, `delay_ms` each way; acknowledges every packet."""

    def __init__(self, kbit: int, *, room: int, delay_ms: int = 5) -> None:
        self.gap_ns = PACKET * 8 * 1_000_000 // kbit
        self.room = room
        self.delay_ns = delay_ms * MS
        self.free_at_ns = 0
        self.delivered: list[tuple[int, int]] = []  # when the sender hears of it, number
        self.waiting: deque[tuple[int, int, int]] = deque()  # when its acknowledgement is back, number, sent
        self.dropped = 0

    def carry(self, number: int, now_ns: int) -> None:
        queued = max(0, self.free_at_ns - now_ns) // self.gap_ns
        if queued >= self.room:
            self.dropped += 1
            return
        self.free_at_ns = max(self.free_at_ns, now_ns) + self.gap_ns
        self.waiting.append((self.free_at_ns + 2 * self.delay_ns, number, now_ns))


def drive(path: Path, seconds: float) -> NewReno:
    control = NewReno(PACKET)
    now_ns = 0
    while now_ns < seconds * 1000 * MS:
        while path.waiting and path.waiting[0][0] <= now_ns:
            back_ns, number, sent_ns = path.waiting.popleft()
            path.delivered.append((back_ns, number))
            control.on_ack([number], back_ns - sent_ns, now_ns)
        control.on_time(now_ns)
        while control.may_send(now_ns):
            path.carry(control.next_number, now_ns)
            control.on_sent(now_ns)
        now_ns += MS // 2
    return control


@pytest.mark.parametrize(("kbit", "room"), [(500, 5), (2_000, 10), (10_000, 25)])
def test_a_bottleneck_is_kept_busy(kbit: int, room: int) -> None:
    path = Path(kbit, room=room)
    control = drive(path, 6)
    steady = [at for at, _ in path.delivered if at >= 1000 * MS]
    assert len(steady) * path.gap_ns >= 0.9 * 5000 * MS
    assert control.reductions >= 1


def test_every_loss_is_noticed_and_nothing_else() -> None:
    path = Path(1_000, room=6)
    control = drive(path, 5)
    arrived = len(path.delivered) + len(path.waiting)
    assert control.next_number == arrived + path.dropped
    assert path.dropped - control.report()["lost"] in range(6)  # the newest may not be known yet
    assert path.dropped > 0


def test_silence_makes_two_probes_and_waits_twice_as_long_each_time() -> None:
    control = NewReno(PACKET)
    for _ in range(INITIAL_WINDOW_PACKETS):
        control.on_sent(0)
    first_ns = control.next_event_ns(0)
    assert first_ns == 333 * 3 * MS + 25 * MS  # the first guess of a round trip, four times half of it, the delay
    control.on_time(first_ns - 1)
    assert not control.may_send(first_ns - 1)
    control.on_time(first_ns)
    assert control.may_send(first_ns)
    control.on_sent(first_ns)
    assert control.may_send(first_ns)
    control.on_sent(first_ns)
    assert not control.may_send(first_ns)
    assert control.next_event_ns(first_ns) - first_ns == pytest.approx(2 * first_ns)
