"""What `mpget` shows while it fetches, and the series of each path in `--json`."""

from __future__ import annotations

import io
import os
import select

import pytest

from multipath import __main__ as program
from multipath.__main__ import Progress
from multipath.core import Download, Rules, Task
from multipath.state import Facts
from tests.terminal import Screen, open_terminal

PATHS = ["192.0.2.2 > http://192.0.2.1/\x1b[2Jfile", "dev tun0 > http://192.0.2.1/file"]
SIZE = 1000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(program.time, "monotonic", lambda: now[0])
    return now


def core_of(*received: int) -> Download:
    """These bytes have come over each path, one path after the other."""
    core, at = Download(len(received), Rules(), size=SIZE), 0
    for index, count in enumerate(received):
        core.opened(index, Facts("http://192.0.2.1/file", SIZE, "one"), 0.01, 100.0)
        bring(core, index, at, count)
        at += count
    return core


def bring(core: Download, path: int, at: int, count: int) -> None:
    task = Task(path, at, at + count, 100.0)
    core.free.cut(at, at + count)
    core.tasks.append(task)
    core.arrived(task, count, 100.0)


def read_all(master: int) -> str:
    """What has been written: one read of a terminal may return a part."""
    found = b""
    while select.select([master], [], [], 0.05)[0]:
        found += os.read(master, 65536)
    return found.decode()


@pytest.mark.parametrize(("columns", "lines", "count"), [(80, 24, 5), (20, 4, 5)])
def test_bars_are_drawn_over_in_a_terminal_of_any_size(
    clock: list[float], columns: int, lines: int, count: int
) -> None:
    master, slave = open_terminal(columns, lines)
    core, screen = core_of(*[SIZE // count] * count), Screen(columns, lines)
    with os.fdopen(slave, "w") as out:
        progress = Progress(
            out, [f"10.10.{number}.2 > http://192.0.2.1:8080/images/file.iso" for number in range(count)], core
        )
        for _ in range(3):
            progress.draw()
            screen.feed(read_all(master))
            clock[0] += 1
        shown = [row for row in screen.rows if row]
        assert screen.wrapped == 0
        assert len(shown) == min(count + 1, lines - 1)
        assert shown[-1].startswith("1,000 of 1,000 bytes"[: columns - 1])
        assert (f"and {count - (lines - 3)} more paths"[: columns - 1] in shown) == (count > lines - 2)
        progress.say("Done.")
        screen.feed(os.read(master, 65536).decode())
        assert [row for row in screen.rows if row] == ["mpget: Done."]
    os.close(master)


def test_a_log_gets_a_line_now_and_then_and_each_reason_once(clock: list[float]) -> None:
    out = io.StringIO()
    core = core_of(500, 100)
    progress = Progress(out, PATHS, core)
    for _ in range(50):
        progress.draw()
        clock[0] += 0.5
    received = "mpget: 600 of 1,000 bytes, 0 kbit/s\n" * 2
    assert out.getvalue() == received
    core.failed(1, "reset\x07", clock[0])
    for _ in range(3):
        progress.draw()
    assert out.getvalue() == f"{received}mpget: {PATHS[1]}: failed: reset?.\n"


def test_the_series_of_a_path_has_what_had_come_after_each_interval(clock: list[float]) -> None:
    core = core_of(200, 0)
    progress = Progress(io.StringIO(), PATHS, core)
    clock[0] += 0.6
    progress.draw()
    bring(core, 1, 200, 300)
    clock[0] += 1.0  # two intervals end at once
    progress.draw()
    bring(core, 0, 500, 500)
    progress.end("")
    document = progress.document()
    assert (document["size_bytes"], document["done_bytes"], document["interval_s"]) == (SIZE, SIZE, 0.5)
    assert document["seconds"] == pytest.approx(1.6)
    paths = document["paths"]
    assert isinstance(paths, list)
    assert [one["series_bytes"] for one in paths] == [[200, 200, 200], [0, 300, 300]]
    assert [one["received_bytes"] for one in paths] == [700, 300]
    assert [one["path"] for one in paths] == PATHS
