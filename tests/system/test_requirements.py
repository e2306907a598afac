"""What is installed is used: each requirement of a program is named in its code."""

from __future__ import annotations

import re
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Django and uvicorn import these themselves, by what is chosen here.
INDIRECTLY = {"psycopg": "postgresql", "argon2-cffi": "Argon2PasswordHasher", "httptools": "httptools_impl"}
CODE = {"web": ("scionlab", "config_tar.py", "contract"), "agent": ("ap_agent",)}


def requirements(program: str) -> list[str]:
    lines = (ROOT / f"requirements/{program}.in").read_text().splitlines()
    return [found[0] for line in lines if (found := re.match(r"[A-Za-z][A-Za-z0-9_-]*", line))]


def code(program: str) -> str:
    files = [
        file
        for name in CODE[program]
        for file in ([ROOT / name] if name.endswith(".py") else (ROOT / name).rglob("*.py"))
    ]
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


@pytest.mark.parametrize("program", CODE)
def test_every_requirement_is_used_by_its_program(program: str) -> None:
    modules: dict[str, set[str]] = {}
    for module, distributions in packages_distributions().items():
        for distribution in distributions:
            modules.setdefault(re.sub(r"[-_.]+", "-", distribution).lower(), set()).add(module)
    text, wanted = code(program), requirements(program)
    assert len(wanted) >= 4
    assert [name for name in wanted if not is_used(text, modules[name.lower()], INDIRECTLY.get(name))] == []


def is_used(text: str, modules: set[str], otherwise: str | None) -> bool:
    """Imported, or named by a setting."""
    imported = any(re.search(rf"^\s*(import|from) {one}\b|\"{one}[.\"]", text, flags=re.MULTILINE) for one in modules)
    return imported or (otherwise is not None and otherwise in text)
