"""A power cut at any moment of storing a bundle, on a disk that keeps what was synced and any part of the rest.

What the agent really did is recorded (`tracer`) and replayed on a model of the disk (`disk`), one step at a time. After
each step every tree that the disk may hold is written out, and a start from it is tried: what it finds, and whether it
believes the service's next bundle, which a key of the next generation signed.
"""

from __future__ import annotations

import base64
import itertools
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ap_agent.agent.bundle import accept_bundle
from ap_agent.agent.settings import load_settings
from ap_agent.agent.store import Store
from ap_agent.common.errors import AgentError
from ap_agent.document.trust import trust_now
from tests.agent_bundles import HOST_ID
from tests.faults.agent.conftest import World
from tests.faults.agent.disk import Disk, fingerprint, write_tree
from tests.faults.agent.tracer import Effect, needs_tracer

pytestmark = [pytest.mark.kernel, needs_tracer]


def recorded(effects: list[dict[str, Any]]) -> list[Effect]:
    return [Effect(**{**one, "data": base64.b64decode(one["data"])}) for one in effects]


def believes(folder: Path, world: World) -> bool:
    """Whether an agent that starts from there takes what the service has now."""
    settings, store = load_settings(world.config, {}), Store(folder)
    trust = trust_now(settings, store.load_trust(), store.load(host_id=HOST_ID))
    try:
        accept_bundle(world.offered, settings, trust, store.load_acceptance, datetime.now(UTC))
    except AgentError as exc:
        pytest.fail(exc.message)
    return True


def loaded(folder: Path) -> str | None:
    """The version that a start from there finds; the reason where it finds none."""
    try:
        bundle = Store(folder).load(host_id=HOST_ID)
    except AgentError as exc:
        return exc.message
    return bundle.version if bundle is not None else None


def test_after_a_power_cut_the_old_bundle_or_the_new_is_there_whole(world: World, tmp_path: Path) -> None:
    old = world.offer({1: 500})
    assert world.once() == 0, world.said()
    new = world.offer({1: 900, 2: 300})
    disk = Disk(world.state)
    run = world.watched(is_recording=True)
    assert run["exit_code"] == 0, world.said()
    trees: dict[tuple[object, ...], str | None] = {}
    folders = itertools.count()
    steps = 0
    found: set[str | None] = {old}
    for effect in recorded(run["effects"]):
        steps += disk.apply(effect)
        for tree in disk.after_power_cut():
            key = fingerprint(tree)
            if key not in trees:
                folder = tmp_path / f"after-{next(folders)}"
                write_tree(tree, folder)
                trees[key] = loaded(folder)
            found.add(trees[key])
            assert trees[key] in {old, new}, (str(effect), trees[key])
        if effect.path.startswith("socket:") and effect.call == "sendto" and steps:
            found.discard(old)  # the kernel is changed: from here on nothing may lead back
    assert found == {new}, "what the kernel has is durable"
    assert loaded(world.state) == new
    newest = Store(world.state).load(host_id=HOST_ID)
    assert newest is not None
    world.offer({1: 700})
    for number in range(len(trees)):  # and from each of these places the agent can go on
        assert believes(tmp_path / f"after-{number}", world)
        Store(tmp_path / f"after-{number}").save(newest)
        assert loaded(tmp_path / f"after-{number}") == new
    print(f"  measured: steps={steps} trees={len(trees)}")
