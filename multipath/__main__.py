"""The command line: arguments, progress on stderr, the result on stdout, and exit codes (mpget(1))."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO
from urllib.parse import unquote, urlsplit

from multipath import VERSION, LocalError, MpgetError, UsageError
from multipath.core import Download, Rules
from multipath.part import Part
from multipath.paths import FORMS, MAX_DOCUMENT_BYTES, Metalink, candidates, parse_metalink
from multipath.state import State
from multipath.transfer import Transfer

BAR = 20
DRAW_S, LINE_S, SERIES_S = 0.2, 10.0, 0.5


def clean(text: str) -> str:
    """Remove control characters from foreign text."""
    return "".join(one if one.isprintable() else "?" for one in text)


def _rate(bytes_s: float) -> str:
    kbit = bytes_s / 125
    return f"{kbit:,.0f} kbit/s" if kbit < 10_000 else f"{kbit / 1000:,.1f} Mbit/s"


def _screen(out: TextIO) -> tuple[int, int]:
    """Columns and lines of a terminal."""
    try:
        columns, lines = os.get_terminal_size(out.fileno())
    except OSError:
        columns = lines = 0
    return columns or 80, lines or 24


class Progress:
    def __init__(self, out: TextIO, paths: Sequence[object], core: Download) -> None:
        self._out, self._paths, self._core, self._bars = out, paths, core, out.isatty()
        self._began_s = time.monotonic()
        self._next_s = self._began_s + (0 if self._bars else LINE_S)
        self._drawn = 0  # lines of bars above the cursor
        self._told: dict[int, str] = {}
        self._series: list[list[int]] = [[] for _ in paths]

    def say(self, text: str) -> None:
        self._clear()
        print(f"mpget: {clean(text)}", file=self._out, flush=True)

    def draw(self) -> None:
        now, core = time.monotonic(), self._core
        while now - self._began_s >= SERIES_S * (len(self._series[0]) + 1):
            for path, series in zip(core.paths, self._series, strict=True):
                series.append(path.received)
        self._tell()
        if now >= self._next_s:
            self._next_s = now + (DRAW_S if self._bars else LINE_S)
            self._draw_bars() if self._bars else self.say(self._total())

    def _tell(self) -> None:
        for index, path in enumerate(self._core.paths):
            text = f"{'out' if path.state is State.OUT else 'failed'}: {path.reason}" if path.reason else ""
            if path.state is State.ACTIVE and not path.ranged:
                lacks = "ETag or Last-Modified" if path.facts and path.facts.ranged else "Range"
                text = text or f"the server has no {lacks}, so this path is used alone"
            if text and text != self._told.get(index):
                self._told[index] = text
                self.say(f"{self._paths[index]}: {text}.")

    def _total(self) -> str:
        rate = sum(one.rate for one in self._core.paths if one.is_at_work)
        return f"{self._core.done.total:,} of {self._core.size or 0:,} bytes, {_rate(rate)}"

    def _draw_bars(self) -> None:
        """At most a screen, each line within its width: what wraps or scrolls is not drawn over."""
        self._clear()
        columns, lines = _screen(self._out)
        size, shown = self._core.size or 1, []
        for name, path in zip(self._paths, self._core.paths, strict=True):
            full = "#" * (BAR * min(path.received, size) // size)
            said = _rate(path.rate) if path.is_at_work else path.state.value
            bar = f" [{full:{BAR}}] {path.received:>15,} {said:14}"
            width = max(8, columns - 1 - len(bar))
            shown.append(f"{clean(str(name))[:width]:{width}}{bar}"[: columns - 1].rstrip())
        if len(shown) > lines - 2:
            rest = len(shown) - max(0, lines - 3)
            shown[-rest:] = [f"and {rest} more paths"[: columns - 1]]
        shown.append(self._total()[: columns - 1])
        print(*shown, sep="\n", file=self._out, flush=True)
        self._drawn = len(shown)

    def _clear(self) -> None:
        self._out.write(f"\x1b[{self._drawn}A\x1b[J" if self._drawn else "")
        self._drawn = 0

    def end(self, problem: str) -> None:
        core, self._seconds = self._core, time.monotonic() - self._began_s
        self._tell()
        for name, path in zip(self._paths, core.paths, strict=True):
            self.say(f"{name}: {path.received:,} bytes, {_rate(path.received / self._seconds)}")
        self.say(
            f"{core.done.total:,} bytes in {self._seconds:.1f} s; received twice or wrong: {core.waste:,} bytes "
            f"({100 * core.waste / (core.size or 1):.1f} %), requested and abandoned: {core.abandoned:,}"
        )
        if problem:
            self.say(problem)

    def document(self) -> dict[str, object]:
        """Bytes and seconds; for each path also the bytes received after each interval."""
        core, paths = self._core, []
        for name, path, series in zip(self._paths, core.paths, self._series, strict=True):
            kept = {key: value for key, value in vars(path).items() if key in ("reason", "handshake_s", "rests")}
            kept |= {"path": str(name), "state": path.state.value, "wrong_pieces": path.wrong}
            paths.append(kept | {"received_bytes": path.received, "series_bytes": series})
        sums = {"size_bytes": core.size, "done_bytes": core.done.total, "seconds": self._seconds}
        waste = {"waste_bytes": core.waste, "abandoned_bytes": core.abandoned}
        return {**sums, **waste, "interval_s": SERIES_S, "paths": paths}


INTERRUPTED = 130
EPILOG = f"""\
PATH is {FORMS};
quote it. With --metalink the URL may be left out.

