"""What is on the disk after a kill, a power cut, a full disk, and after too long a time."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from ap_agent.usage import spool as spool_module
from ap_agent.usage.batch import Batch
from ap_agent.usage.lives import Row
from ap_agent.usage.reading import Key
from ap_agent.usage.spool import Spool

MINUTE = 1_795_300_020_000  # a whole one
KEY: Key = (5, "to_user")
DAY_MS = 86_400_000


def row(size: int, segment: str = "41414141") -> dict[Key, Row]:
    return {KEY: Row(segment, 500, size, size // 100, 2, 30, 0, 2)}


def filled(
    spool: Spool, *sizes: int, began_ms: int = MINUTE, carried: tuple[tuple[int, dict[Key, Row]], ...] = ()
) -> Batch:
    batch = Batch("1.18")
    spool.begin(batch, began_ms, carried)
    for number, size in enumerate(sizes):
        at_ms = began_ms + number * 10_000
        assert batch.takes(at_ms, row(size), "1.18")
        batch.add(at_ms, row(size))
        spool.append(at_ms, row(size))
    return batch


def documents(spool: Spool) -> list[dict[str, Any]]:
    return [json.loads(gzip.decompress(path.read_bytes())) for path in spool.closed()]


def only_file(spool: Spool) -> Path:
    (path,) = spool.folder.iterdir()
    return path


def test_closed_batch_is_the_document_of_the_contract(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "usage")
    batch = filled(spool, 100, 200)
    spool.close(batch)

    (document,) = documents(spool)
    version = document.pop("agent_version")
    assert version
    assert document == {
        "schema": 1,
        "batch": batch.id,
        "version": "1.18",
        "times": ["2026-11-21T22:27:00.000Z", "2026-11-21T22:27:10.000Z"],
        "links": {
            "5": {
                "to_user": {
                    "segment": "41414141",
                    "rate_kbit": [500, 500],
                    "bytes": [100, 200],
                    "packets": [1, 2],
                    "drops": [2, 2],
                    "backlog_bytes": [30, 30],
                }
            }
        },
    }
    assert only_file(spool).name == f"{MINUTE}-{batch.id}.json.gz"
    assert spool.folder.stat().st_mode & 0o777 == 0o700


def test_time_without_a_class_is_null(tmp_path: Path) -> None:
    batch = Batch("1.18")
    other: Key = (6, "from_user")
    for at_ms, rows in ((MINUTE, row(1)), (MINUTE + 10_000, {other: row(9)[KEY]})):
        batch.add(at_ms, rows)

    links = json.loads(batch.text())["links"]
    assert links["5"]["to_user"]["bytes"] == [1, None]
    assert links["6"]["from_user"]["bytes"] == [None, 9]


@pytest.mark.parametrize(
    ("at_ms", "version", "segment"),
    [
        (MINUTE + 60_000, "1.18", "41414141"),
        (MINUTE, "1.18", "41414141"),
        (MINUTE + 1, "1.19", "41414141"),
        (MINUTE + 1, "1.18", "42424242"),
    ],
    ids=["another minute", "the clock stood still", "another configuration", "another segment"],
)
def test_sample_that_belongs_into_another_batch_is_not_taken(at_ms: int, version: str, segment: str) -> None:
    batch = Batch("1.18")
    batch.add(MINUTE, row(1))

    assert not batch.takes(at_ms, row(2, segment), version)
    assert batch.takes(MINUTE + 1, row(2), "1.18")


def test_what_was_appended_is_found_after_a_kill_at_every_byte(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "usage")
    filled(spool, 100, 200, 300, carried=((MINUTE - 10_000, row(50)),))
    path = only_file(spool)
    whole = path.read_bytes()
    found_sizes = set()
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        found = list(spool.open_batches())
        sizes = [rows[KEY].bytes for one in found for _, rows in one.batch.samples]
        assert sizes == [100, 200, 300][: len(sizes)]
        assert len(sizes) >= max(found_sizes, default=0)  # what was whole at a smaller length still counts
        found_sizes.add(len(sizes))
        if found and not sizes:
            assert found[0].newest == (MINUTE - 10_000, row(50))
    assert found_sizes == {0, 1, 2, 3}


def test_damage_in_the_middle_ends_what_is_read_and_raises_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "usage")
    filled(spool, 100, 200, 300)
    path = only_file(spool)
    whole = path.read_bytes()
    for place in range(0, len(whole), 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        for one in spool.open_batches():
            sizes = [rows[KEY].bytes for _, rows in one.batch.samples]
            assert sizes == [100, 200, 300][: len(sizes)]


def test_kill_between_closing_and_deleting_leaves_one_batch(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "usage")
    batch = filled(spool, 100, 200)
    left = only_file(spool)
    content = left.read_bytes()
    spool.close(batch)
    before = documents(spool)
    left.write_bytes(content)

    again = Spool(spool.folder)
    for found in list(again.open_batches()):
        again.close(found.batch)

    assert documents(again) == before
    assert len(list(spool.folder.iterdir())) == 1


def test_batches_are_sent_in_the_order_in_which_they_were_counted_also_where_the_clock_was_set_back(
    tmp_path: Path,
) -> None:
    spool = Spool(tmp_path / "usage")
    made = []
    for size, began_ms in ((100, MINUTE), (200, MINUTE - 3_600_000), (300, MINUTE - 3_540_000), (400, MINUTE + 60_000)):
        made.append(filled(spool, size, began_ms=began_ms))
        spool.close(made[-1])

    assert [document["batch"] for document in documents(spool)] == [one.id for one in made]


def test_append_that_failed_is_made_up_for_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path / "usage")
    filled(spool, 100)
    real_write = os.fsync

    def failing(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(spool_module.os, "fsync", failing)
    with pytest.raises(OSError, match="No space"):
        spool.append(MINUTE + 10_000, row(200))
    monkeypatch.setattr(spool_module.os, "fsync", real_write)
    only_file(spool).write_bytes(only_file(spool).read_bytes()[:-3])  # and only a part had arrived
    spool.append(MINUTE + 20_000, row(300))

    (found,) = spool.open_batches()
    assert [rows[KEY].bytes for _, rows in found.batch.samples] == [100, 200, 300]


def test_open_file_that_somebody_deleted_is_written_again_whole(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "usage")
    filled(spool, 100)
    only_file(spool).unlink()
    spool.append(MINUTE + 10_000, row(200))

    (found,) = spool.open_batches()
    assert [rows[KEY].bytes for _, rows in found.batch.samples] == [100, 200]


def test_old_batches_are_dropped_oldest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path / "usage")
    for minute in range(6):
        spool.close(filled(spool, 100, began_ms=MINUTE + minute * 60_000))
    size = spool.closed()[0].stat().st_size
    assert spool.prune(MINUTE) == 0

    assert spool.prune(MINUTE + 2 * DAY_MS + 60_001) == 2
    monkeypatch.setattr(spool_module, "MAX_BYTES", 3 * size + size // 2)
    assert spool.prune(MINUTE) == 1
    assert [document["times"][0][14:16] for document in documents(spool)] == ["30", "31", "32"]


def test_refused_batches_are_kept_to_be_looked_at_but_few(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "usage")
    for minute in range(spool_module.MAX_REFUSED + 2):
        spool.close(filled(spool, 100, began_ms=MINUTE + minute * 60_000))
        spool.refuse(spool.closed()[0])

    assert spool.closed() == []
    assert len(list(spool.folder.iterdir())) == spool_module.MAX_REFUSED


def test_room_that_configurations_need_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path / "usage")
    for minute in range(3):
        spool.close(filled(spool, 100, began_ms=MINUTE + minute * 60_000))
    monkeypatch.setattr(Spool, "_lacking", lambda _self: 1)

    with pytest.raises(OSError, match="kept for configurations"):
        filled(spool, 100)
    assert spool.prune(MINUTE) == 1


def test_what_is_not_ours_in_the_folder_stays(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "usage")
    spool.close(filled(spool, 100))
    for name in ("notes.txt", "x-y.json.gz", "17-.open"):
        (spool.folder / name).write_text("mine")
    (spool.folder / "99-link.json.gz").symlink_to("/etc/hostname")
    spool.drop_damaged()
    spool.prune(MINUTE + 9 * DAY_MS)

    assert sorted(one.name for one in spool.folder.iterdir()) == [
        "17-.open",
        "99-link.json.gz",
        "notes.txt",
        "x-y.json.gz",
    ]
