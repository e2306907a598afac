"""A file that is replaced wakes whoever watches it, wherever its folder was when the watching began."""

from __future__ import annotations

import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from ap_agent.common.watch import Watch


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "state.json"


@pytest.fixture
def watch(path: Path) -> Iterator[Watch]:
    made = Watch([path])
    yield made
    made.close()


def replace(path: Path, data: bytes) -> None:
    new = path.with_name("new")
    new.write_bytes(data)
    new.replace(path)


def is_readable(watch: Watch, within_s: float) -> bool:
    return bool(select.select([watch], [], [], within_s)[0])


def test_replacing_the_file_wakes(path: Path) -> None:
    path.parent.mkdir()
    watch = Watch([path])
    assert not is_readable(watch, 0)
    for text in (b"1", b"2"):
        replace(path, text)
        assert is_readable(watch, 5)
        assert watch.drain()
        assert not is_readable(watch, 0)
        assert not watch.drain()
    path.unlink()
    assert is_readable(watch, 5)
    watch.close()


def test_a_folder_that_is_replaced_is_watched_again(watch: Watch, path: Path) -> None:
    for _ in range(2):
        path.parent.mkdir()
        watch.drain()
        path.parent.rmdir()
        assert is_readable(watch, 5)
        watch.drain()
    path.parent.mkdir()
    assert is_readable(watch, 5)
    watch.drain()
    path.write_bytes(b"1")
    assert is_readable(watch, 5)
