"""Whatever happens during a test, a link that enforces well raises no alarm, and one that passes 1.3 times its limit
does: a virtual queue, packets at a rate, samples that are late, limits that change, senders that stop."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import pytest

from scionlab.linktests.sending_verdict import sending_verdict
from tests.linktests.test_sending_verdict import FRAME, PAYLOAD

STEP_MS, DURATION_MS = 20, 5000
BEGAN = {"to_user": 10_400, "from_user": 17_400}  # ms
END_MS = 26_000


class World(NamedTuple):
    limits: list[tuple[int, int]]  # from ms on: kbit/s
    sample_ms: list[int]
    stopped: range  # ms in which the sender is
    late_ms: int  # the user's end begins
    factor: float  # share of the limit that passes

    def limit(self, at_ms: int) -> int:
        return next(kbit for since, kbit in reversed(self.limits) if since <= at_ms)


def made_up(seed: int, factor: float) -> World:
    dice = random.Random(seed)  # noqa: S311 - no secret
    limit = dice.choice([1000, 3000])
    changes = [] if factor > 1 else [dice.randrange(9000, END_MS, 20) for _ in range(dice.choice([0, 1, 2]))]
    limits = [(0, limit), *((at, round(limit * dice.choice([0.5, 0.8, 2, 4]))) for at in sorted(changes))]
    sample_ms = [1000 * second + dice.choice([0, 0, 20, 200]) for second in range(8, END_MS // 1000)]
    begins = dice.randrange(9000, END_MS)
    stopped = range(begins, begins + (0 if factor > 1 else dice.choice([0, 300, 1500])))
    return World(limits, sample_ms, stopped, dice.choice([20, 300, 600]), factor)


def judged(world: World) -> Any:
    """Both directions at four times the first limit."""
    kbit = world.limits[0][1] * 4
    rows: list[list[Any]] = [[at, at, True] for at in world.sample_ms]
    planned, of_ap, of_user = [], [], []
    for number, (direction, began_ms) in enumerate(BEGAN.items()):
        begins_ms = began_ms + (world.late_ms if direction == "from_user" else 0)
        sent, received = [0] * 9, [0] * 9
        due = queue = passed = dropped = 0.0
        sample = 0
        for at in range(8000, END_MS, STEP_MS):
            while sample < len(rows) and rows[sample][0] <= at:
                side = ["0" * 16, world.limit(at), passed * FRAME, passed, dropped * FRAME, dropped, 0]
                rows[sample].append(side)
                sample += 1
            room = max(20_000, world.limit(at) * 12.5)
            drained = min(queue, world.limit(at) * world.factor * STEP_MS / 8)
            queue -= drained
            if at >= begins_ms:
                received[min(8, (at - (began_ms if direction == "from_user" else begins_ms)) // 1000)] += drained
            if begins_ms <= at < begins_ms + DURATION_MS:
                due += 0 if at in world.stopped else kbit * STEP_MS / 8 / FRAME
            while due >= 1:
                due -= 1
                sent[(at - begins_ms) // 1000] += 1
                is_admitted = queue <= room
                queue += FRAME * is_admitted
                passed, dropped = passed + is_admitted, dropped + (not is_admitted)
        one = {"number": number, "kind": "stream", "direction": direction, "kbit": kbit, "payload_bytes": PAYLOAD}
        one |= {"duration_ms": DURATION_MS, "count": 0}
        planned.append(one)
        sender = {**one, "begins_at_ms": began_ms, "seconds": [[n, n * PAYLOAD, 0, 0] for n in sent[:5]]}
        arrived = [int(sum(received[: at + 1]) / FRAME) - int(sum(received[:at]) / FRAME) for at in range(9)]
        receiver = {**one, "begins_at_ms": began_ms, "seconds": [[0, 0, n, n * PAYLOAD] for n in arrived]}
        of_ap.append(sender if direction == "to_user" else receiver)
        of_user.append(receiver if direction == "to_user" else sender)
    ends = [{"outcome": "completed", "phases": found} for found in (of_ap, of_user)]
    return sending_verdict(planned, rows, ap=ends[0], user=ends[1], is_ipv6=False)


@pytest.mark.parametrize("seeds", [range(30), range(30, 60)])
def test_a_link_that_enforces_well_raises_no_alarm(seeds: range) -> None:
    found = {seed: judged(made_up(seed, 1.0)) for seed in seeds}
    codes = {seed: {side.code for side in one.sides} for seed, one in found.items()}
    wrong = {seed: found[seed].text for seed, one in codes.items() if one & {"over_the_limit", "limited_elsewhere"}}
    assert wrong == {}


def test_a_link_that_passes_1_3_times_its_limit_is_always_found() -> None:
    codes = {seed: [side.code for side in judged(made_up(seed, 1.3)).sides] for seed in range(10)}
    assert {seed: one for seed, one in codes.items() if one != ["over_the_limit"] * 2} == {}
