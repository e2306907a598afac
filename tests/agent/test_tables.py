"""What `plan`, `once` and `show` print: enough for who must decide, and the parts for who asks for them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ap_agent.commands.tables import plan_json, plan_lines, state_lines
from ap_agent.common.problem import Problem
from ap_agent.dataplane.outcome import DeviceChange, LinkChange, Outcome, Plan
from ap_agent.document.state import Counters, DirectionState, LimiterState, LinkState
from bandwidth_config import Limits
from contract.link_info import LinkInfo, check_link_info
from tests.agent_bundles import entry

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


def changed(
    links: tuple[LinkChange, ...] = (),
    devices: tuple[DeviceChange, ...] = (),
    operations: tuple[str, ...] = (),
    failed: dict[int, str] | None = None,
) -> Outcome:
    return Outcome(Plan(links, devices, operations), failed=failed or {})  # type: ignore[arg-type]  # their words


def plain(lines: list[str]) -> str:
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")


def links(**more: dict[str, Any]) -> dict[int, LinkInfo]:
    return check_link_info({number.strip("_"): value for number, value in more.items()})


def planned(changes: Outcome, of: dict[int, LinkInfo], **options: bool) -> str:
    chosen = {"is_done": False, "is_observe_only": False, "verbose": False} | options
    return plain(plan_lines(changes, of, NOW, **chosen))


# --- plan -------------------------------------------------------------------------------------------------------------


def test_a_plan_has_a_row_for_each_link_a_line_for_each_device_and_what_is_not_touched() -> None:
    of = links(_1=entry(500), _2=entry(0, "2001:db8::7"), _3=entry(80, "192.0.2.3"), _7=entry(9, is_user_as=False))
    of[3] = of[3].with_limits(Limits(80, 20))
    rows = (
        LinkChange(1, None, Limits.both(500)),
        LinkChange(2, Limits.both(700), Limits.both(0)),
        LinkChange(4, Limits.both(9), None),
        LinkChange(5, Limits(8, 9), Limits(8, 9)),
    )
    changes = changed(
        rows, (DeviceChange("slbw0", "add 1 device"), DeviceChange("eth0", "add 1 hook")), ("op 1", "op 2"), {}
    )

    assert planned(changes, of) == (
        "LINK  USER AS       REMOTE ADDRESS       LIMIT NOW              THEN                   ACTION\n"
        "   1  17-ffaa:1:b6  192.0.2.11:50000     none                   500 kbit/s             limit\n"
        "   2  17-ffaa:1:b6  [2001:db8::7]:50000  700 kbit/s             blocked                block\n"
        "   3  17-ffaa:1:b6  192.0.2.3:50000      80 kbit/s / 20 kbit/s  80 kbit/s / 20 kbit/s  unchanged\n"
        "   4  -             -                    9 kbit/s               none                   remove the limit\n"
        "   5  -             -                    8 kbit/s / 9 kbit/s    8 kbit/s / 9 kbit/s    set again\n"
        "Limits apply per direction, or: to the user AS / from it.\n"
        "\n"
        "slbw0: add 1 device\n"
        "eth0: add 1 hook\n"
        "2 operations in the kernel (-v lists them); no foreign object is touched."
    )


def test_a_plan_for_programs_has_both_directions_in_kbit() -> None:
    changes = changed(
        (LinkChange(1, None, Limits(8, 9)),), (DeviceChange("eth0", "add 1 hook"),), ("op",), {2: "no route"}
    )

    assert plan_json(changes, [Problem("c", "s", "m")], "file x") == {
        "source": "file x",
        "links": {
            "1": {"now": None, "then": {"to_user_kbit": 8, "from_user_kbit": 9}},
        },
        "failed": {"2": "no route"},
        "devices": {"eth0": "add 1 hook"},
        "operations": ["op"],
        "problems": [{"code": "c", "subject": "s", "message": "m"}],
    }


# --- show -------------------------------------------------------------------------------------------------------------


def direction(kbit: int, *, refused: int = 0, dropped: int = 0, passed: int = 0) -> DirectionState:
    return DirectionState(kbit, 1, Counters(passed, passed // 1000, refused * 1000, refused, 5600, 70), dropped, 3000)


def state(*of: LinkState, **more: Any) -> LimiterState:
    values: dict[str, Any] = {
        "run": "0" * 32,
        "number": 1,
        "written_at": NOW,
        "observed_at": NOW - timedelta(seconds=3),
        "host_id": "h",
        "order": None,
        "limits_digest": None,
        "is_ok": True,
        "writes": 0,
        "links": {one.interface_id: one for one in of},
    }
    return LimiterState(**(values | more))


def test_each_direction_shows_one_number_of_drops_and_its_parts_on_request() -> None:
    to_user, from_user = direction(500, refused=150, dropped=5, passed=993_486), direction(500)
    found = state(LinkState(1, Limits.both(500), "enforced", None, to_user, from_user))
    of = links(_1=entry(500))

    brief = (
        "LINK  USER AS       STATE     DIRECTION              LIMIT  PASSED (B)  DROPS\n"
        "   1  17-ffaa:1:b6  enforced  to the user AS    500 kbit/s     993 486    155\n"
        "                              from the user AS  500 kbit/s           0      0"
    )
    assert plain(state_lines(found, of, verbose=False)) == brief
    assert plain(state_lines(found, of, verbose=True)) == (
        f"{brief}\n\n"
        "LINK  DIRECTION         PACKETS  REFUSED  DROPPED BY HTB  QUEUED (B)  HEARTBEATS\n"
        "   1  to the user AS        993      150               5       3 000          70\n"
        "   1  from the user AS        0        0               0       3 000          70\n\n"
        "Link 1: 192.0.2.11:50000"
    )


@pytest.mark.parametrize(
    ("one", "word"),
    [
        (LinkState(1, Limits.both(0), "enforced", None, direction(0), direction(0)), "blocked"),
        (LinkState(1, Limits.both(5), "observed", None, direction(5), direction(5)), "observed"),
        (LinkState(1, Limits.both(5), "error", "no route", None, None), "failed"),
        (LinkState(1, Limits(0, 5), "enforced", None, direction(0), direction(5)), "enforced"),
    ],
)
def test_a_state_has_the_word_that_pages_use(one: LinkState, word: str) -> None:
    assert plain(state_lines(state(one), {}, verbose=False)).splitlines()[1].split()[2] == word
