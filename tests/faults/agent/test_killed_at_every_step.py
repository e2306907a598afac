"""kill -9 before every effect of either program, from the request to the receipt, with the real kernel and a service.

The agent asks the service, unpacks, checks, stores, hands over and sends its receipt; the limiter verifies,
changes the kernel, reads it back, says so and keeps the document. Each is killed before each of its system calls that
somebody else can see (`tracer`), while a new bundle is taken up: one link gets another rate, one goes, one comes. After
each death the kernel has every limit that lasts, at its old or its new rate; what is stored is the old bundle or the
new one, whole; and the next start enforces the new one, and a receipt says so.

Each bundle also retires a key of the service and brings a new one, so that the next is believed only where the keys and
the bundle on the disk belong together. The next start is killed as well, at a random effect, and the one after it
converges. Every fifth effect is cut, from a random one on; with SLBW_EVERY_CUT=1 in the environment each, in both
directions of the change.
"""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ap_agent.document.handover import FILE_NAME
from tests.faults.agent.conftest import World, eventually
from tests.faults.agent.tracer import needs_tracer

EVERY_CUT = bool(os.environ.get("SLBW_EVERY_CUT"))
pytestmark = [needs_tracer, pytest.mark.timeout(1500 if EVERY_CUT else 300)]

STRIDE = 5
# Link 1 changes its rate between the two, 2 and 3 come and go, 4 stays as it is.
EVEN, ODD = {1: 500, 2: 300, 4: 800}, {1: 900, 3: 700, 4: 800}


def limits_of(number: int) -> dict[int, int]:
    return ODD if number % 2 else EVEN


def check_between(world: World, where: str) -> None:
    """What must hold at any moment of a change between the two."""
    kernel = world.limits()
    for direction in (0, 1):
        rates = {link: pair[direction] for link, pair in kernel.items()}
        assert rates.get(1) in {500, 900}, (where, kernel)
        assert rates.get(4) == 800, (where, kernel)
        assert rates.get(2, -1) in {300, -1}, (where, kernel)
        assert rates.get(3, -1) in {700, -1}, (where, kernel)


def _some(effects: int) -> Iterable[int]:
    return range(random.randrange(STRIDE), effects, STRIDE)  # noqa: S311 - so that many runs see every place


def test_agent_killed_before_any_effect_leaves_a_good_state_and_the_next_start_converges(world: World) -> None:
    world.offer(limits_of(0))
    assert world.once() == 0, world.said()
    assert world.enforces(limits_of(0))
    old = world.offer(limits_of(1))
    whole = world.watched()
    assert whole["exit_code"] == 0, world.said()
    # The store, the hand-over, the way to the service: all of them are among the effects.
    kinds = set(whole["calls"])
    assert {"write", "fsync", "rename", "connect"} <= kinds, kinds
    assert handed(world) == old
    effects = len(whole["calls"])
    cuts = [cut for cut in range(effects) for _ in range(2)] if EVERY_CUT else list(_some(effects))
    for count, cut in enumerate(cuts):
        new = world.offer(limits_of(count))
        died = world.watched(kill_before=cut)
        where = f"killed before effect {cut} of {effects}: {died['killed_at']}"
        check_between(world, where)
        assert world.stored() in {old, new}, where
        again = world.watched(kill_before=random.randrange(effects))  # noqa: S311 - any moment will do
        where += f", then before {again['killed_at']}"
        check_between(world, where)
        assert world.once() == 0, (where, world.said())
        assert world.enforces(limits_of(count)), (where, world.limits())
        assert world.stored() == new, where
        assert world.told(new), where
        old = new


def test_limiter_killed_before_any_effect_keeps_every_limit_and_the_next_start_converges(world: World) -> None:
    world.configure(usage_interval_s=1)  # it writes its state each second, so that every cut is reached
    old = world.offer(limits_of(0))
    agent = world.start()
    eventually(lambda: world.told(old), world.said)
    # Its own copy comes after that. Without it, it would not know the key that signs the next one.
    eventually(lambda: version_in(world.folder / "limiter-state") == old, world.said)
    world.kill(world.limiter)
    whole = watch_it_take_up(world, limits_of(1))
    kinds = set(whole["calls"])
    assert {"sendto", "bpf", "write", "fsync", "rename"} <= kinds, kinds
    effects = len(whole["calls"])
    cuts = [cut for cut in range(effects) for _ in range(2)] if EVERY_CUT else list(_some(effects))
    for count, cut in enumerate(cuts):
        new = world.offer(limits_of(count))
        eventually(lambda: handed(world) == new, world.said)  # noqa: B023
        died = world.watched("run", "limiter", kill_before=cut)
        where = f"killed before effect {cut} of {effects}: {died['killed_at']}"
        assert died["exit_code"] is None, where
        check_between(world, where)
        limiter = world.start_limiter()
        eventually(lambda: world.enforces(limits_of(count)), lambda: (where, world.limits(), world.said()))  # noqa: B023
        eventually(lambda: world.told(new), lambda: (where, world.said()))  # noqa: B023
        world.stop(limiter)
    world.stop(agent)


def watch_it_take_up(world: World, limits: dict[int, int]) -> dict[str, Any]:
    """All effects of a limiter from its start until it has said that the new bundle is in force."""
    new = world.offer(limits)
    eventually(lambda: handed(world) == new, world.said)
    found: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: found.append(world.watched("run", "limiter")))
    thread.start()
    try:
        eventually(lambda: world.told(new), world.said)
    finally:  # who waits for it holds the way to all programs
        world.end_watched()
        thread.join()
    return found[0]


def handed(world: World) -> str | None:
    return version_in(world.state)


def version_in(folder: Path) -> str | None:
    """Of the document in a folder of the agent's, which hands it over there, or of the limiter's own."""
    path = folder / FILE_NAME
    if not path.exists():
        return None
    said = json.loads(json.loads(path.read_bytes().splitlines()[0])["signed"])  # the head line
    return f"{said['generation']}.{said['config_version']}"
