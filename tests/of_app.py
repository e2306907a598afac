"""Names the test files of one app of the service: those that import more names from it than from any other app.

python -m tests.of_app usage
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("web", "unit", "contract", "property", "concurrency")


def app_of(path: Path) -> str | None:
    """The first one of several. Rows are imported by almost every test, so those of `testbed` count only if it imports
    nothing else. None: it imports none."""
    counted: Counter[str] = Counter()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("scionlab."):
            parts = (node.module or "").split(".")
            if parts[1:] not in (["testbed", "models"], ["accounts", "models"]):
                counted[parts[1]] += len(node.names)
            else:
                counted[parts[1]] += 0
    return counted.most_common(1)[0][0] if counted else None


def files_of(app: str) -> list[str]:
    paths = sorted(path for folder in FOLDERS for path in (ROOT / "tests" / folder).rglob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in paths if app_of(path) == app]


if __name__ == "__main__":
    found = files_of(sys.argv[1])
    if not found:
        sys.exit(f'No test file imports mostly from scionlab.{sys.argv[1]}. Run "./dev test -k {sys.argv[1]}".')
    print(*found)
