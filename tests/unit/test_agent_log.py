"""Log lines that people grep and nobody can forge, and text that stands in columns."""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from ap_agent.agent.receipt import build_receipt, news
from ap_agent.common.log import Conditions, configure, get_logger, quoted
from ap_agent.common.text import links_table, op_lines, problem_lines, remote_of, table
from ap_agent.model import Device, DirectionState, Filter, Handle, Key, LinkState, Problem
from ap_agent.ops import ClassDel, FilterAdd, Op
from bandwidth_config import Limits, check_link_info
from tests.agent_bundles import entry


def logged(level: str = "debug", *, under_systemd: bool = True) -> tuple[io.StringIO, Any]:
    stream = io.StringIO()
    configure(level, under_systemd=under_systemd, stream=stream)
    return stream, get_logger()


def test_line_is_the_event_and_its_pairs_in_order() -> None:
    stream, logger = logged()
    logger.info("reconcile.done", version="1.18", limits=7, added=1, changed=2, removed=0, ms=12)

    assert stream.getvalue() == "<6>reconcile.done version=1.18 limits=7 added=1 changed=2 removed=0 ms=12\n"


def test_without_systemd_level_and_time_stand_at_the_end() -> None:
    stream, logger = logged(under_systemd=False)
    logger.warning("x", a=1)

    assert re.fullmatch(r"x a=1 level=warning at=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z\n", stream.getvalue())


@pytest.mark.parametrize(("level", "shown"), [("debug", "7643"), ("info", "643"), ("warning", "43"), ("error", "3")])
def test_levels_become_the_journals_priorities(level: str, shown: str) -> None:
    stream, logger = logged(level)
    for name in ("debug", "info", "warning", "error"):
        getattr(logger, name)("x")

    assert re.findall(r"<(\d)>x", stream.getvalue()) == list(shown)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (True, "yes"),
        (False, "no"),
        (7, "7"),
        (0.5, "0.5"),
        ("eth0", "eth0"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ('say "x"', '"say \\"x\\""'),
        ("back\\slash", '"back\\\\slash"'),
        ("two\nlines", '"two\\nlines"'),
        ("\x1b[31mred", '"\\x1b[31mred"'),
        ("a\u2028b", '"a\\u2028b"'),
        ("\ud800", '"\\ud800"'),
        ("Zürich", "Zürich"),
        ("x" * 700, "x" * 597 + "..."),
    ],
)
def test_value_is_unambiguous_and_stays_on_its_line(value: object, text: str) -> None:
    assert quoted(value) == text


def test_nobody_can_write_a_line_of_his_own() -> None:
    stream, logger = logged()
    logger.error("problem.begin", message="x\n<6>reconcile.done version=9.9")

    assert stream.getvalue().count("\n") == 1


def test_traceback_is_one_line_and_whole() -> None:
    stream, logger = logged()
    try:
        raise ZeroDivisionError("y" * 700)
    except ZeroDivisionError:
        logger.exception("agent.bug")

    line = stream.getvalue()
    assert line.startswith("<3>agent.bug exception=")
    assert line.count("\n") == 1
    assert "y" * 700 in line


def test_conditions_are_news_once_and_again_after_they_passed() -> None:
    stream, logger = logged()
    conditions = Conditions(logger)
    away = Problem("service_unreachable", "u", "The service answered 503.")
    other = Problem("service_unreachable", "u", "The service answered 500.")

    conditions.update([away], 0.0, warnings=frozenset({"service_unreachable"}))
    conditions.update([other], 10.0, warnings=frozenset({"service_unreachable"}))
    conditions.update([], 20.0)
    conditions.update([], 30.0)
    conditions.update([away], 40.0)

    assert stream.getvalue().splitlines() == [
        '<4>problem.begin code=service_unreachable subject=u message="The service answered 503."',
        "<6>problem.end code=service_unreachable subject=u lasted_s=20 times=2",
        '<3>problem.begin code=service_unreachable subject=u message="The service answered 503."',
    ]


def test_stdout_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", under_systemd=True)
    get_logger().info("x")

    assert capsys.readouterr().out == "<6>x\n"


# --- text -------------------------------------------------------------------------------------------------------------


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert table(("A", "NUMBER"), [("long cell", "1"), ("x", "1 000 000")], right=frozenset({"NUMBER"})) == (
        "A             NUMBER\nlong cell          1\nx          1 000 000"
    )


