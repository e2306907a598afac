"""The part file with its map: what `--resume` trusts."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from multipath import LocalError, UsageError, WrongHashError
from multipath.part import Part
from multipath.paths import Pieces
from multipath.state import Facts
from tests.cases import case

FILE = Facts("http://192.0.2.1/a", 25, etag='"x"')
CONTENT = bytes(range(65, 90))


def pieces(length: int = 10) -> Pieces:
    hashes = (hashlib.sha256(CONTENT[at : at + length]).hexdigest() for at in range(0, 25, length))
    return Pieces(length, "sha256", tuple(hashes))


def left(folder: Path, content: bytes, done: list[tuple[int, int]]) -> Path:
    """What an earlier download left."""
    part = Part(folder / "a", None, resume=False)
    part.load()
    part.write(0, memoryview(content))
    part.save(FILE, done)
    del part
    return folder / "a"


def reopened(target: Path, cut: Pieces | None = None) -> Part:
    return Part(target.with_name("b"), cut, resume=True)


def copy(target: Path) -> None:
    """To another name: this process still holds the first one's lock."""
    for suffix in (".part", ".part.map"):
        target.with_name(f"b{suffix}").write_bytes(target.with_name(f"a{suffix}").read_bytes())


def test_what_is_resumed_are_the_bytes_of_the_map_and_with_hashes_only_right_pieces(tmp_path: Path) -> None:
    target = left(tmp_path, CONTENT[:12] + b"!" + CONTENT[13:], [(0, 15), (20, 25)])
    copy(target)
    assert reopened(target).load() == (FILE, [(0, 15), (20, 25)])


def test_a_piece_that_is_not_right_is_fetched_again(tmp_path: Path) -> None:
    target = left(tmp_path, CONTENT[:12] + b"!" + CONTENT[13:], [(0, 25)])
    copy(target)
    part = reopened(target, pieces())
    assert part.load() == (FILE, [(0, 10), (20, 25)])
    assert [part.is_right(piece) for piece in range(3)] == [True, False, True]
    part.write(12, memoryview(CONTENT)[12:13])
    part.finish(25, ("sha256", hashlib.sha256(CONTENT).hexdigest()))
    assert [one.name for one in sorted(tmp_path.glob("b*"))] == ["b"]
    assert (tmp_path / "b").read_bytes() == CONTENT


def test_maps_that_are_none_are_refused_and_not_followed(tmp_path: Path, subtests: pytest.Subtests) -> None:
    good = {"format": "mpget 1", "file": vars(FILE), "is_verified": False, "done": [[0, 5]]}
    table = {
        "not JSON": b"{",
        "another format": json.dumps(good | {"format": "x"}).encode(),
        "beyond the file": json.dumps(good | {"done": [[0, 26]]}).encode(),
        "no spans": json.dumps(good | {"done": [1]}).encode(),
        "an unknown key": json.dumps(good | {"file": vars(FILE) | {"x": 1}}).encode(),
    }
    for number, (name, content) in enumerate(table.items()):
        with case(subtests, name):
            (tmp_path / f"{number}.part.map").write_bytes(content)
            with pytest.raises(UsageError, match="is not a map of mpget"):
                Part(tmp_path / str(number), None, resume=True).load()


def test_without_a_map_it_begins_again_and_a_wrong_hash_leaves_no_map(tmp_path: Path) -> None:
    (tmp_path / "a.part").write_bytes(bytes(100))
    part = Part(tmp_path / "a", None, resume=True)
    assert part.load() == (None, [])
    assert (tmp_path / "a.part").stat().st_size == 0
    part.write(0, memoryview(CONTENT))
    part.save(FILE, [(0, 25)])
    with pytest.raises(WrongHashError, match="is not what the Metalink's sha256 says"):
        part.finish(25, ("sha256", "0" * 64))
    assert [one.name for one in tmp_path.iterdir()] == ["a.part"]


def test_a_part_file_is_not_overwritten_unasked_nor_by_two(tmp_path: Path) -> None:
    first = Part(tmp_path / "a", None, resume=False)
    with pytest.raises(UsageError, match="Give --resume, or delete it"):
        Part(tmp_path / "a", None, resume=False)
    with pytest.raises(UsageError, match="Another mpget is writing"):
        Part(tmp_path / "a", None, resume=True)
    del first
    with pytest.raises(UsageError, match="is a folder"):
        Part(tmp_path, None, resume=False)
    with pytest.raises(LocalError, match="No such file or directory"):
        Part(tmp_path / "none" / "a", None, resume=False)
