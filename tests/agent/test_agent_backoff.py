"""When the service is asked again, and for how long it may hold the question open; a thousand hosts after an outage."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from ap_agent.agent.backoff import SHORT_FOR_S, Backoff, Contact, Pulled
from ap_agent.common.errors import AgentError, AuthError, BundleError, FetchError, StoreError

Uniform = Callable[[float, float], float]
HIGH: Uniform = lambda _low, high: high  # noqa: E731  # short beside the cases
LOW: Uniform = lambda low, _high: low  # noqa: E731
AWAY = FetchError("away")


@dataclass
class Host:
    """One host and its clock; each question is answered after `took_s`."""

    backoff: Backoff
    now: float = 1000.0
    wait_s: int = 0

    def ask(self, answer: Contact | AgentError, took_s: float = 0.0) -> float:
        """Returns the pause after it."""
        self.wait_s = self.backoff.begin(self.now)
        self.now += took_s
        pulled = Pulled("failed", answer) if isinstance(answer, AgentError) else Pulled(answer)
        pause_s = self.backoff.end(pulled, self.now)
        self.now += pause_s
        return pause_s


def host(uniform: Uniform = HIGH, *, long_poll_s: int = 50, interval_s: float = 10, cap_s: float = 300) -> Host:
    return Host(Backoff(interval_s, cap_s, long_poll_s, uniform))


def waiting(uniform: Uniform = HIGH) -> Host:
    """A host whose service has held a question open for as long as it might."""
    one = host(uniform)
    assert one.ask("unchanged") == 0
    assert one.ask("unchanged", took_s=one.backoff._long_poll_s) == 0
    return one


# --- asking plainly ---------------------------------------------------------------------------------------------------


def test_plain_interval_has_jitter_of_ten_percent() -> None:
    for uniform, pause_s in ((HIGH, 11), (LOW, 9)):
        for answer in ("unchanged", "new", "no_as"):
            one = host(uniform, long_poll_s=0)
            assert one.ask(answer) == pytest.approx(pause_s)
            assert one.wait_s == 0


def test_failures_double_the_cap_up_to_the_maximum_with_jitter() -> None:
    one = host(lambda low, high: high - low, long_poll_s=0)
    assert [one.ask(AWAY) for _ in range(7)] == [15, 35, 75, 155, 295, 295, 295]
    assert one.backoff.failures == 7
    one.ask("unchanged")
    assert one.ask(AWAY) == 15


@pytest.mark.parametrize("error", [AuthError("x"), BundleError("x"), FetchError("x", retryable=False), AgentError("x")])
def test_what_needs_somebody_is_asked_for_rarely_at_once_and_for_ever(error: AgentError) -> None:
    one = host()
    assert {one.ask(error) for _ in range(2000)} == {300}


@pytest.mark.parametrize("error", [AWAY, StoreError("x")])
def test_thousand_failures_do_not_overflow_and_nobody_gives_up(error: AgentError) -> None:
    one = host()
    assert {one.ask(error) for _ in range(2000)} == {20, 40, 80, 160, 300}


def test_retry_after_is_honoured_with_jitter_on_top() -> None:
    told = FetchError("x", retry_after_s=200)
    assert (host(LOW).ask(told), host(HIGH).ask(told)) == (200, 250)
    soon = FetchError("x", retry_after_s=1)
    assert (host(LOW).ask(soon), host(HIGH).ask(soon)) == (5, 20)


# --- questions that wait ----------------------------------------------------------------------------------------------


def test_service_that_holds_nothing_open_is_asked_plainly() -> None:
    """The stock service, or a proxy that answers for it: whatever it does not know it ignores."""
    one = host()
    one.ask("unchanged")
    assert [one.ask("unchanged", took_s=0.02) for _ in range(100)] == pytest.approx([11] * 100)
    one.ask("unchanged", took_s=50)  # it was replaced by ours
    assert one.ask("unchanged", took_s=50) == 0


def test_questions_that_are_sent_away_early_come_back_spread_and_plainly_when_it_happens_again() -> None:
    assert (waiting(LOW).ask("unchanged", took_s=5), waiting(HIGH).ask("unchanged", took_s=5)) == (0, 10)
    one = waiting(LOW)
    one.ask("unchanged", took_s=5)
    assert one.ask("unchanged", took_s=0) == 9


def test_news_at_every_question_is_taken_once_a_second() -> None:
    one = host()
    assert [one.ask("new") for _ in range(8)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1, 1, 1, 1])
    one.ask("unchanged", took_s=50)
    assert one.ask("new") == pytest.approx(0.1)


# --- cut off ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [FetchError("reset"), FetchError("503")])
def test_question_that_was_cut_off_comes_back_within_the_interval(error: FetchError) -> None:
    assert (waiting(LOW).ask(error, took_s=20), waiting(HIGH).ask(error, took_s=20)) == (0, 10)


def test_proxy_that_cuts_off_what_is_silent_gets_shorter_questions_for_an_hour() -> None:
    one = waiting()
    for _ in range(2):
        one.ask(AWAY, took_s=30)
        one.ask("unchanged")
    began = one.now
    assert one.ask("unchanged", took_s=15) == 0
    assert one.wait_s == 15
    while one.now < began + SHORT_FOR_S:
        one.ask("unchanged", took_s=15)
        assert one.wait_s == 15
    one.ask("unchanged", took_s=50)
    assert one.wait_s == 50


def test_proxy_that_hardly_allows_any_silence_is_asked_plainly() -> None:
    one = waiting()
    for _ in range(2):
        one.ask(AWAY, took_s=5)
        one.ask("unchanged")
    assert [one.ask("unchanged"), one.ask("unchanged")] == pytest.approx([11, 11])
    assert one.wait_s == 0


# --- a thousand hosts -------------------------------------------------------------------------------------------------

HOSTS = 1000


def crowd(seed: int) -> list[Host]:
    """All of them wait, and began whenever they did."""
    chance = random.Random(seed)  # noqa: S311  # no secret
    hosts = []
    for _ in range(HOSTS):
        one = host(chance.uniform)
        one.ask("unchanged", took_s=0.01)
        one.now = 1000 - chance.uniform(2, 45)
        one.backoff.begin(one.now)
        hosts.append(one)
    return hosts


def per_second(hosts: list[Host], up_at: float) -> Counter[int]:
    """At 1000 every question is cut off; nobody answers before `up_at`. How many come in each second after that,
    until the last one is back; who is back asks a second time at once, and waits."""
    arrivals: Counter[int] = Counter()
    for one in hosts:
        one.now = 1000.0
        one.now += one.backoff.end(Pulled("failed", AWAY), one.now)
        while one.now < up_at:
            one.ask(AWAY, took_s=0.001)
        arrivals[int(one.now - up_at)] += 1
    return arrivals


@pytest.mark.parametrize(
    ("gone_s", "busiest_second", "last_back_s"),
    [(0, 111, 10), (2, 115, 40), (30, 46, 154), (3600, 12, 291)],  # an even spread over 300 s is 3.4 a second
    ids=["a deployment", "a restart of 2 s", "half a minute", "an hour"],
)
def test_thousand_hosts_come_back_from_an_outage_spread_and_all_of_them(
    gone_s: int, busiest_second: int, last_back_s: int
) -> None:
    """The figures of docs/reliability.md; the same chance each time."""
    arrivals = per_second(crowd(2), up_at=1000 + gone_s)
    assert (max(arrivals.values()), max(arrivals) + 1) == (busiest_second, last_back_s)
    assert sum(arrivals.values()) == HOSTS
