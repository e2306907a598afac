"""One word and one colour for each state, on the site, in the sentences and on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from scionlab.enforcement.words import NOT_IN_FORCE, WORDS, State
from scionlab_bw import tables

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
