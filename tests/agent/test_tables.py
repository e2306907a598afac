"""What `plan`, `once` and `show` print: enough for who must decide, and the parts for who asks for them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ap_agent.commands.tables import age_lines, error_lines, failed_links, plan_json, plan_lines, state_lines
from ap_agent.common.problem import Problem
from ap_agent.dataplane.outcome import DeviceChange, LinkChange, Outcome, Plan
from ap_agent.document.state import Counters, DirectionState, LimiterState, LinkState, Total
from ap_agent.usage.table import Report, Used
from ap_agent.usage.table import table as usage_table
from bandwidth_config import Limits
from contract.link_info import LinkInfo, check_link_info
from scionlab_bw.tables import facts
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
        LinkChange(0, None, Limits.both(5000)),
        LinkChange(1, None, Limits.both(500)),
        LinkChange(2, Limits.both(700), Limits.both(0)),
        LinkChange(4, Limits.both(9), None),
        LinkChange(5, Limits(8, 9), Limits(8, 9)),
    )
    changes = changed(
        rows, (DeviceChange("slbw0", "add 1 device"), DeviceChange("eth0", "add 1 hook")), ("op 1", "op 2"), {}
    )

    assert planned(changes, of) == (
        "LINK  USER AS        REMOTE ADDRESS       LIMIT NOW              THEN                   ACTION\n"
        "   0  other traffic  any                  none                   5 000 kbit/s           limit\n"
        "   1  17-ffaa:1:b6   192.0.2.11:50000     none                   500 kbit/s             limit\n"
        "   2  17-ffaa:1:b6   [2001:db8::7]:50000  700 kbit/s             blocked                block\n"
        "   3  17-ffaa:1:b6   192.0.2.3:50000      80 kbit/s / 20 kbit/s  80 kbit/s / 20 kbit/s  unchanged\n"
        "   4  -              -                    9 kbit/s               none                   remove the limit\n"
        "   5  -              -                    8 kbit/s / 9 kbit/s    8 kbit/s / 9 kbit/s    set again\n"
        "Limits apply per direction, or: to the user AS / from it.\n"
        "\n"
        "slbw0: add 1 device\n"
        "eth0: add 1 hook\n"
        "2 operations in the kernel (-v lists them); no foreign object is touched."
    )
    assert planned(changes, of, verbose=True).endswith("no foreign object is touched.\n  op 1\n  op 2")


def test_a_plan_of_nothing_says_so_in_the_right_tense() -> None:
    of = links(_1=entry(500))

    assert planned(changed(), of).endswith("The kernel is up to date.")
    assert planned(changed(), of, is_done=True).endswith("The kernel was up to date.")
    assert planned(changed(), {}).startswith("No limited links in the configuration or in the kernel.")


def test_thousands_of_unchanged_links_are_counted_beside_those_that_change() -> None:
    of = links(**{f"_{number}": entry(500, "192.0.2.9", port=50000 + number) for number in range(1, 101)})
    changes = changed((LinkChange(40, Limits.both(400), Limits.both(500)),), (), ("op",), {})

    shown = planned(changes, of)
    assert shown.count("17-ffaa:1:b6") == 1
    assert "99 more links unchanged (-v lists them)." in shown
    assert planned(changes, of, verbose=True).count("17-ffaa:1:b6") == 100


def test_a_link_that_cannot_be_had_and_one_that_is_observed_say_so() -> None:
    of = links(_1=entry(500), _2=entry(0, "192.0.2.12") | {"Observe": True})
    rows = (LinkChange(2, None, Limits.both(0)),)
    shown = planned(changed(rows, (), ("op",), {1: "no route"}), of)

    assert "none       500 kbit/s  cannot be enforced (see below)" in shown
    assert "none       blocked     observe" in shown
    assert "Observe only: all links are measured, none is limited." not in shown
    everything = planned(changed((LinkChange(1, None, Limits.both(500)),), (), ("op",), {}), of, is_observe_only=True)
    assert "500 kbit/s  observe" in everything
    again = planned(changed((LinkChange(1, Limits.both(5), Limits.both(5)),), (), ("op",)), of, is_observe_only=True)
    assert again.splitlines()[1].endswith("5 kbit/s   5 kbit/s  observe")
    assert "Observe only: all links are measured, none is limited." in everything


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


def test_tables_fit_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("terminal", "scionlab_bw.tables"):
        monkeypatch.setattr(f"{module}.columns", lambda: 80)
    busy = direction(100_000_000, refused=9_999_999, dropped=9, passed=99_999_999_999)
    found = state(LinkState(4094, Limits.both(100_000_000), "enforced", None, busy, busy))
    of = links(_4094=entry(100_000_000, "2001:db8:1111:2222:3333:4444:5555:6666") | {"ISD-AS": "65535-ffff:ffff:ffff"})
    change = changed((LinkChange(4094, Limits(100_000_000, 99_999_999), Limits(1, 99_999_999)),), (), ("op",), {})
    used = Report(0, "1.18", {(4094, "to_user"): Used(100_000_000, 99_999_999.9, 99_999.9, 1, 1, 1, 1)})

    shown = [plain(state_lines(found, of, verbose=True)), planned(change, of), "\n".join(usage_table(used, {}))]
    assert [line for text in shown for line in text.splitlines() if len(line) > 80 and "  " in line] == []
    assert "99 999 999 999" in shown[0]
    text = facts([("State", "no report since 2026-11-22 12:00:00 CET"), ("", "The agent has not reported. " * 5)])
    assert max(map(len, text.splitlines())) <= 80
    assert text.splitlines()[2].startswith("       ")


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


def test_what_the_kernel_does_not_have_is_shown_as_nothing() -> None:
    shown = plain(state_lines(state(LinkState(1, Limits.both(5), "error", "gone", None, None)), {}, verbose=True))
    assert shown.count("nothing") == 2
    failed = failed_links(state(LinkState(1, Limits.both(5), "error", "gone", None, None)))
    assert error_lines((), failed) == ["link 1 is not enforced: gone"]
    assert error_lines([Problem("c", "link 1", "gone")], failed) == ["c (link 1): gone"]  # said already


def test_the_rest_of_a_state_stands_below_its_table() -> None:
    found = state(
        total=Total(10_000, 10_000, None),
        unmatched=(direction(1000, refused=2, dropped=1, passed=5000), None),
        is_observe_only=True,
        next_step_at=NOW,
        devices=("eth0", "tun0"),
    )

    assert plain(state_lines(found, {}, verbose=False)).splitlines() == [
        "No limited links.",
        "All links together: 10 Mbit/s requested; enforced: 10 Mbit/s to the users, none from them.",
        "Traffic that belongs to no link, to them: 1 000 kbit/s, 5 000 B passed, 3 packets dropped",
        "Traffic that belongs to no link, from them: not in the kernel",
        "Observe only: all links are measured, none is limited.",
        "The next temporary limit begins, steps or ends at 2026-11-22 12:00:00 UTC.",
        "Packets are classified on eth0, tun0.",
    ]


@pytest.mark.parametrize(
    ("age_s", "is_running", "line", "is_fresh"),
    [
        (3, True, "Counters read 3 s ago; limits read back from the kernel 6 s ago.", True),
        (60, True, "Counters read 1 min ago; limits read back from the kernel 1 min 3 s ago.", True),
        (
            61,
            True,
            "STALE: Counters read 1 min 1 s ago; limits read back from the kernel 1 min 4 s ago. "
            "The limiter is running but has not updated the state since.",
            False,
        ),
        (
            5,
            False,
            "Counters read 5 s ago; limits read back from the kernel 8 s ago. "
            "The limiter is not running; the limits that it set stay in the kernel.",
            False,
        ),
    ],
)
def test_an_old_state_says_how_old_it_is(age_s: int, is_running: bool, line: str, is_fresh: bool) -> None:
    later = NOW + timedelta(seconds=age_s)
    assert age_lines(state(), later, is_running=is_running, fresh_for_s=60) == ([line], is_fresh)
