"""Where the SCION programs are: one folder per version and platform, made by `./dev scion`.

`go.mod` beside this file says which programs and which version, `go.sum` pins every module by hash, and
`requirements.txt` pins the Go toolchain.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from pathlib import Path

SOURCE = Path(__file__).resolve().parent
PINS = ("go.mod", "go.sum", "requirements.txt")
PROGRAMS = ("control", "daemon", "dispatcher", "router", "scion", "scion-pki")


def version() -> str:
    """Of SCION, as pinned: `v0.15.1`."""
    found = re.search(r"\sgithub\.com/scionproto/scion (v\S+)", (SOURCE / "go.mod").read_text(encoding="ascii"))
    if found is None:
        raise ValueError(f"{SOURCE / 'go.mod'} requires no version of github.com/scionproto/scion.")
    return found.group(1)


def cache() -> Path:
    """`$XDG_CACHE_HOME/scionlab-bandwidth`, in ~/.cache where that is not set."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "scionlab-bandwidth"


def folder() -> Path:
    """Of the programs that fit this checkout's pins and this machine, whether they are built or not."""
    pins = hashlib.sha256(b"".join((SOURCE / name).read_bytes() for name in PINS)).hexdigest()
    return cache() / f"scion-{version()}-{platform.machine()}-{pins[:8]}"


def program(name: str) -> Path:
    """One of `PROGRAMS`."""
    return folder() / name


def missing() -> str | None:
    """None where all programs are built, else one sentence on what to do."""
    if all(program(name).is_file() for name in PROGRAMS):
        return None
    return f"The SCION {version()} programs are not built; run ./dev scion once."
