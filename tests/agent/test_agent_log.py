"""Log lines that people grep and nobody can forge."""

from __future__ import annotations

import io

import pytest

from ap_agent.common.log import Conditions, configure, get_logger, quoted
from ap_agent.common.problem import Problem


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (True, "yes"),
        (0.5, "0.5"),
        ("eth0", "eth0"),
        ('say "x"', '"say \\"x\\""'),
        ("two\nlines", '"two\\nlines"'),
        ("\x1b[31mred", '"\\x1b[31mred"'),
        ("\ud800", '"\\ud800"'),
        ("x" * 700, "x" * 597 + "..."),
    ],
)
def test_value_is_unambiguous_and_stays_on_its_line(value: object, text: str) -> None:
    assert quoted(value) == text


def test_conditions_are_news_once_and_again_after_they_passed() -> None:
    stream = io.StringIO()
    configure("debug", under_systemd=True, stream=stream)
    conditions = Conditions(get_logger())
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
