"""The first engine comes out of git as it was, or a sentence says why it does not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench import first_engine
from bench.first_engine import COMMIT, FirstEngineMissingError, missing, published, tree


@pytest.fixture
def shallow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone that has none of the first engine's commits."""
    monkeypatch.setenv("SCIONLAB_VAR", str(tmp_path / "var"))
    clone = tmp_path / "clone"
    subprocess.run(["git", "init", "-q", str(clone)], check=True)
    return clone


def test_a_shallow_clone_says_in_one_sentence_that_it_cannot_compare(shallow: Path) -> None:
    sentence = f"Not compared with the first engine: this clone has no commit {COMMIT}; fetch it with "
    assert missing(shallow) == sentence + "`git fetch --unshallow`."
    with pytest.raises(FirstEngineMissingError, match="this clone has no commit"):
        tree(shallow)


def test_the_first_engine_is_taken_out_once_with_what_it_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCIONLAB_VAR", str(tmp_path))
    if missing() is not None:  # in a shallow clone there is nothing to take, which is said
        with pytest.raises(FirstEngineMissingError):
            tree()
        return
    found = tree()
    assert found == tmp_path / "tmp" / f"first-engine-{COMMIT}"
    assert (found / "ap_agent" / "whole" / "assembler.py").exists()
    assert (published("sizes") or "").startswith("experiment,limiter,direction,")
    assert published("fairness") is None
    monkeypatch.setattr(first_engine, "_git", None)  # nobody is asked again
    assert tree() == found
