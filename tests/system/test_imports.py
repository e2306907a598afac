"""What the modules at the top may import, and how long a module may be. import-linter checks the packages."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("module", "ours"),
    [
        ("bandwidth_config.py", set()),  # both programs import it, so it imports neither
        ("contract/link_rules.py", {"bandwidth_config"}),
        ("contract/link_tests.py", {"bandwidth_config", "contract"}),
        ("contract/link_info.py", {"bandwidth_config", "contract"}),
        ("contract/scion_files.py", {"bandwidth_config"}),
        ("terminal.py", set()),  # the client of users is installed without our rules
        # takes a host by plain attributes and keys as values: needs no Django
        ("config_tar.py", {"bandwidth_config", "contract"}),
    ],
)
def test_top_module_imports_the_standard_library_only(module: str, ours: set[str]) -> None:
    imported = set()
    for node in ast.walk(ast.parse((ROOT / module).read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert imported - set(sys.stdlib_module_names) == ours
