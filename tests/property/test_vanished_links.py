"""A configuration that lacks most of the limited links is held back for ten minutes, and no other one ever is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ap_agent.agent.bundle import Bundle, read_bundle
from ap_agent.agent.fetch import Have, NewBundle, NoAS
from ap_agent.agent.hold import HOLD_S, Hold, hold_for, hold_of
from ap_agent.agent.store import Store
from ap_agent.common.settings import Settings
from tests.agent_bundles import HOST_ID, bundle_bytes, entry
from tests.agent_clock import Clock, FakeClient, settings_in, world_of


def document(numbers: range, *, kbit: int = 500) -> dict[str, Any]:
    return {str(number): entry(kbit, f"192.0.2.{number}") for number in numbers}


def data_of(numbers: range, version: str = "1.18", **links: Any) -> bytes:
    return bundle_bytes({**document(numbers), **links}, version=version, limits_version=int(version.partition(".")[2]))


def bundle_of(limited: int, lost: int = 0, *, others: int = 0, version: str = "1.18") -> Bundle:
    """Of the links 1 to `limited` the first `lost` are not there; `others` are listed and not limited."""
    links = document(range(lost + 1, limited + 1)) | {
        str(number): entry(500, f"192.0.2.{number}", is_user_as=False) for number in range(201, 201 + others)
    }
    return read_bundle(bundle_bytes(links, version=version), host_id=HOST_ID)


def held(limited: int, lost: int, **options: Any) -> Hold | None:
    return hold_for(bundle_of(limited, **options), bundle_of(limited, lost), None, 0, is_accepted=lambda: False)


# --- which one --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limited", "lost", "is_held"),
    [(10, 10, False), (11, 5, False), (11, 6, True), (12, 6, False), (12, 7, True), (11, 11, True), (1, 1, False)],
)
def test_more_than_half_of_more_than_ten_links_is_the_bound(limited: int, lost: int, is_held: bool) -> None:
    assert (held(limited, lost) is not None) == is_held


def test_links_that_nobody_limits_do_not_count() -> None:
    assert held(10, 10, others=30) is None


def test_a_link_that_is_no_longer_limited_has_vanished_and_one_with_another_number_too() -> None:
    in_force = bundle_of(11)
    unlimited = {key: {**value, "IsUserAS": False} for key, value in document(range(1, 12)).items()}
    renumbered = {str(int(key) + 100): value for key, value in document(range(1, 12)).items()}

    for links in (unlimited, renumbered):
        offered = read_bundle(bundle_bytes(links), host_id=HOST_ID)
        hold = hold_for(in_force, offered, None, 0, is_accepted=lambda: False)
        assert hold is not None
        assert (hold.missing, hold.limited) == (11, 11)


# --- how long ---------------------------------------------------------------------------------------------------------


@given(began=st.integers(0, 10**9), held_s=st.integers(0, 2000))
def test_it_lasts_ten_minutes(began: int, held_s: int) -> None:
    in_force, offered = bundle_of(11), bundle_of(11, 11)
    first = hold_for(in_force, offered, None, began, is_accepted=lambda: False)
    assert first is not None
    assert hold_of(first.to_json()) == first

    now = began + held_s
    assert (hold_for(in_force, offered, first, now, is_accepted=lambda: False) is None) == (held_s >= HOLD_S)
    assert hold_for(in_force, offered, first, now, is_accepted=lambda: True) is None


@given(began=st.integers(0, 2000), up_s=st.integers(0, 3000))
def test_a_reboot_never_shortens_it(began: int, up_s: int) -> None:
    """The other boot has lasted `up_s`, so at least so much has passed since the hold began."""
    in_force, offered = bundle_of(11), bundle_of(11, 11)
    first = hold_for(in_force, offered, None, began, is_accepted=lambda: False)

    found = hold_for(in_force, offered, first, up_s, is_accepted=lambda: False)

    assert (found is None) == (up_s >= began + HOLD_S)
    if found is not None:
        assert found.left_s(up_s) <= HOLD_S  # nor does it last for days


def test_another_configuration_in_force_begins_another_hold() -> None:
    former = hold_for(bundle_of(11), bundle_of(11, 6), None, 0, is_accepted=lambda: False)
    found = hold_for(bundle_of(13), bundle_of(13, 8), former, 900, is_accepted=lambda: False)

    assert found is not None
    assert found.since_s == 900


# --- in the running agent ---------------------------------------------------------------------------------------------

ALL, FEW = data_of(range(1, 13)), data_of(range(1, 4), "1.19")
KERNEL = dict.fromkeys(range(1, 13), 500)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    found = replace(settings_in(tmp_path), backoff_max_s=120.0)
    Store(found.state_dir).save(read_bundle(ALL, host_id=HOST_ID))
    return found


def test_the_limits_stay_for_ten_minutes_and_go_if_the_service_still_says_so(settings: Settings) -> None:
    clock = Clock()
    client = FakeClient([NewBundle(FEW)], clock)
    world = world_of(settings, client, clock)
    world.loop.start()
    world.run_for(HOLD_S - 1)

    assert world.limiter.limits == KERNEL
    assert world.codes == ["links_vanished"]
    assert "lacks 9 of the 12 limited links in force" in world.agent.problems[0].message
    assert client.receipts[-1][1]["version"] == "1.18"
    assert [one["code"] for one in client.receipts[-1][1]["problems"]] == ["links_vanished"]
    assert client.asked[0][1] == Have.of(read_bundle(ALL, host_id=HOST_ID))
    assert {have for _, have in client.asked[1:]} == {None}  # without a version
    assert len(client.asked) < 30
    world.run_for(2)
    assert world.limiter.limits == dict.fromkeys(range(1, 4), 500)
    assert world.codes == []
    assert not world.agent.configuration.store.hold_file.exists()
    world.run_for(60)
    assert client.asked[-1][1] == Have.of(read_bundle(FEW, host_id=HOST_ID))


def test_service_that_corrects_itself_is_followed_at_once_and_the_next_mistake_waits_anew(settings: Settings) -> None:
    clock = Clock()
    client = FakeClient([NewBundle(FEW)], clock)
    world = world_of(settings, client, clock)
    world.loop.start()
    world.run_for(HOLD_S - 100)
    client.answers = [NewBundle(data_of(range(1, 12), "1.20"))]
    world.run_for(99)
    assert sorted(world.limiter.limits) == list(range(1, 12))
    assert world.codes == []
    client.answers = [NewBundle(data_of(range(1, 3), "1.21"))]
    world.run_for(HOLD_S - 100)
    assert sorted(world.limiter.limits) == list(range(1, 12))
    assert world.codes == ["links_vanished"]


def test_an_answer_that_is_none_neither_ends_the_hold_nor_takes_anything(settings: Settings) -> None:
    clock = Clock()
    client = FakeClient([NewBundle(FEW), NoAS()], clock)
    world = world_of(settings, client, clock)
    world.loop.start()
    world.run_for(3 * HOLD_S)
    assert world.limiter.limits == KERNEL
    client.answers = [NewBundle(FEW)]
    world.run_for(130)
    assert sorted(world.limiter.limits) == [1, 2, 3]


def test_a_restart_neither_shortens_nor_repeats_the_ten_minutes(settings: Settings) -> None:
    clock, limiter = Clock(), None
    for lasts_s in (200.0, 200.0, 199.0):
        world = world_of(settings, FakeClient([NewBundle(FEW)], clock), clock, limiter=limiter)
        limiter = world.limiter
        world.loop.start()
        world.run_for(lasts_s)
        assert world.limiter.limits == KERNEL
    world.run_for(2)
    assert sorted(world.limiter.limits) == [1, 2, 3]


def test_a_damaged_record_of_the_hold_begins_it_anew(settings: Settings) -> None:
    clock, limiter = Clock(), None
    for _ in range(2):
        world = world_of(settings, FakeClient([NewBundle(FEW)], clock), clock, limiter=limiter)
        limiter = world.limiter
        world.loop.start()
        world.run_for(HOLD_S - 1)
        assert world.limiter.limits == KERNEL
        world.agent.configuration.store.hold_file.write_text("{")
    world.run_for(2)
    assert sorted(world.limiter.limits) == [1, 2, 3]