Exit codes: 0 the file is there, 2 usage error, 3 all paths are dead,
            4 the content has another hash than the Metalink says,
            5 the file cannot be written, 130 interrupted.
            After 3, 5 and 130 --resume continues, if the server can.
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
    weight = "paths below this percentage of the best one are paused, and probed again (default 20)"
    top.add_argument("--min-weight", default="20", metavar="N", help=weight)
    top.add_argument("--slot", default="2s", metavar="SECONDS", help="how often paths are compared (default 2s)")
    top.add_argument("--json", action="store_true", help="print what each path delivered, and when")
    top.add_argument("--resume", action="store_true", help="continue an earlier download, if there is one")
    return top


def number(option: str, text: str, low: float, high: float) -> float:
    """Raises `UsageError`."""
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,4})?s?", text) or not low <= float(text.rstrip("s")) <= high:
        raise UsageError(f"{option} is {text!r}. Choose {low:g} to {high:g}.")
    return float(text.rstrip("s"))


def read_metalink(place: str) -> Metalink:
    """From a file, or over the default route. Raises `UsageError`."""
    try:
        is_web = place.startswith(("http://", "https://"))
        with urllib.request.urlopen(place, timeout=10) if is_web else Path(place).open("rb") as file:  # noqa: S310
            return parse_metalink(file.read(MAX_DOCUMENT_BYTES + 1))
    except urllib.error.HTTPError as exc:
        exc.close()  # it is the answer, too
        raise UsageError(f"The Metalink {place} cannot be read: {exc}.") from None
    except (OSError, ValueError, http.client.HTTPException) as exc:
        raise UsageError(f"The Metalink {place} cannot be read: {exc}.") from None


def target(name: str) -> Path:
    """Foreign file names must not lead to another folder, or to a file that is read without a word, as `.bashrc` is."""
    if not name or name.startswith(".") or "/" in name or not name.isprintable():
        raise UsageError(f"{name!r} is not a usable file name. Give -o FILE.")
    return Path(name)


def fetch(asked: argparse.Namespace) -> int:
    """Raises `UsageError` and `LocalError` before the first byte; afterwards returns the exit code."""
    link = read_metalink(asked.metalink) if asked.metalink else Metalink()
    most, least = number("--max-paths", asked.max_paths, 1, 64), number("--min-weight", asked.min_weight, 0, 100)
    rules = Rules(int(most), least, number("--slot", asked.slot, 0.1, 60))
    paths, twice = candidates(asked.path, link.mirrors)
    named = link.name or unquote(urlsplit(paths[0].url).path).rpartition("/")[2]
    file = Path(asked.output) if asked.output else target(named)
    is_verified = link.whole is not None or link.pieces is not None
    part = Part(file, link.pieces, resume=asked.resume, may_replace=asked.output is not None, is_verified=is_verified)
    reference, done = part.load()
    if reference is not None and link.size not in (None, reference.size):
        raise UsageError(f"{part.path} belongs to a file of {reference.size} bytes, not {link.size}. Delete it.")
    pieces = link.pieces.length if link.pieces else None
    core = Download(len(paths), rules, piece_bytes=pieces, size=link.size,
                    is_verified=link.whole is not None, reference=reference, done=done)  # fmt: skip
    progress = Progress(sys.stderr, paths, core)
    for path in twice:
        progress.say(f"{path} is given twice and used once.")
    code, problem = 0, ""
    transfer = Transfer(paths, core, part, progress.say, progress.draw)
    try:
        transfer.run()
        part.finish(core.size or 0, link.whole)
    except MpgetError as exc:
        code, problem = exc.code, str(exc)
    except KeyboardInterrupt:
        code, problem = INTERRUPTED, f"Interrupted. {transfer.kept}"
    if code:
        part.close()
    progress.end(problem)
    if asked.json:
        print(json.dumps({"file": str(file), "exit_code": code, **progress.document()}), flush=True)
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    for name in ("stdout", "stderr"):  # closed by the caller
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  to the end
    try:
        return fetch(parser().parse_args(arguments))
    except MpgetError as exc:
        code, said = exc.code, str(exc)
    except KeyboardInterrupt:
        code, said = INTERRUPTED, "Interrupted."
    except OSError as exc:  # of standard output or error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter writes the rest at its end
        code, said = LocalError.code, f"What happened cannot be printed: {exc.strerror}."
    with contextlib.suppress(OSError):
        print(f"mpget: {clean(said)}", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
