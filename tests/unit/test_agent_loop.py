"""The loop around a service that holds no question open: the disk before the network, one clock, signals."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from ap_agent.agent.fetch import FetchResult, Have, NewBundle, NoAS, NotModified, ReceiptAnswer
from ap_agent.agent.loop import Loop
from ap_agent.common.errors import AgentError, AuthError, FetchError, SettingsError
from ap_agent.common.log import configure
from ap_agent.common.settings import Settings
from ap_agent.document.bundle import read_bundle
from tests.agent_bundles import HOST_ID
from tests.agent_clock import V7, V8, Clock, FakeClient, loop_of, run_for, settings_in, store_v7
from tests.agent_engine import FakeEngine


@pytest.fixture(autouse=True)
def _quiet() -> None:
    configure("debug", under_systemd=True)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_in(tmp_path)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


# --- order ------------------------------------------------------------------------------------------------------------


def test_disk_is_enforced_before_the_network_is_asked(settings: Settings, engine: FakeEngine, clock: Clock) -> None:
    store_v7(settings)
    client = FakeClient([NotModified()], clock)
    loop = loop_of(settings, engine, client, clock)
    loop.start()

    assert engine.kernel == {1: 500}
    assert client.asked == []
    loop.step()
    assert client.asked == [(1000.0, Have.of(read_bundle(V7, host_id=HOST_ID)))]


def test_new_bundle_reaches_the_kernel_and_the_service_hears_in_the_same_cycle(
    settings: Settings, engine: FakeEngine, clock: Clock
) -> None:
    client = FakeClient([NotModified(), NewBundle(V8)], clock)
    store_v7(settings)
    loop = loop_of(settings, engine, client, clock)
    loop.start()
    run_for(loop, clock, 10.5)

    assert engine.kernel == {1: 900}
    assert [moment for moment, _ in client.asked] == [1000.0, 1010.0]
    moment, receipt = client.receipts[-1]
    assert (moment, receipt["limits_version"], receipt["writes"]) == (1010.0, 8, 1)


def test_kernel_is_audited_every_interval_although_nothing_is_new(
    settings: Settings, engine: FakeEngine, clock: Clock
) -> None:
    store_v7(settings)
    loop = loop_of(replace(settings, receipt_interval_s=3600), engine, FakeClient([NotModified()], clock), clock)
    loop.start()
    loop.step()
    engine.calls.clear()
    run_for(loop, clock, 601)

    assert engine.calls == ["reconcile"] * 10


def test_kernel_is_audited_while_the_service_is_away(settings: Settings, engine: FakeEngine, clock: Clock) -> None:
    store_v7(settings)
    client = FakeClient([FetchError("away")], clock)
    loop = loop_of(settings, engine, client, clock, uniform=lambda _low, high: high)
    loop.start()
    run_for(loop, clock, 3000)
    engine.kernel = {}
    run_for(loop, clock, 61)

    assert engine.kernel == {1: 500}
    assert client.receipts == []  # nobody there: not even tried


def test_receipt_is_sent_every_interval_with_fresh_counters(
    settings: Settings, engine: FakeEngine, clock: Clock
) -> None:
    store_v7(settings)
    client = FakeClient([NotModified()], clock)
    loop = loop_of(replace(settings, audit_interval_s=3600), engine, client, clock)
    loop.start()
    engine.calls.clear()
    run_for(loop, clock, 301)

    moments = [moment for moment, _ in client.receipts]
    assert moments == [1000.0, 1060.0, 1120.0, 1180.0, 1240.0, 1300.0]
    assert engine.calls == ["reconcile"] * 6
    observed = [receipt["observed_at"] for _, receipt in client.receipts]
    assert observed == sorted(set(observed))


def test_failed_link_is_tried_again_at_every_poll(settings: Settings, engine: FakeEngine, clock: Clock) -> None:
    store_v7(settings)
    engine.refused = frozenset({1})
    loop = loop_of(settings, engine, FakeClient([NotModified()], clock), clock)
    loop.start()
    loop.step()
    engine.refused = frozenset()
    run_for(loop, clock, 11)

    assert engine.kernel == {1: 500}


@pytest.mark.parametrize("answer", [NotModified(), FetchError("away"), AuthError("refused")])
def test_lost_ifb_is_repaired_within_a_poll_interval_whether_the_service_answers_or_not(
    settings: Settings, engine: FakeEngine, clock: Clock, answer: FetchResult | Exception
) -> None:
    """It drops every packet of a limited source: the full comparison once a minute is too late for it."""
    store_v7(settings)
    loop = loop_of(settings, engine, FakeClient([answer], clock), clock, uniform=lambda _low, high: high)
    loop.start()
    run_for(loop, clock, 300)
    for gone in (None, 4711):  # deleted or down; another one of its name
        engine.calls.clear()
        engine.ifb = gone
        run_for(loop, clock, 11.5)
        assert engine.calls[:1] == ["reconcile"]
    assert engine.ifb == 4711


def test_lost_ifb_is_repaired_before_the_network_is_asked(settings: Settings, engine: FakeEngine, clock: Clock) -> None:
    store_v7(settings)
    found: list[int | None] = []

    class SlowClient(FakeClient):
        def fetch_config(self, have: Have | None, *, wait_s: int = 0) -> FetchResult:
            found.append(engine.ifb)
            return super().fetch_config(have, wait_s=wait_s)

    loop = loop_of(settings, engine, SlowClient([NotModified()], clock), clock)
    loop.start()
    engine.ifb = None
    loop.step()

    assert found == [engine.ifb]
    assert engine.ifb is not None


def test_glance_costs_no_comparison_and_no_waking_of_its_own(
    settings: Settings, engine: FakeEngine, clock: Clock
) -> None:
    store_v7(settings)
    loop = loop_of(settings, engine, FakeClient([NotModified()], clock), clock)
    loop.start()
    loop.step()
    engine.calls.clear()
    engine.glances = 0
    steps = 0
    while clock.now < 1055:
        clock.wait(loop.step() - clock.now)
        steps += 1

    assert (engine.calls, engine.glances, steps) == ([], 5, 6)


def test_failed_link_is_tried_again_soon_while_the_service_is_away(
    settings: Settings, engine: FakeEngine, clock: Clock
) -> None:
    """At boot the default route may come after the agent: then the service is away too, and backed off from."""
    store_v7(settings)
    engine.refused = frozenset({1})
    loop = loop_of(settings, engine, FakeClient([FetchError("away")], clock), clock, uniform=lambda _low, high: high)
    loop.start()
    run_for(loop, clock, 305)
    engine.refused = frozenset()
    run_for(loop, clock, 11.5)

    assert engine.kernel == {1: 500}


def test_no_as_leaves_the_limits_and_polling_goes_on(settings: Settings, engine: FakeEngine, clock: Clock) -> None:
    store_v7(settings)
    client = FakeClient([NoAS()], clock)
    loop = loop_of(settings, engine, client, clock)
    loop.start()
    run_for(loop, clock, 25)

    assert engine.kernel == {1: 500}
    assert len(client.asked) == 3
    assert [one["code"] for one in client.receipts[-1][1]["problems"]] == ["no_as"]


def test_agent_without_a_service_audits_only(settings: Settings, engine: FakeEngine, clock: Clock) -> None:
    store_v7(settings)
    loop = loop_of(replace(settings, url=None), engine, None, clock)
    loop.start()
    engine.calls.clear()
    run_for(loop, clock, 179)

    assert engine.calls == ["reconcile"] * 2


def test_bug_ends_the_cycle_loudly_and_not_the_agent(
    settings: Settings, engine: FakeEngine, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    store_v7(settings)
    engine.error = ZeroDivisionError("oops")
    client = FakeClient([NotModified()], clock)
    loop = loop_of(settings, engine, client, clock)
    loop.start()
    run_for(loop, clock, 11)
    out = capsys.readouterr().out

    assert "Traceback" in out
    assert "oops" in out
    assert {one.code for one in loop.agent.problems} == {"internal_error"}
    assert client.receipts[-1][1]["links"]["1"]["state"] == "error"
    engine.error = None
    run_for(loop, clock, 61)
    assert engine.kernel == {1: 500}
    assert loop.agent.problems == ()


@pytest.mark.parametrize("where", ["fetch_config", "send_receipt"])
def test_bug_on_the_way_from_or_to_the_service_does_not_end_the_agent(
    settings: Settings, engine: FakeEngine, clock: Clock, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    """Nobody would look after the kernel then, and outside of systemd nobody would start the agent again."""
    store_v7(settings)
    client = FakeClient([NotModified()], clock)
    good = getattr(client, where)

    def fail(*_arguments: object, **_options: object) -> None:
        raise ZeroDivisionError("oops")

    setattr(client, where, fail)
    loop = loop_of(settings, engine, client, clock)
    loop.start()
    loop.step()
    engine.kernel = {}
    run_for(loop, clock, 65)

    assert engine.kernel == {1: 500}
    assert "Traceback" in capsys.readouterr().out
    assert [one.code for one in loop.agent.problems] == ["internal_error"]
    setattr(client, where, good)
    run_for(loop, clock, 400)
    assert loop.agent.problems == ()


# --- repeats in the log -----------------------------------------------------------------------------------------------


def test_trouble_is_logged_when_it_begins_and_when_it_ends(
    settings: Settings, engine: FakeEngine, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    store_v7(settings)
    client = FakeClient([*[FetchError("The service answered 503.")] * 8, NotModified()], clock)
    configure("info", under_systemd=True)
    loop = loop_of(settings, engine, client, clock)
    loop.start()
    capsys.readouterr()
    run_for(loop, clock, 2000)
    lines = capsys.readouterr().out.splitlines()

    assert len(lines) == 2
    assert lines[0].startswith("<4>problem.begin code=service_unreachable")
    assert 'message="The service answered 503."' in lines[0]
    assert lines[1].startswith("<6>problem.end code=service_unreachable")
    assert "times=" in lines[1]


# --- signals and settings ---------------------------------------------------------------------------------------------


def test_hup_takes_up_new_settings_and_a_bad_file_keeps_the_old(
    settings: Settings, engine: FakeEngine, clock: Clock
) -> None:
    store_v7(settings)
    old, new = FakeClient([NotModified()], clock), FakeClient([NotModified()], clock)
    outcomes: list[tuple[Settings, FakeClient] | AgentError] = [
        SettingsError("poll_interval_s = x", key="poll_interval_s"),
        (replace(settings, state_dir=Path("/elsewhere")), new),
        (replace(settings, unmatched="default", default_bandwidth_kbit=5000), new),
    ]

    def reload() -> tuple[Settings, FakeClient]:
        outcome = outcomes.pop(0)
        if isinstance(outcome, AgentError):
            raise outcome
        return outcome

    loop = loop_of(settings, engine, old, clock, reload=reload)
    loop.start()
    for _ in range(2):
        loop._on_reload(signal.SIGHUP, None)
        loop.step()
        assert loop.agent.settings == settings
        assert [one.code for one in loop.agent.problems] == ["settings_invalid"]
    loop._on_reload(signal.SIGHUP, None)
    loop.step()

    assert loop.agent.problems == ()
    assert old.closed
    assert (engine.settings[-1].unmatched, engine.settings[-1].default_bandwidth_kbit) == ("default", 5000)
    assert len(new.asked) == 1


def test_stop_during_a_cycle_lets_it_finish_and_leaves_the_limits(
    settings: Settings, engine: FakeEngine, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    loop_box: list[Loop] = []

    class StoppingClient(FakeClient):
        def fetch_config(self, have: Have | None, *, wait_s: int = 0) -> FetchResult:
            loop_box[0].stop()
            return super().fetch_config(have, wait_s=wait_s)

    client = StoppingClient([NewBundle(V7)], clock)
    loop = loop_of(settings, engine, client, clock)
    loop_box.append(loop)
    loop.run()

    assert engine.kernel == {1: 500}
    assert len(client.receipts) == 1
    assert 'agent.stop limits="stay in the kernel"' in capsys.readouterr().out


def test_evidence_leaves_at_once_although_a_minute_is_between_receipts(
    settings: Settings, engine: FakeEngine, clock: Clock
) -> None:
    store_v7(settings)
    client = FakeClient([NotModified()], clock)
    client.receipt_answers = [ReceiptAnswer(evidence_wanted=True), ReceiptAnswer()]
    loop = loop_of(settings, engine, client, clock)
    loop.start()
    run_for(loop, clock, 30)

    assert [(round(at), "evidence" in receipt) for at, receipt in client.receipts] == [(1000, False), (1000, True)]


def test_service_that_stores_no_receipt_is_asked_ever_more_rarely(
    settings: Settings, engine: FakeEngine, clock: Clock
) -> None:
    store_v7(settings)
    client = FakeClient([NotModified()], clock)
    client.receipt_answers = [ReceiptAnswer(is_stored=False)]
    loop = loop_of(settings, engine, client, clock)
    loop.start()
    run_for(loop, clock, 600)

    assert 5 <= len(client.receipts) <= 20
    assert [one.code for one in loop.agent.problems] == ["receipt_failed"]
