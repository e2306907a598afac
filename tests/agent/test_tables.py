"""What `plan`, `once` and `show` print: enough for who must decide, and the parts for who asks for them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from ap_agent.commands.tables import error_lines, failures, plan_lines, state_lines
from ap_agent.dataplane.outcome import LinkChange, Outcome, Plan
from ap_agent.document.state import LinkState, Total
from ap_agent.usage.table import Report, Used
from ap_agent.usage.table import table as usage_table
from bandwidth_config import Limits
from contract.link_info import LinkInfo, check_link_info
from scionlab_bw.tables import facts
from tests.agent_bundles import entry
from tests.agent_limiter import direction, limiter_state, link_state

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


def changed(
    links: tuple[LinkChange, ...] = (),
    devices: dict[str, str] | None = None,
    operations: tuple[str, ...] = (),
    failed: dict[int, str] | None = None,
) -> Outcome:
    return Outcome(Plan(links, devices or {}, operations), failed=failed or {})  # type: ignore[arg-type]  # their words


def plain(lines: list[str]) -> str:
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")


def links(**more: dict[str, Any]) -> dict[int, LinkInfo]:
    return check_link_info({number.strip("_"): value for number, value in more.items()})


def planned(changes: Outcome, of: dict[int, LinkInfo], **options: bool) -> str:
    chosen = {"is_done": False, "is_observe_only": False, "verbose": False} | options
    return plain(plan_lines(changes, of, NOW, **chosen))


# --- plan -------------------------------------------------------------------------------------------------------------


def test_a_plan_has_a_row_for_each_link_a_line_for_each_device_and_what_is_not_touched() -> None:
    of = links(_1=entry(500) | {"Observe": True}, _2=entry(0, "2001:db8::7"), _7=entry(9, is_user_as=False))
    rows = (
        LinkChange(0, None, Limits.both(5000)),
        LinkChange(1, None, Limits(500, 20)),
        LinkChange(2, Limits.both(700), Limits.both(0)),
        LinkChange(4, Limits.both(9), None),
        LinkChange(5, Limits(8, 9), Limits(8, 9)),
    )
    shown = planned(changed(rows, {"eth0": "add 1 hook"}, ("op 1", "op 2")), of, verbose=True)

    assert [" ".join(line.split()) for line in shown.splitlines() if line][1:] == [
        "0 other traffic any none 5 000 kbit/s limit",
        "1 17-ffaa:1:b6 192.0.2.11:50000 none 500 kbit/s / 20 kbit/s observe",
        "2 17-ffaa:1:b6 [2001:db8::7]:50000 700 kbit/s blocked block",
        "4 - - 9 kbit/s none remove the limit",
        "5 - - 8 kbit/s / 9 kbit/s 8 kbit/s / 9 kbit/s set again",
        "Limits apply per direction, or: to the user AS / from it.",
        "eth0: add 1 hook",
        "2 operations in the kernel; no foreign object is touched.",
        "op 1",
        "op 2",
    ]


def test_thousands_of_unchanged_links_are_counted_beside_those_that_change() -> None:
    of = links(**{f"_{number}": entry(500, "192.0.2.9", port=50000 + number) for number in range(1, 101)})
    changes = changed((LinkChange(40, Limits.both(400), Limits.both(500)),), {}, ("op",), {})

    shown = planned(changes, of)
    assert shown.count("17-ffaa:1:b6") == 1
    assert "99 more links unchanged (-v lists them)." in shown
    assert planned(changes, of, verbose=True).count("17-ffaa:1:b6") == 100


# --- show -------------------------------------------------------------------------------------------------------------


def test_each_direction_shows_one_number_of_drops_and_its_parts_on_request() -> None:
    to_user = direction(500, 993_486, refused=150, dropped=5, backlog=3000)
    found = limiter_state({1: link_state(1, to_user=to_user)})

    brief = plain(state_lines(found, links(_1=entry(500)), verbose=False)).splitlines()
    assert brief[1] == "   1  17-ffaa:1:b6  enforced  to the user AS    500 kbit/s     993 486    155"
    whole = plain(state_lines(found, links(_1=entry(500)), verbose=True)).splitlines()
    assert whole[5] == "   1  to the user AS        993      150               5       3 000           0"


def test_tables_fit_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("terminal", "scionlab_bw.tables"):
        monkeypatch.setattr(f"{module}.columns", lambda: 80)
    busy = direction(100_000_000, 99_999_999_999, refused=9_999_999, dropped=9)
    found = limiter_state({4094: link_state(4094, 100_000_000, to_user=busy, from_user=busy)})
    of = links(_4094=entry(100_000_000, "2001:db8:1111:2222:3333:4444:5555:6666") | {"ISD-AS": "65535-ffff:ffff:ffff"})
    change = changed((LinkChange(4094, Limits(100_000_000, 99_999_999), Limits(1, 99_999_999)),), {}, ("op",), {})
    used = Report(0, "1.18", {(4094, "to_user"): Used(100_000_000, 99_999_999.9, 99_999.9, 1, 1, 1, 1)})

    shown = [plain(state_lines(found, of, verbose=True)), planned(change, of), "\n".join(usage_table(used, {}))]
    assert [line for text in shown for line in text.splitlines() if len(line) > 80 and "  " in line] == []
    assert "99 999 999 999" in shown[0]
    text = facts([("State", "no report since 2026-11-22 12:00:00 CET"), ("", "The agent has not reported. " * 5)])
    assert max(map(len, text.splitlines())) <= 80
    assert text.splitlines()[2].startswith("       ")


def test_the_rest_of_a_state_stands_below_its_table() -> None:
    found = limiter_state(
        {1: LinkState(1, Limits.both(5), "error", "gone", None, None)},
        total=Total(10_000, 10_000, None),
        unmatched=(direction(1000, 5000, refused=2, dropped=1), None),
        is_observe_only=True,
        next_step_at=NOW,
    )
    lines = plain(state_lines(found, {}, verbose=False)).splitlines()

    assert sum("nothing" in line for line in lines) == 2
    for line in (
        "All links together: 10 Mbit/s requested; enforced: 10 Mbit/s to the users, none from them.",
        "Traffic that belongs to no link, to them: 1 000 kbit/s, 5 000 B passed, 3 packets dropped",
        "Traffic that belongs to no link, from them: not in the kernel",
        "Observe only: all links are measured, none is limited.",
    ):
        assert line in lines


def test_a_limit_of_other_traffic_that_is_not_in_force_is_marked() -> None:
    why = "A qdisc is in the way."
    sides = (direction(1000, 5000), None)
    found = limiter_state({1: link_state(1)}, unmatched=sides, unmatched_problem=why)

    lines = plain(state_lines(found, {}, verbose=False)).splitlines()
    assert "Traffic that belongs to no link, to them: failed; 1 000 kbit/s, 5 000 B passed, 0 packets dropped" in lines
    assert "Traffic that belongs to no link, from them: failed; not in the kernel" in lines
    assert error_lines([], failures(found)) == [f"traffic that belongs to no link is not enforced: {why}"]
