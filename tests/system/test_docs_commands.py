"""The commands of the guides: tests that they name are there and are selected, modules and names can be imported."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from _pytest.mark import Expression, KeywordMatcher

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def lines_of_code() -> Iterator[tuple[str, str]]:
    """Page and text: each line of a block, and what stands between backticks."""
    for path in PAGES:
        name, text = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        blocks = re.findall(r"^```\w*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
        for block in blocks:
            yield from ((name, line) for line in block.replace("\\\n", " ").splitlines())
        yield from (
            (name, span) for span in re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
        )


def selections() -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Page, files or folders, and the expression of `-k`, of each choice of tests. One that begins with `-k` is of the
    files before it."""
    files: tuple[str, ...] = ()
    for page, code in lines_of_code():
        if not re.match(r"(.*\btests/\w|-k )", code) or re.search(r"[*<{]|\.\./", code):
            continue
        words = shlex.split(code)
        named = tuple(word for word in words if re.fullmatch(r"tests/[\w/]+(\.py)?(::\w+)*", word))
        files = named or files
        if named or code.startswith("-k "):
            yield page, files, words[words.index("-k") + 1] if "-k" in words else ""


class Collected:
    """A plugin that keeps what is collected."""

    items: tuple[pytest.Item, ...] = ()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.items = tuple(items)


def selecting_nothing() -> Iterator[str]:
    """For a process of its own: collects the files of which guides choose some tests."""
    each = {(page, name, expression) for page, names, expression in selections() for name in names}
    named, collected = {name.partition("::")[0] for _, name, _ in each}, Collected()
    yield from (f"{name} is not there" for name in named if not (ROOT / name).exists())
    chosen = sorted((page, name, expression) for page, name, expression in each if expression)
    tests = sorted({name for _, name, _ in chosen if (ROOT / name.partition("::")[0]).exists()})
    if tests:  # without any, pytest would collect all
        pytest.main(["--collect-only", "-qq", "-p", "no:randomly", *tests], plugins=[collected])
    for page, name, expression in chosen:
        matches = Expression.compile(expression).evaluate
        items = [item for item in collected.items if item.nodeid.startswith(name)]
        if not any(matches(KeywordMatcher.from_item(item)) for item in items):
            yield f"{page}: {name} -k {expression!r} selects no test"


if __name__ == "__main__":
    print("\n".join(["wrong:", *selecting_nothing()]))


def test_guides_choose_tests_that_are_there() -> None:
    assert len(list(selections())) > 40
    done = subprocess.run(
        [sys.executable, "-m", "tests.system.test_docs_commands"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.partition("wrong:\n")[2] == ""


def test_guides_run_modules_and_import_names_that_are_there() -> None:
    wrong, seen = [], set()
    for page, code in lines_of_code():
        for module in re.findall(r"\bpython3? -m ([\w.]+)", code):
            seen.add(module)
            if find_spec(module) is None:
                wrong.append(f"{page}: python -m {module}")
        for statement in re.findall(r"\bfrom [\w.]+ import [\w, ]+", code):
            (one,) = ast.parse(statement).body
            assert isinstance(one, ast.ImportFrom)
            try:
                found = importlib.import_module(str(one.module))
            except ImportError:
                found = None
            wrong += [f"{page}: {one.module}.{name.name}" for name in one.names if not hasattr(found, name.name)]
            seen.add(str(one.module))
    assert {"scionlab.scion_config.models", "tests.servers"} <= seen
    assert wrong == []
