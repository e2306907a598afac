"""Completion of the commands in bash and zsh: it keeps up with the parsers, and bash completes with it."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "packaging/completion"


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("completion_writer", FOLDER / "write.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_completions_are_those_of_the_parsers(writer: ModuleType) -> None:
    kept = {
        path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir() if path.suffix in {".bash", ".zsh"}
    }
    assert kept == writer.written(), "run packaging/completion/write.py"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("scionlab-bw-agent routes ver", ["verify"]),
        ("scionlab-bw-agent --config x.toml show --v", ["--verbose"]),
        ("scionlab-bw-agent enrol https://x --", ["--help", "--config", "--replace", "--credentials"]),
        ("scionlab-bw-agent enrol --credentials ", []),
        ("scionlab-bw profile st", ["stair"]),
        ("mpget --res", ["--resume"]),
    ],
)
def test_bash_completes(line: str, expected: list[str]) -> None:
    """As bash calls it: the words of the line, of which the last one is begun."""
    words = line.split(" ")
    program = words[0]
    script = f"""
        compopt() {{ :; }}  # works only while bash completes
        source {FOLDER / program}.bash
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _{program.replace("-", "_")}
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-u", "-c", script, "bash", *words], capture_output=True, text=True, check=True, timeout=30
    )
    assert (done.stdout.split(), done.stderr) == (expected, "")
