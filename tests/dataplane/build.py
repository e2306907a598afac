"""Compiles the limiter's program to the object file that is committed beside it.

    python -m tests.dataplane.build            write it, and `MADE`: of which source it is
    python -m tests.dataplane.build --check    compare it byte by byte, which `./dev lint` does

Debian 12's clang 14 made the one that is there; the same compiler makes the same bytes in every folder. Another one
makes other instructions, so it cannot judge the bytes, and `--check` says that nothing was compared.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from ap_agent.dataplane.program import OBJECT, SOURCE

CLANG_MAJOR = 14
MADE = Path(__file__).with_name("object.sha256")


def digests() -> str:
    """Of source and object, as `sha256sum` writes them."""
    return "".join(f"{hashlib.sha256(one.read_bytes()).hexdigest()}  {one.name}\n" for one in (SOURCE, OBJECT))


def clang_major() -> int:
    """Raises `OSError` where there is no clang."""
    words = subprocess.run(["clang", "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"clang version (\d+)", words)
    return int(found[1]) if found else 0


def compile_program(made: Path) -> Path:
    """`SOURCE` as an object file. A warning is an error."""
    target = ["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror", "-I/usr/include/x86_64-linux-gnu"]
    where = [f"-ffile-prefix-map={SOURCE.parent}=.", "-fdebug-compilation-dir=."]
    subprocess.run(["clang", *target, *where, "-c", str(SOURCE), "-o", str(made)], check=True, timeout=60, cwd="/")
    return made


def strip(made: Path) -> Path:
    """Leave what the kernel needs, and no words for debuggers."""
    subprocess.run(["llvm-strip", "-g", str(made)], check=True, timeout=60)
    return made


def check() -> str:
    """Raises `SystemExit` if clang makes another object."""
    if (major := clang_major()) != CLANG_MAJOR:
        return f"not compared: clang {major} is installed, clang {CLANG_MAJOR} made it"
    with tempfile.TemporaryDirectory() as folder:
        made = strip(compile_program(Path(folder, OBJECT.name)))
        if made.read_bytes() != OBJECT.read_bytes():
            sys.exit("its source gives another one. Run `python -m tests.dataplane.build` and commit what it writes.")
    return f"clang {CLANG_MAJOR} makes the same bytes"


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        print(check())
    else:
        strip(compile_program(OBJECT))
        MADE.write_text(digests(), encoding="utf-8")
