"""What the cockpit says of agents' problems."""

from __future__ import annotations

import re
from pathlib import Path

from scionlab.enforcement.explanations import EXPLANATIONS
from scionlab.enforcement.problems import reported

DOCS = Path(__file__).resolve().parents[2] / "docs" / "agent.md"


def test_every_code_that_an_agent_can_report_is_explained() -> None:
    text = DOCS.read_text(encoding="utf-8").partition("## Problems, and what to do")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    documented = {code for row in rows for code in re.findall(r"`([a-z_]+)`", row)}
    assert len(documented) > 30
    assert documented == set(EXPLANATIONS)
    for code, one in EXPLANATIONS.items():
        assert one.meaning.endswith("."), code
        assert one.remedy.endswith("."), code


def test_what_is_not_known_here_is_shown_in_the_agents_words() -> None:
    newer, odd = reported([{"code": "quantum_flux", "subject": "eth1", "message": "It leaks."}, "odd"])
    assert (newer.code, newer.subject, newer.message, newer.tone) == ("quantum_flux", "eth1", "It leaks.", "bad")
    assert "newer than this service" in newer.explanation.meaning
    assert odd.message == "odd"
