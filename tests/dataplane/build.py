"""Compiles the limiter's program to the object file that is committed beside it.

    python -m tests.dataplane.build

Debian 12's clang 14 made the one that is there; the same compiler makes the same bytes in every folder.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from ap_agent.dataplane.program import OBJECT, SOURCE

CLANG_MAJOR = 14


def clang_major() -> int:
    """Raises `OSError` where there is no clang."""
    words = subprocess.run(["clang", "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"clang version (\d+)", words)
    return int(found[1]) if found else 0


def compile_program(made: Path) -> Path:
    """`SOURCE` as an object file with what the kernel needs, and no words for debuggers."""
    target = ["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror", "-I/usr/include/x86_64-linux-gnu"]
    where = [f"-ffile-prefix-map={SOURCE.parent}=.", "-fdebug-compilation-dir=."]
    subprocess.run(["clang", *target, *where, "-c", str(SOURCE), "-o", str(made)], check=True, timeout=60, cwd="/")
    subprocess.run(["llvm-strip", "-g", str(made)], check=True, timeout=60)
    return made


if __name__ == "__main__":
    compile_program(OBJECT)
