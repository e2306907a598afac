"""The loop around a service that holds no question open: what is handed over, told and repaired, and when."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ap_agent.agent.archive import MANIFEST
from ap_agent.agent.bundle import read_bundle
from ap_agent.agent.fetch import FetchResult, Have, NewBundle, NotModified, ReceiptAnswer
from ap_agent.agent.usage import Usage
from ap_agent.common.errors import AgentError, AuthError, FetchError, SettingsError
from ap_agent.common.log import configure
from ap_agent.common.settings import Settings
from ap_agent.document.handover import FILE_NAME
from ap_agent.usage.sampler import Sampler
from tests.agent_bundles import HOST_ID
from tests.agent_clock import V7, V8, Clock, FakeClient, World, begun, world_of


@pytest.fixture(autouse=True)
def _quiet() -> None:
    configure("debug", under_systemd=True)


def started(settings: Settings, clock: Clock, *answers: FetchResult | Exception, **options: object) -> World:
    """With configuration V7."""
    return begun(settings, FakeClient(list(answers) or [NotModified()], clock), **options)


def high(_low: float, high: float) -> float:
    return high


# --- handing over -----------------------------------------------------------------------------------------------------


def test_new_limits_are_in_the_kernel_and_told_in_the_moment_of_their_arrival(
    settings: Settings, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    world = started(settings, clock, NotModified(), NewBundle(V8))
    world.run_for(10.5)
    assert world.client is not None

    assert world.limiter.limits == {1: 900}
    assert [moment for moment, _ in world.client.asked] == [1000.0, 1010.0]
    told = next((moment, one) for moment, one in world.client.receipts if one["limits_version"] == 8)
    assert told[0] <= 1010.2
    assert (told[1]["writes"], told[1]["links"]["1"]["kbit"]) == (1, 900)
    trace = read_bundle(V8, host_id=HOST_ID).order.trace(HOST_ID)
    events = [line.split()[0] for line in capsys.readouterr().out.splitlines() if f" trace={trace} " in f"{line} "]
    assert events[:2] == ["<6>fetch.new", "<6>bundle.handed_over"]


@pytest.mark.parametrize("damage", [b"", b"{}", None])
@pytest.mark.parametrize("answer", [NotModified(), FetchError("away"), AuthError("refused")])
def test_handed_document_that_was_deleted_or_damaged_is_handed_over_again(
    settings: Settings, clock: Clock, answer: FetchResult | Exception, damage: bytes | None
) -> None:
    world = started(settings, clock, answer, uniform=high)
    world.run_for(5)
    document = settings.state_dir / FILE_NAME
    before = document.read_bytes()
    if damage is None:
        document.unlink()
    else:
        document.write_bytes(damage)
    world.limiter.die()
    world.run_for(11.5)
    assert document.read_bytes() == before


# --- telling ----------------------------------------------------------------------------------------------------------


def test_receipt_is_sent_every_interval_with_the_newest_counters(settings: Settings, clock: Clock) -> None:
    world = started(settings, clock)
    world.limiter.size = lambda: int(clock.now)
    world.run_for(301)
    assert world.client is not None

    moments = [round(moment) for moment, _ in world.client.receipts]
    assert moments == [1000, 1060, 1120, 1180, 1240, 1300]
    sizes = [one["links"]["1"]["to_user"]["bytes"] for one in world.receipts]
    assert sizes == [0, 1050, 1110, 1170, 1230, 1290]  # the limiter writes in the same moment, a little later


def test_receipt_says_what_the_limiter_has_and_not_what_the_agent_has(settings: Settings, clock: Clock) -> None:
    world = started(settings, clock, NotModified(), NewBundle(V8))
    world.run_for(5)
    v7 = read_bundle(V7, host_id=HOST_ID).limits_digest
    world.limiter.die()  # it never takes V8
    world.run_for(10)

    receipt = world.receipts[-1]
    assert world.agent.configuration.bundle is not None
    assert world.agent.configuration.bundle.limits_version == 8
    assert (receipt["version"], receipt["limits_version"], receipt["limits_digest"]) == ("1.18", 7, v7)
    assert receipt["links"]["1"]["kbit"] == 500


def test_limiter_that_dies_is_told_of_at_once_with_its_last_words(settings: Settings, clock: Clock) -> None:
    world = started(settings, clock)
    world.run_for(65)
    observed = world.receipts[-1]["observed_at"]
    count = len(world.receipts)
    world.limiter.die()
    world.run_for(12)

    receipt = world.receipts[-1]
    assert len(world.receipts) == count + 1
    assert [one["code"] for one in receipt["problems"]] == ["limiter_silent"]
    assert receipt["problems"][0]["subject"] == "limiter"
    assert receipt["observed_at"] >= observed
    assert receipt["links"]["1"]["state"] == "enforced"  # what it said; the service counts nothing of it
    world.limiter.live()
    world.run_for(12)
    assert world.receipts[-1]["problems"] == []


def test_limiter_that_runs_and_writes_nothing_is_silent_after_three_intervals_and_30_s(
    settings: Settings, clock: Clock
) -> None:
    world = started(settings, clock)
    world.run_for(5)
    world.limiter.work = lambda: False  # type: ignore[method-assign]
    world.run_for(50)
    assert world.codes == []
    world.run_for(10)
    assert world.codes == ["limiter_silent"]
    assert world.receipts[-1]["problems"][0]["code"] == "limiter_silent"


@pytest.mark.parametrize("jump_s", [86_400, -86_400])
def test_clock_that_is_set_makes_no_living_limiter_silent(settings: Settings, clock: Clock, jump_s: float) -> None:
    world = started(settings, clock)
    world.run_for(25)
    clock.set_by_s = jump_s
    seen = set()
    for _ in range(20):
        world.run_for(2)
        seen.update(world.codes)
    assert seen == set()


def test_state_file_that_cannot_be_read_is_named(settings: Settings, clock: Clock) -> None:
    world = started(settings, clock)
    world.run_for(5)
    (settings.limiter_run_dir / "state.json").write_bytes(b"{")
    world.limiter.work = lambda: False  # type: ignore[method-assign]
    world.run_for(12)
    assert world.codes == ["state_unusable"]
    assert "scionlab-bw-limiter" in world.agent.problems[0].message
    world.limiter.write({})
    world.run_for(12)
    assert world.codes == []


def test_evidence_leaves_at_once_when_it_is_wanted_and_only_then(settings: Settings, clock: Clock) -> None:
    world = started(settings, clock)
    assert world.client is not None
    world.client.receipt_answers = [ReceiptAnswer(evidence_wanted=True), ReceiptAnswer()]
    world.run_for(30)

    manifest = json.loads(read_bundle(V7, host_id=HOST_ID).members[MANIFEST])
    evidence = {"signed": manifest["signed"], "signatures": manifest["signatures"]}
    told = [(round(at), receipt.get("evidence")) for at, receipt in world.client.receipts]
    assert told == [(1000, None), (1000, evidence)]


# --- bugs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["fetch_config", "send_receipt"])
def test_bug_on_the_way_from_or_to_the_service_does_not_end_the_agent(
    settings: Settings, clock: Clock, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    world = started(settings, clock)
    good = getattr(world.client, where)

    def fail(*_arguments: object, **_options: object) -> None:
        raise ZeroDivisionError("oops")

    setattr(world.client, where, fail)
    world.run_for(65)

    assert world.limiter.limits == {1: 500}
    assert "Traceback" in capsys.readouterr().out
    assert world.codes == ["internal_error"]
    setattr(world.client, where, good)
    world.run_for(400)
    assert world.codes == []


@pytest.mark.parametrize("where", [Usage, Sampler])
def test_bug_in_counting_usage_keeps_nothing_else_from_happening(
    where: type, settings: Settings, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = started(settings, clock, NotModified(), NewBundle(V8))

    def fail(*_given: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(where, "take", fail)
    world.run_for(30)
    assert world.limiter.limits == {1: 900}
    assert world.codes == ["internal_error"]
    assert world.receipts[-1]["limits_version"] == 8


# --- signals and settings ---------------------------------------------------------------------------------------------


def test_hup_takes_up_new_settings_and_a_bad_file_keeps_the_old(settings: Settings, clock: Clock) -> None:
    new = FakeClient([NotModified()], clock)
    outcomes: list[tuple[Settings, FakeClient] | AgentError] = [
        SettingsError("poll_interval_s = x", key="poll_interval_s"),
        (replace(settings, state_dir=Path("/elsewhere")), new),
        (replace(settings, receipt_interval_s=5), new),
    ]

    def reload() -> tuple[Settings, FakeClient]:
        outcome = outcomes.pop(0)
        if isinstance(outcome, AgentError):
            raise outcome
        return outcome

    world = started(settings, clock, reload=reload)
    old = world.client
    for _ in range(2):
        world.loop.reload()
        world.step()
        assert world.agent.settings == settings
        assert world.codes == ["settings_invalid"]
    world.loop.reload()
    world.run_for(11)

    assert world.codes == []
    assert old is not None
    assert old.closed
    assert len(new.asked) == 2
    assert len(new.receipts) == 3


def test_stop_leaves_what_was_handed_over(settings: Settings, clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    client = FakeClient([NewBundle(V7)], clock)
    world = world_of(settings, client, clock)
    fetch = client.fetch_config

    def fetch_and_stop(have: Have | None, *, wait_s: int = 0) -> FetchResult:
        world.loop.stop()
        return fetch(have, wait_s=wait_s)

    client.fetch_config = fetch_and_stop  # type: ignore[method-assign]
    world.loop.run()
    world.limiter.work()

    assert world.limiter.limits == {1: 500}
    assert (settings.state_dir / FILE_NAME).exists()
    assert 'agent.stop limits="stay in the kernel"' in capsys.readouterr().out
