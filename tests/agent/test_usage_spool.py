"""The spool's file: what damages it, who may read it and what the service refuses."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from ap_agent.common.errors import StoreError
from ap_agent.usage.batch import Row, Sample
from ap_agent.usage.spool import FILE_NAME, MAX_REFUSED, Spool

BEGAN = 1_795_300_020_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE_NAME


def sample(at_ms: int = BEGAN, size: int = 1000) -> Sample:
    return Sample(at_ms, "1.18", {(1, "to_user"): Row(0x4141, 500, size, 1, 0, 0)})


def filled(path: Path, batches: int) -> Spool:
    spool = Spool(path)
    for number in range(batches):
        with spool.changes():
            spool.add_batch([sample(BEGAN + number * 60_000, number)])
    return spool


def test_only_the_agents_user_may_read_it(path: Path) -> None:
    filled(path, 1)
    modes = {stat.S_IMODE(one.stat().st_mode) for one in path.parent.glob(f"{FILE_NAME}*")}
    assert modes == {0o600}


@pytest.mark.parametrize(
    "damage", [b"this is no database, and long enough to be taken for one" * 20, b"SQLite format 3\0" + bytes(4096)]
)
def test_damaged_file_is_set_aside_and_counting_begins_anew(path: Path, damage: bytes) -> None:
    path.write_bytes(damage)
    spool = filled(path, 1)
    assert spool.waiting() == 1
    assert path.with_name(f"{FILE_NAME}.damaged").read_bytes() == damage


def test_change_that_fails_in_the_middle_leaves_what_was_there(path: Path) -> None:
    spool = filled(path, 1)

    def fail() -> None:
        with spool.changes():
            spool.add_batch([sample(size=7)])
            spool._db.execute("INSERT INTO nowhere VALUES (1)")

    with pytest.raises(StoreError):
        fail()
    assert spool.waiting() == 1
    with spool.changes():
        spool.add_batch([sample(size=8)])
    assert spool.waiting() == 2


def test_symbolic_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="symbolic link"):
        Spool(path)
    assert (tmp_path / "elsewhere").read_bytes() == b""


def test_refused_batches_are_set_aside_with_the_reason_and_bounded(path: Path) -> None:
    spool = filled(path, MAX_REFUSED + 3)
    for _ in range(MAX_REFUSED + 3):
        batch = spool.oldest()
        assert batch is not None
        spool.refuse(batch.number, "usage_invalid: times")
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT reason, length(body) FROM refused").fetchall()
    assert len(rows) == MAX_REFUSED
    assert {reason for reason, _ in rows} == {"usage_invalid: times"}
    assert spool.waiting() == 0
