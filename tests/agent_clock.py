"""The agent's loop in a test: time that passes only while somebody waits, and a service made of a list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from ap_agent.agent.agent import Agent
from ap_agent.agent.background import Background
from ap_agent.agent.bundle import read_bundle
from ap_agent.agent.fetch import FetchResult, Have, ReceiptAnswer
from ap_agent.agent.loop import Loop
from ap_agent.agent.store import Store
from ap_agent.common.log import get_logger
from ap_agent.common.settings import Settings
from ap_agent.common.systemd import Notifier
from tests.agent_bundles import HOST_ID, SECRET, SERVICE_KEYS, bundle_bytes, entry
from tests.agent_limiter import T0, FakeLimiter

READ_PAUSE_S = 0.2  # the loop reads a state that changes all the time no more often
V7 = bundle_bytes()
V8 = bundle_bytes({"1": entry(900)}, version="1.18", limits_version=8)


def settings_in(folder: Path) -> Settings:
    """Of an agent with a service that holds no question open; everything is below `folder`."""
    return Settings(
        url="https://service.example",
        host_id=HOST_ID,
        host_secret=SECRET,
        service_keys=SERVICE_KEYS,
        state_dir=folder / "state",
        run_dir=folder / "run",
        limiter_state_dir=folder / "limiter",
        limiter_run_dir=folder / "limiter-run",
        long_poll_s=0,
    )


@dataclass
class Clock:
    """Time that passes only while somebody waits. `set_by_s`: how far the wall clock was set."""

    now: float = 1000.0
    waits: list[float] = field(default_factory=list)
    set_by_s: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> datetime:
        return T0 + timedelta(seconds=self.now - 1000 + self.set_by_s)

    def wait(self, seconds: float) -> None:
        assert seconds > 0
        self.waits.append(seconds)
        self.now += seconds


@dataclass
class FakeClient:
    """Answers from a list; the last one is repeated. An exception in it is raised."""

    answers: list[FetchResult | Exception]
    clock: Clock
    asked: list[tuple[float, Have | None]] = field(default_factory=list)
    receipts: list[tuple[float, Mapping[str, Any]]] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)  # how long each question might be held open
    closed: bool = False
    receipt_answers: list[ReceiptAnswer] = field(default_factory=lambda: [ReceiptAnswer()])  # likewise
    clock_skew_ms: int | None = None
    results: list[tuple[float, Mapping[str, Any]]] = field(default_factory=list)
    result_refusals: list[Exception] = field(default_factory=list)  # raised first

    @property
    def secret(self) -> str:
        return SECRET

    def use_secret(self, secret: str | None) -> None:
        """Taken."""

    def fetch_config(self, have: Have | None, *, wait_s: int = 0) -> FetchResult:
        self.asked.append((self.clock.now, have))
        self.waits.append(wait_s)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def send_receipt(self, receipt: Mapping[str, Any]) -> ReceiptAnswer:
        self.receipts.append((self.clock.now, receipt))
        return self.receipt_answers.pop(0) if len(self.receipt_answers) > 1 else self.receipt_answers[0]

    def send_usage(self, data: bytes) -> None:
        """Taken."""

    def send_test_result(self, result: Mapping[str, Any]) -> None:
        self.results.append((self.clock.now, result))
        if self.result_refusals:
            raise self.result_refusals.pop(0)

    def close(self) -> None:
        self.closed = True


def middle(low: float, high: float) -> float:
    return (low + high) / 2


class AtOnce(Background):
    """Requests that have their outcome as soon as they are sent: a service that answers in no time."""

    def _begin(self, run: Callable[[], None]) -> None:
        run()


@dataclass
class World:
    """An agent with a limiter beside it, in time that passes only while somebody waits."""

    settings: Settings
    client: FakeClient | None
    clock: Clock
    limiter: FakeLimiter
    loop: Loop

    @property
    def agent(self) -> Agent:
        return self.loop.agent

    @property
    def codes(self) -> list[str]:
        return [one.code for one in self.agent.problems]

    @property
    def receipts(self) -> list[Mapping[str, Any]]:
        assert self.client is not None
        return [receipt for _, receipt in self.client.receipts]

    def run_for(self, seconds: float) -> None:
        """Steps until that much time has passed. The limiter is as quick as its file's inotify."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            moment = self.loop.step()
            due = self.clock.now + READ_PAUSE_S if self.limiter.work() else moment
            self.clock.wait(max(0.001, min(due, end) - self.clock.now))

    def step(self) -> None:
        """What happens without any time."""
        self.run_for(0.25)


def world_of(
    settings: Settings, client: FakeClient | None, clock: Clock, *, limiter: FakeLimiter | None = None, **options: Any
) -> World:
    """Before its start; `Loop.start` is the test's."""
    agent = Agent(
        settings, client, get_logger(), now=clock.wall, monotonic=clock.monotonic, uptime=lambda: int(clock.now)
    )
    options.setdefault("notifier", Notifier({}))
    options.setdefault("uniform", middle)
    options.setdefault("background", AtOnce)
    loop = Loop(agent, get_logger(), monotonic=clock.monotonic, wait=clock.wait, **options)
    return World(settings, client, clock, limiter or FakeLimiter(settings, clock.wall), loop)


def begun(settings: Settings, client: FakeClient, *, data: bytes = V7, **options: Any) -> World:
    """With this configuration stored, and in the limiter's kernel."""
    Store(settings.state_dir).save(read_bundle(data, host_id=HOST_ID))
    world = world_of(settings, client, client.clock, **options)
    world.loop.start()
    world.limiter.work()
    return world


def store_v7(settings: Settings) -> None:
    Store(settings.state_dir).save(read_bundle(V7, host_id=HOST_ID))
