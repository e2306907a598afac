"""One word and one colour for each state, on the site, in the sentences and on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from scionlab.enforcement import status
from scionlab.enforcement.judgement import Stage
from scionlab.enforcement.words import NOT_IN_FORCE, WORDS, State
from scionlab.web.admin.columns import Tone
from scionlab_bw import tables

STATIC = Path(__file__).resolve().parents[2] / "scionlab" / "web" / "static" / "scionlab"
ICONS = Path(__file__).resolve().parents[2] / "templates" / "web" / "parts" / "icons.html"


@pytest.mark.parametrize("state", get_args(State))
def test_a_state_has_a_word_a_colour_an_icon_and_an_explanation(state: State) -> None:
    word = WORDS[state]
    assert word.word.lower() == state.replace("_", " ") == tables.state({"state": state, "stage": "failed"})
    assert word.explanation.endswith(".")
    assert f'id="stage-{state}"' in ICONS.read_text(encoding="utf-8")


def test_the_table_has_every_state_once_and_the_command_line_knows_the_same() -> None:
    assert set(WORDS) == set(get_args(State)) == set(tables.STATES)
    assert list(WORDS)[: len(NOT_IN_FORCE)] == list(NOT_IN_FORCE), "what is not in force comes first on pages"


@pytest.mark.parametrize("tone", get_args(Tone))
def test_both_style_sheets_know_every_colour(tone: Tone) -> None:
    assert f".slb-{tone} {{" in (STATIC / "admin.css").read_text(encoding="utf-8")
    if tone != "quiet":  # the badge's own colour
        assert f".stage.tone-{tone} {{" in (STATIC / "site.css").read_text(encoding="utf-8")


def test_every_stage_has_a_sentence() -> None:
    assert set(status._SAID) == set(get_args(Stage))
