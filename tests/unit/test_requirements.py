"""What is installed is used: each requirement of a program is named in its code."""

from __future__ import annotations

import re
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Django imports these itself, by what the settings choose.
BY_DJANGO = {"psycopg": "postgresql", "argon2-cffi": "Argon2PasswordHasher"}
CODE = {"web": ("scionlab", "config_tar.py"), "agent": ("ap_agent",)}


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
            modules.setdefault(distribution.lower(), set()).add(module)
    text = code(program)
    wanted = requirements(program)
    assert len(wanted) >= 5
    unused = [
        name
        for name in wanted
        if not any(
            re.search(rf"\b{re.escape(one)}\b", text) for one in {*modules[name.lower()], BY_DJANGO.get(name, name)}
        )
    ]
    assert unused == []
