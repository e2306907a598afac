"""What is uploaded is what was counted, to the byte: through a flood, kills of agent and limiter, and a link that goes.

The witness is the map's own memory; the service is a stand-in that keeps what it gets (`tests.usage_ledger`).

    flood ──▶ 192.0.2.11 (u1)   link 1        flood ──▶ 192.0.2.12 (u1)   link 2
    flood ◀── the same, both links
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ap_agent.dataplane.program import LAYOUT
from ap_agent.usage.batch import ms_text
from measuring.netns import Namespace
from tests.agent_service import Answer, Handler, status, stored
from tests.faults.agent.conftest import World, Zygote, a_world, eventually
from tests.support.namespaces import a_lab
from tests.usage_flood import Ends, Flood, added, backlog, kernel
from tests.usage_ledger import Ledger, Sums

PREFIX = "slbwu"
LIMITS = {1: 2000, 2: 900}


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[Namespace, Namespace, Zygote]]:
    with a_lab(PREFIX) as lab:
        ap, user = lab.namespace("ap"), lab.namespace("u1")
        lab.veth(ap.nic("eth0", "192.0.2.1/24"), user.nic("eth0", "192.0.2.11/24", "192.0.2.12/24"))
        yield ap, user, Zygote(ap)


def ends(user: Namespace, link: int) -> Ends:
    return Ends(user, ("192.0.2.1", 51000 + link), (f"192.0.2.{10 + link}", 50000 + link))


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def world(place: tuple[Namespace, Namespace, Zygote], tmp_path: Path, ledger: Ledger) -> Iterator[World]:
    host, _, zygote = place
    with a_world(host, zygote, tmp_path, usage_interval_s=1, log_level="debug") as found:
        found.service.answers["/usage"] = kept_in(ledger)
        yield found


def counted(world: World) -> Sums:
    return kernel(world.zygote.sees(world.folder / "bpf" / "maps" / f"lanes-{LAYOUT}"), world.host)


def kept_in(ledger: Ledger, failing: int = 0) -> Answer:
    """Keeps every upload; answers the first `failing` ones as if it had not."""
    left = [failing]

    def answer(handler: Handler) -> None:
        assert handler.request_seen.headers["Content-Encoding"] == "gzip"
        ledger.take(handler.request_seen.body)
        if left[0] > 0:
            left[0] -= 1
            return status(503)(handler)
        return stored()(handler)

    return answer


# --- the agent --------------------------------------------------------------------------------------------------------


def sampled_at(world: World) -> str:
    health: dict[str, Any] = json.loads((world.folder / "run" / "health.json").read_bytes())
    return (health.get("usage") or {}).get("sampled_at") or ""


def sample(world: World) -> None:
    """Another one, begun after now."""
    now = ms_text(int(time.time() * 1000) + 1)
    eventually(lambda: sampled_at(world) > now, world.said)


def restart(world: World, pid: int, number: int = signal.SIGTERM) -> int:
    os.kill(pid, number)
    assert world.ended(pid) in {0, -signal.SIGKILL}
    return world.start()


# --- the tests --------------------------------------------------------------------------------------------------------


def test_what_is_uploaded_is_what_the_program_counted_to_the_byte(
    world: World, place: tuple[Namespace, Namespace, Zygote], ledger: Ledger
) -> None:
    host, user, _ = place
    world.service.answers["/usage"] = kept_in(ledger, failing=2)
    world.offer(LIMITS)
    agent = world.start()
    eventually(lambda: world.enforces(LIMITS), world.said)
    eventually(lambda: sampled_at(world), world.said)
    with Flood(host, {link: ends(user, link) for link in LIMITS}) as flood:
        sample(world)
        agent = restart(world, agent, signal.SIGKILL)  # in the middle of it
        sample(world)
        world.kill(world.limiter)
        before = counted(world)[1, "to_user"][0]
        eventually(lambda: counted(world)[1, "to_user"][0] > before + 50_000)  # nobody looks, and it counts
        world.start_limiter()
        sample(world)

        flood.paused.add(2)
        eventually(lambda: backlog(host, 2) == 0)
        gone = {key: one for key, one in counted(world).items() if key[0] == 2}
        version = world.offer({1: LIMITS[1]})
        eventually(lambda: world.told(version), world.said)
        world.kill(world.limiter)  # right after it said what the link's last counters were
        agent = restart(world, agent, signal.SIGKILL)
        world.start_limiter()
        version = world.offer(LIMITS)
        eventually(lambda: world.told(version), world.said)
        flood.paused.clear()
        sample(world)
        world.kill(world.limiter)
        agent = restart(world, agent, signal.SIGKILL)
        world.start_limiter()
        sample(world)
    eventually(lambda: backlog(host, 1, 2) == 0)
    expected = added(gone, counted(world))
    assert all(one[0] > 50_000 and one[2] > 0 for one in gone.values()), gone
    sample(world)
    sample(world)
    restart(world, agent)  # what was open is closed and sent

    eventually(lambda: ledger.sums() == expected, lambda: f"{ledger.sums()} is not {expected}\n{world.said()}")
    assert ledger.duplicates >= 2
    names = [key[:2] for key in ledger.segments()]
    assert {key: names.count(key) for key in names} == {
        (1, "to_user"): 1, (1, "from_user"): 1, (2, "to_user"): 2, (2, "from_user"): 2
    }  # fmt: skip
