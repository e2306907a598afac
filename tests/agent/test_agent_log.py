"""Log lines that people grep and nobody can forge."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from ap_agent.common.log import Conditions, configure, get_logger, quoted
from ap_agent.common.problem import Problem
from ap_agent.common.text import remote_of
from contract.link_info import check_link_info
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


def test_an_address_without_a_port_stands_alone_and_one_of_ipv6_in_brackets() -> None:
    links = check_link_info(
        {"4": {"AS_ID": 1, "IsUserAS": True, "Bandwidth": 5, "IP-Address": "192.0.2.5"}, "5": entry(1, "2001:db8::5")}
    )

    assert remote_of(links[4]) == "192.0.2.5"
    assert remote_of(links[5]) == "[2001:db8::5]:50000"
