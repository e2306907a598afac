"""Each file of the state directory damaged in each way while the agent is away.

With the service in reach the next start repairs it; without, what is in the kernel stays and the damage is named.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent_service import status
from tests.faults.agent.conftest import World

OLD, NEW = {1: 500, 2: 300}, {1: 900, 3: 700}


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)  # noqa: S311 - any bit will do
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def turn_into_a_folder(path: Path) -> None:
    path.unlink()
    (path / "x").mkdir(parents=True)


def turn_into_a_link(path: Path) -> None:
    path.unlink()
    elsewhere = path.parent.parent / "elsewhere"
    elsewhere.write_text("not ours\n")
    path.symlink_to(elsewhere)


def make_endless(path: Path) -> None:
    """A sparse file of a gigabyte: whoever reads it whole is sorry."""
    with path.open("r+b") as stream:
        stream.truncate(1 << 30)


def delete(path: Path) -> None:
    path.unlink()


DAMAGES = (flip_a_bit, cut, turn_into_a_folder, turn_into_a_link, make_endless, delete)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_bundle_is_named_and_replaced_and_the_limits_stay_meanwhile(
    world: World, damage: Callable[[Path], None]
) -> None:
    world.offer(OLD)
    assert world.once() == 0, world.said()
    answer = world.service.answers["/config"]
    damage(world.state / "scionlab-bundle")
    world.service.answers["/config"] = status(503)
    assert world.once() == 1, world.said()
    assert ("state_unusable" in world.said()) == (damage is not delete)
    assert world.enforces(OLD)
    world.service.answers["/config"] = answer
    assert world.once() == 0, world.said()
    assert world.stored() == f"1.{world.number}"
    new = world.offer(NEW)
    assert world.once() == 0, world.said()
    assert world.enforces(NEW)
    assert world.told(new)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_trust_is_repaired_from_the_bundle(world: World, damage: Callable[[Path], None]) -> None:
    """The keys rotated since the enrolment: the stored bundle still says which count now."""
    for _ in range(2):
        world.offer(OLD)
        assert world.once() == 0, world.said()
    damage(world.state / "trust.json")
    new = world.offer(NEW)
    assert world.once() == 0, world.said()
    assert world.enforces(NEW)
    assert world.told(new)
