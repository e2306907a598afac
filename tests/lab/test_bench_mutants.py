"""What the published mutation scores are of: files that exist, figures that were measured."""

from __future__ import annotations

import json

import pytest

from lab.bench.core import REPOSITORY
from lab.bench.mutants import FIGURES, PAGE, Module, MutantsError, cell, modules, table
from lab.bench.report import replace_between


def test_every_module_and_test_file_exists() -> None:
    for path, module in modules().items():
        assert (REPOSITORY / path).is_file(), path
        assert module.files() != []
    with pytest.raises(MutantsError, match=r"a\.py: no test file tests/unit/test_gone\.py"):
        Module("a.py", ["tests/system/test_docs.py", "tests/unit/test_gone.py"], 9).files()


def test_only_kills_count() -> None:
    assert cell({"killed": 3, "survived": 1, "no test": 2, "time-out": 1, "other": 1}) == (
        "38 % of 8 (3 killed, 1 survived, 2 no test, 1 time-out, 1 other)"
    )
    assert cell({"survived": 2}) == "0 % of 2 (2 survived)"


def test_the_page_shows_what_was_measured() -> None:
    page = PAGE.read_text(encoding="utf-8")
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    assert page == replace_between(page, "mutants", table(figures).markdown())
