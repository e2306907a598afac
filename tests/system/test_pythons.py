"""Every source file means the same to each Python of the range, from Debian 12's 3.11.2 on."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    paths = [REPOSITORY / name for name in listed.stdout.split()]
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths if path.exists()}  # not just deleted


def docstrings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node, clean=False) or ""


def test_each_file_compiles_without_a_warning_and_has_docstrings_that_utf_8_can_encode(
    trees: dict[Path, ast.Module],
) -> None:
    """Python 3.13 cleans docstrings while it compiles, and refuses a lone surrogate in them."""
    assert len(trees) > 1000
    for path, tree in trees.items():
        compile(tree, path, "exec", dont_inherit=True)  # a warning is an error, as in all tests
        assert [one for one in docstrings(tree) if one != one.encode("utf-8", "replace").decode("utf-8")] == [], path


def test_no_file_unpacks_with_what_debian_12s_tarfile_lacks(trees: dict[Path, ast.Module]) -> None:
    """`filter=` came with 3.11.4; without it Python 3.12 warns. The program `tar` unpacks."""
    assert [
        path
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in {"extractall", "data_filter"}
    ] == []
