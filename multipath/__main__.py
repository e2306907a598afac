"""The command line: arguments, progress on stderr, the result on stdout, and exit codes (mpget(1))."""

from __future__ import annotations

import argparse
import json
import re
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from multipath import VERSION, MpgetError, UsageError, metalink
from multipath.core import Download, Rules
from multipath.metalink import MAX_DOCUMENT_BYTES, Metalink
from multipath.part import Part
from multipath.paths import FORMS, candidates
from multipath.progress import Progress, clean
from multipath.transfer import Transfer

INTERRUPTED = 130
EPILOG = f"""\
PATH is {FORMS}; quote it.
With --metalink the URL may be left out.

Exit codes: 0 the file is there, 2 usage error, 3 all paths are dead, 4 the content has another hash than the Metalink
            says, 5 the file cannot be written, 130 interrupted. After 3, 5 and 130 --resume continues.
"""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="mpget",
        description="Fetch one file over several paths at once.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"mpget {VERSION}")
    top.add_argument("-o", "--output", metavar="FILE", help="default: the name in the Metalink or the URL")
    top.add_argument("--path", action="append", default=[], metavar="PATH", help="one path; give several")
    top.add_argument("--metalink", metavar="FILE|URL", help="mirrors, size and hashes of the file (RFC 5854)")
    top.add_argument("--max-paths", default="8", metavar="N", help="paths at work at a time (default 8)")
    weight = "paths below so many percent of the best one rest, and are probed again (default 20)"
    top.add_argument("--min-weight", default="20", metavar="N", help=weight)
    top.add_argument("--slot", default="2s", metavar="SECONDS", help="how often paths are compared (default 2s)")
    top.add_argument("--json", action="store_true", help="print what each path brought, and when")
    top.add_argument("--resume", action="store_true", help="continue an earlier download, if there is one")
    return top


def number(option: str, text: str, low: float, high: float) -> float:
    """Raises `UsageError`."""
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,4})?s?", text) or not low <= float(text.rstrip("s")) <= high:
        raise UsageError(f"{option} is {text!r}. Choose {low:g} to {high:g}.")
    return float(text.rstrip("s"))


def read_metalink(place: str) -> Metalink:
    """Of a file, or over the default route. Raises `UsageError`."""
    try:
        if place.startswith(("http://", "https://")):
            with urllib.request.urlopen(place, timeout=10) as answer:  # noqa: S310  HTTP or HTTPS, as just seen
                return metalink.parse(answer.read(MAX_DOCUMENT_BYTES + 1))
        with Path(place).open("rb") as file:
            return metalink.parse(file.read(MAX_DOCUMENT_BYTES + 1))
    except (OSError, ValueError) as exc:
        raise UsageError(f"The Metalink {place} cannot be read: {exc}.") from None


def target(name: str) -> Path:
    """A name given by others is never a way into another folder."""
    if name in ("", ".", "..") or "/" in name or not name.isprintable():
        raise UsageError(f"{name!r} is no name for a file here. Give -o FILE.")
    return Path(name)


def fetch(asked: argparse.Namespace) -> int:
    """Raises `UsageError` and `LocalError` before the first byte; afterwards returns the exit code."""
    link = read_metalink(asked.metalink) if asked.metalink else Metalink()
    most, least = number("--max-paths", asked.max_paths, 1, 64), number("--min-weight", asked.min_weight, 0, 100)
    rules = Rules(int(most), least, number("--slot", asked.slot, 0.1, 60))
    paths, twice = candidates(asked.path, link.mirrors)
    named = link.name or unquote(urlsplit(paths[0].url).path).rpartition("/")[2]
    file = Path(asked.output) if asked.output else target(named)
    part = Part(file, link.pieces, resume=asked.resume)
    reference, done = part.load()
    if reference is not None and link.size not in (None, reference.size):
        raise UsageError(f"{part.path} is of a file of {reference.size} bytes, not {link.size}. Delete it.")
    pieces = link.pieces.length if link.pieces else None
    core = Download(len(paths), rules, piece_bytes=pieces, size=link.size, reference=reference, done=done)
    progress = Progress(sys.stderr, paths, core)
    for path in twice:
        progress.say(f"{path} is given twice and used once.")
    code, problem = 0, ""
    try:
        Transfer(paths, core, part, progress.say, progress.draw).run()
        part.finish(core.size or 0, link.whole)
    except MpgetError as exc:
        code, problem = exc.code, str(exc)
    except KeyboardInterrupt:
        code, problem = INTERRUPTED, f"Interrupted. {part.path} has what came; --resume continues."
    progress.end(problem)
    if asked.json:
        print(json.dumps({"file": str(file), "exit_code": code, **progress.document()}))
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        return fetch(parser().parse_args(arguments))
    except MpgetError as exc:
        print(f"mpget: {clean(str(exc))}", file=sys.stderr)
        return exc.code


if __name__ == "__main__":
    sys.exit(main())