def test_links_without_extras_are_shown_too() -> None:
    links = check_link_info(
        {"4": {"AS_ID": 1, "IsUserAS": True, "Bandwidth": 5, "IP-Address": "192.0.2.5"}, "5": entry(1, "2001:db8::5")}
    )

    assert remote_of(links[4]) == "192.0.2.5"
    assert remote_of(links[5]) == "[2001:db8::5]:50000"
    shown = links_table(links, [LinkState(4, Limits.both(5), "error", "no route", None, None)])
    assert re.search(r"^   4  -        192\.0\.2\.5 ", shown, flags=re.MULTILINE)
    assert "nothing" in shown
    assert links_table(links, []) == "There are no limited links in this configuration."


def test_problem_of_a_link_is_not_said_twice() -> None:
    states = [
        LinkState(4, Limits.both(5), "error", "no route", None, None),
        LinkState(5, Limits.both(5), "error", "other", None, None),
    ]

    assert problem_lines([Problem("no_route", "link 4", "no route")], states) == [
        "no_route (link 4): no route",
        "link 5 is not enforced: other",
    ]


def test_filters_are_counted_by_device_and_link() -> None:
    eth0, eth1 = Device(2, "eth0"), Device(3, "eth1")

    def add(device: Device, link: int, value: int) -> Op:
        one = Filter(Handle(1), 110, 0x0800, (Key(12, value, 0xFFFFFFFF),), flowid=Handle(1, 0x1001))
        return FilterAdd(device, frozenset({link}), one)

    ops = [
        add(eth0, 1, 1),
        add(eth0, 1, 2),
        add(eth0, 2, 3),
        ClassDel(eth0, frozenset({9}), Handle(1, 9)),
        add(eth1, 1, 4),
    ]

    assert op_lines(ops, verbose=False) == [
        "eth0: add 2 filters for link 1",
        "eth0: add 1 filter for link 2",
        "eth0: delete class 1:9 (link 9, to the user AS)",
        "eth1: add 1 filter for link 1",
    ]
    assert op_lines(ops, verbose=True) == [str(op) for op in ops]


def test_counters_and_times_are_no_news_but_rates_and_problems_are() -> None:
    state = LinkState(1, Limits.both(500), "enforced", None, None, None)

    def receipt(**changes: Any) -> dict[str, Any]:
        values = {
            "version": "1.1",
            "limits_version": 1,
            "observed_at": datetime.now(UTC),
            "writes": 0,
            "links": [state],
            "problems": [],
            "limits_digest": "d" * 64,
            "run": "a" * 32,
            "number": 1,
            "clock_skew_ms": None,
            **changes,
        }
        return build_receipt(**values)

    assert news(receipt()) == news(receipt(writes=7, number=2, clock_skew_ms=30))
    assert news(receipt()) != news(receipt(limits_digest="e" * 64))
    assert news(receipt()) != news(receipt(limits_version=2))
    assert news(receipt()) != news(receipt(problems=[Problem("a", "b", "c")]))
    assert news(receipt()) != news(receipt(links=[LinkState(1, Limits.both(500), "error", "x", None, None)]))

    def following(to_user: int, from_user: int, in_kernel: int) -> dict[str, Any]:
        directions = [DirectionState(dev, in_kernel, 1, 1, 0, 0) for dev in ("eth0", "slbw0")]
        return receipt(links=[LinkState(1, Limits(to_user, from_user), "enforced", None, *directions)])

    # What the clock wants and the kernel has is no news, anything else is.
    assert news(following(500, 500, 500)) == news(following(300, 300, 300))
    assert news(following(500, 500, 500)) != news(following(500, 300, 500))
    assert news(following(500, 500, 500)) != news(following(500, 500, 300))

    def following(to_user: int, from_user: int, in_kernel: int) -> dict[str, Any]:
        directions = [DirectionState(dev, in_kernel, 1, 1, 0, 0) for dev in ("eth0", "slbw0")]
        return receipt(links=[LinkState(1, Limits(to_user, from_user), "enforced", None, *directions)])

    # What the clock wants and the kernel has is no news, anything else is.
    assert news(following(500, 500, 500)) == news(following(300, 300, 300))
    assert news(following(500, 500, 500)) != news(following(500, 300, 500))
    assert news(following(500, 500, 500)) != news(following(500, 500, 300))
