"""The object file that is committed is the one that the source gives."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ap_agent.dataplane.program import OBJECT
from tests.dataplane.build import CLANG_MAJOR, clang_major, compile_program


def test_the_committed_object_is_what_the_source_gives(tmp_path: Path) -> None:
    if shutil.which("clang") is None or shutil.which("llvm-strip") is None:
        pytest.skip("clang and llvm-strip are not installed")
    if clang_major() != CLANG_MAJOR:
        pytest.skip(f"clang {clang_major()} is installed, the object is made by clang {CLANG_MAJOR}")
    made = compile_program(tmp_path / "limiter.bpf.o")
    assert made.read_bytes() == OBJECT.read_bytes(), "run `python -m tests.dataplane.build` and commit the object"
