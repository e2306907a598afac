"""The agent's loop in a test: time that passes only while somebody waits, and a service made of a list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ap_agent.agent.cycle import Agent
from ap_agent.agent.fetch import FetchResult, Have, ReceiptAnswer
from ap_agent.agent.loop import Loop
from ap_agent.agent.store import Store
from ap_agent.agent.waiting import Errands
from ap_agent.common.log import get_logger
from ap_agent.common.settings import Settings
from ap_agent.common.systemd import Notifier
from ap_agent.document.bundle import read_bundle
from tests.agent_bundles import HOST_ID, SECRET, SERVICE_KEYS, bundle_bytes, entry
from tests.agent_engine import FakeEngine

V7 = bundle_bytes()
V8 = bundle_bytes({"1": entry(900)}, version="1.18", limits_version=8)


def settings_in(folder: Path) -> Settings:
    """Of an agent with a service that holds no question open, whose state and lock are below `folder`."""
    return Settings(
        url="https://service.example",
        host_id=HOST_ID,
        host_secret=SECRET,
        service_keys=SERVICE_KEYS,
        state_dir=folder / "state",
        run_dir=folder / "run",
        long_poll_s=0,
    )


@dataclass
class Clock:
    """Time that passes only while somebody waits. `then` happens at its moment, during a wait."""

    now: float = 1000.0
    waits: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

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
    secrets: list[str | None] = field(default_factory=list)
    closed: bool = False
    receipt_answers: list[ReceiptAnswer] = field(default_factory=lambda: [ReceiptAnswer()])  # likewise
    clock_skew_ms: int | None = None

    def use_secret(self, secret: str | None) -> None:
        self.secrets.append(secret)

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

    def confirm_config(self, version: str) -> None:
        raise AssertionError("not asked for")

    def close(self) -> None:
        self.closed = True


def middle(low: float, high: float) -> float:
    return (low + high) / 2


class AtOnce(Errands):
    """Errands that have their outcome as soon as they are sent: a service that answers in no time."""

    def _begin(self, run: Callable[[], None]) -> None:
        run()


def loop_of(settings: Settings, engine: FakeEngine, client: FakeClient | None, clock: Clock, **options: Any) -> Loop:
    agent = Agent(settings, engine, client, get_logger(), uptime=lambda: int(clock.now))
    options.setdefault("notifier", Notifier({}))
    options.setdefault("uniform", middle)
    options.setdefault("errands", AtOnce)
    return Loop(agent, get_logger(), monotonic=clock.monotonic, wait=clock.wait, **options)


def run_for(loop: Loop, clock: Clock, seconds: float) -> None:
    """Steps until that much time has passed."""
    end = clock.now + seconds
    while clock.now < end:
        moment = loop.step()
        clock.wait(max(0.001, min(moment, end) - clock.now))


def store_v7(settings: Settings) -> None:
    Store(settings.state_dir).save(read_bundle(V7, host_id=HOST_ID))
