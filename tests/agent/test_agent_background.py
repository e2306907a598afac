"""Waiting for a moment, a wake-up, a descriptor or the end of a request: real threads and pipes."""

from __future__ import annotations

import _thread
import os
import signal
import threading
import time

import pytest

from ap_agent.agent.background import Background
from ap_agent.common.errors import AgentError
from ap_agent.common.waker import Waker

LONG_S = 60.0  # nobody waits so long unless something is broken


def timed(waker: Waker, seconds: float, listen_to: int | None = None) -> float:
    began = time.monotonic()
    waker.wait(seconds, listen_to=[] if listen_to is None else [listen_to])
    return time.monotonic() - began


def test_a_wake_up_just_before_the_wait_ends_it_and_only_it() -> None:
    waker = Waker()
    for _ in range(100_000):  # more than a pipe holds
        waker.wake()
    while timed(waker, 0.2) < 0.2:
        pass  # what the pipe held is read in pieces
    assert timed(waker, 0.05) >= 0.05


def test_a_descriptor_ends_the_wait_only_while_it_is_listened_to() -> None:
    waker = Waker()
    reader, writer = os.pipe()
    os.write(writer, b"x")
    assert timed(waker, LONG_S, reader) < LONG_S / 2
    assert timed(waker, 0.05) >= 0.05
    for one in (reader, writer):
        os.close(one)


def test_a_signal_just_before_the_wait_ends_it() -> None:
    waker, seen = Waker(), list[str]()
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    try:
        waker.on_signals(lambda: seen.append("stop"), lambda: seen.append("reload"))
        for number in numbers:
            os.kill(os.getpid(), number)
            assert timed(waker, LONG_S) < LONG_S / 2
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    assert seen == ["stop", "stop", "reload"]


def finished(background: Background, waker: Waker) -> None:
    """`send` hands over itself what has ended before it returns."""
    while not background.is_free:
        if not background.has_outcome:
            waker.wait(LONG_S)
        background.finish()


def test_an_request_runs_beside_and_its_outcome_is_handed_over_here() -> None:
    waker = Waker()
    background = Background(waker.wake)
    seen: list[object] = []
    may_end = threading.Event()

    def request() -> int:
        assert may_end.wait(60)
        return threading.get_ident()

    background.send(request, lambda outcome: seen.extend([outcome, threading.get_ident()]))
    assert not background.is_free
    may_end.set()
    finished(background, waker)

    there, here = seen
    assert here == threading.get_ident()
    assert there != here
    assert background.is_free
    background.finish()  # nothing more comes of it
    assert len(seen) == 2


def test_no_thread_to_be_had_is_an_outcome_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_run: object, _arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    background = Background(lambda: None)
    seen: list[object] = []
    background.send(lambda: None, seen.append)
    background.finish()
    assert [type(one) for one in seen] == [AgentError]
    assert "No more threads can be created" in str(seen[0])
    assert background.is_free


def test_the_outcome_of_an_abandoned_request_is_nobodys() -> None:
    waker = Waker()
    background = Background(waker.wake)
    seen: list[object] = []
    gate = threading.Event()
    background.send(lambda: gate.wait(LONG_S), lambda _: seen.append("old"))
    background.abandon()
    assert background.is_free
    background.send(lambda: None, lambda _: seen.append("new"))
    gate.set()
    finished(background, waker)
    waker.wait(0.05)
    assert not background.has_outcome
    assert seen == ["new"]
