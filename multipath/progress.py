"""Progress: a bar for each path on a terminal, else a line now and then; what happened to a path; the sum as JSON."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TextIO

from multipath.core import Download
from multipath.path_state import State
from multipath.paths import Path

BAR = 30
DRAW_S, LINE_S, SERIES_S = 0.2, 10.0, 0.5


def clean(text: str) -> str:
    """Text of others does not steer the terminal."""
    return "".join(one if one.isprintable() else "?" for one in text)


def _rate(bytes_s: float) -> str:
    kbit = bytes_s / 125
    return f"{kbit:,.0f} kbit/s" if kbit < 10_000 else f"{kbit / 1000:,.1f} Mbit/s"


class Progress:
    def __init__(self, out: TextIO, paths: Sequence[Path], core: Download) -> None:
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
                text = text or "the server has no Range, so this path is used alone"
            if text and text != self._told.get(index):
                self._told[index] = text
                self.say(f"{self._paths[index]}: {text}.")

    def _total(self) -> str:
        rate = sum(one.rate for one in self._core.paths if one.is_at_work)
        return f"{self._core.done.total:,} of {self._core.size or 0:,} bytes, {_rate(rate)}"

    def _draw_bars(self) -> None:
        self._clear()
        size = self._core.size or 1
        for name, path in zip(self._paths, self._core.paths, strict=True):
            full = "#" * (BAR * min(path.received, size) // size)
            said = _rate(path.rate) if path.is_at_work else path.state.value
            print(f"{clean(str(name))[:40]:40} [{full:{BAR}}] {path.received:>15,} {said}", file=self._out)
        print(self._total(), file=self._out, flush=True)
        self._drawn = len(self._paths) + 1

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
            f"({100 * core.waste / (core.size or 1):.1f} %), asked for and not waited for: {core.abandoned:,}"
        )
        if problem:
            self.say(problem)

    def document(self) -> dict[str, object]:
        """Bytes and seconds; of each path also the bytes that it had received after each interval."""
        core, paths = self._core, []
        for name, path, series in zip(self._paths, core.paths, self._series, strict=True):
            kept = {key: value for key, value in vars(path).items() if key in ("reason", "handshake_s", "rests")}
            kept |= {"path": str(name), "state": path.state.value, "wrong_pieces": path.wrong}
            paths.append(kept | {"received_bytes": path.received, "series_bytes": series})
        sums = {"size_bytes": core.size, "done_bytes": core.done.total, "seconds": self._seconds}
        waste = {"waste_bytes": core.waste, "abandoned_bytes": core.abandoned}
        return {**sums, **waste, "interval_s": SERIES_S, "paths": paths}
