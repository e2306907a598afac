"""`mpget` as it is started, against a web server on loopback: what it may write, and what its 0 means."""

from __future__ import annotations

import errno
import hashlib
import http.server
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path

import pytest

from multipath.__main__ import main
from multipath.part import Part
from multipath.state import Facts
from multipath.transfer import Transfer
from tests.cases import case

ROOT = Path(__file__).parents[2]
SIZE = 300_000
MORE_BYTES = 64 << 20
OLD = formatdate(1_700_000_000, usegmt=True)


class Web(http.server.ThreadingHTTPServer):
    """The first path of a URL says what its answers have: `etag`, `weak`, `old`, `fresh` (a date of change), `none`,
    `whole` (no Range), `more` (bytes beyond the range, without a length) or `gone` (404). `of` makes the content of a
    request, `asked` are the ranges."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.right = os.urandom(SIZE)
        self.of: Callable[[int], bytes] = lambda _number: self.right
        self.asked: list[str] = []
        self.broken_bytes = 100_000  # of them
        self.more = 0  # bytes that were sent beyond ranges
        self.breaks: set[int] = set()  # the numbers of answers that end early

    def handle_error(self, *_request: object) -> None:
        """A client that hangs up is no failure."""

    def url(self, kind: str, name: str = "file") -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{kind}/{name}"


class Answers(http.server.BaseHTTPRequestHandler):
    server: Web
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.asked.append(self.headers["Range"])
        kind, content = self.path.split("/")[1], self.server.of(len(self.server.asked))
        found = None if kind == "whole" else re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"])
        start, end = (int(found[1]), min(int(found[2]) + 1, SIZE)) if found else (0, SIZE)
        body = b"" if kind == "gone" else content[start:end]
        self.send_response(404 if kind == "gone" else 206 if found else 200)
        if kind != "more":
            self.send_header("Content-Length", str(len(body)))
        now = time.time()
        headers = {
            "more": ("ETag", '"one"'),
            "etag": ("ETag", f'"{hashlib.sha256(content).hexdigest()}"'),
            "weak": ("ETag", 'W/"one"'),
            "old": ("Last-Modified", OLD),
            "fresh": ("Last-Modified", formatdate(now, usegmt=True)),
        }
        if kind in headers:
            self.send_header(*headers[kind])
        if found:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{SIZE}")
        self.end_headers()
        is_broken = len(self.server.asked) in self.server.breaks
        self.wfile.write(body[: self.server.broken_bytes] if is_broken else body)
        self.close_connection = is_broken or kind == "more"
        for _ in range(MORE_BYTES >> 20 if kind == "more" else 0):
            self.wfile.write(bytes(1 << 20))
            self.server.more += 1 << 20

    def log_message(self, *_arguments: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[Web]:
    with Web() as web:
        thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield web
        web.shutdown()
        thread.join()


@pytest.fixture
def web(server: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Web:
    monkeypatch.chdir(tmp_path)
    server.of = lambda _number: server.right
    server.asked.clear()
    server.breaks.clear()
    server.broken_bytes = 100_000
    return server


def left(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


# --- what it may write ----------------------------------------------------------------------------------------------


SPECIAL: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "folder": Path.mkdir,
    "link to nothing": lambda path: path.symlink_to("nothing"),
    "link to a file": lambda path: path.symlink_to("precious"),
}


def test_what_is_no_regular_file_is_never_replaced(
    web: Web, tmp_path: Path, subtests: pytest.Subtests, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "made").touch()
    for name, make in SPECIAL.items():
        for written in ("out", "out.part", "out.part.map", "out.part.map.new"):
            with case(subtests, f"{name} at {written}"):
                place = tmp_path / written
                make(place)
                before = place.lstat()
                code = main(["-o", "out", "--path", web.url("etag"), "--resume"])
                assert code == 2, capsys.readouterr().err
                assert re.search(rf"{written} is a .*, and only a regular file is replaced", capsys.readouterr().err)
                after = place.lstat()
                assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
                assert (tmp_path / "precious").read_text() == "precious"
                place.rmdir() if place.is_dir() and not place.is_symlink() else place.unlink()
                assert left(tmp_path) == ["made", "precious"]


def test_a_name_that_the_server_chose_replaces_nothing_and_is_not_hidden(
    web: Web, tmp_path: Path, subtests: pytest.Subtests, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "dangling").symlink_to("nothing")
    metalink = '<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="{}"><url>{}</url></file></metalink>'
    table = {"mine": "mine exists", "dangling": "dangling exists", ".bashrc": "'.bashrc' is not a usable file name"}
    for name, words in table.items():
        (tmp_path / "one.meta4").write_text(metalink.format(name, web.url("etag")))
        given = {"URL": ["--path", web.url("etag", name)], "Metalink": ["--metalink", "one.meta4"]}
        for kind, arguments in given.items():
            with case(subtests, f"{name} of the {kind}"):
                assert main(arguments) == 2
                assert words in (err := capsys.readouterr().err)
                assert "-o" in err
                assert left(tmp_path) == ["dangling", "mine", "one.meta4"]
                assert (tmp_path / "mine").read_text() == "mine"
    with case(subtests, "it appears during the download"):

        def appears(_number: int) -> bytes:
            (tmp_path / "late").write_text("late")
            return web.right

        web.of = appears
        assert main(["--path", web.url("etag", "late")]) == 5
        assert (tmp_path / "late").read_text() == "late"
        assert (tmp_path / "late.part").read_bytes() == web.right
    with case(subtests, "-o may replace"):
        assert main(["-o", "mine", "--path", web.url("etag")]) == 0
        assert (tmp_path / "mine").read_bytes() == web.right


def test_nothing_is_left_of_a_download_that_received_nothing(
    web: Web, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-o", "out", "--path", web.url("gone")]) == 3
    assert "Nothing was received." in capsys.readouterr().err
    assert left(tmp_path) == []
    assert main(["-o", "out", "--path", web.url("etag")]) == 0


# --- what its 0 means -------------------------------------------------------------------------------------------------


def _changing(web: Web) -> Callable[[int], bytes]:
    """Other content in every answer."""
    return lambda number: bytes(one ^ (number % 256) for one in web.right)


def _is_one_answer(web: Web, found: bytes) -> bool:
    numbers = {a ^ b for a, b in zip(found, web.right, strict=True)}
    return len(numbers) == 1


@pytest.mark.parametrize("kinds", [["none"], ["none", "none"], ["weak", "weak"], ["fresh", "fresh"], ["whole", "none"]])
def test_without_a_validator_the_file_comes_as_one_answer(
    web: Web, tmp_path: Path, kinds: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    web.of = _changing(web)
    given = [word for number, kind in enumerate(kinds) for word in ("--path", web.url(kind, f"file?{number}"))]
    assert main(["-o", "out", *given]) == 0
    assert _is_one_answer(web, (tmp_path / "out").read_bytes())
    assert "so this path is used alone" in capsys.readouterr().err


def test_an_answer_that_ends_early_is_not_continued_by_another(web: Web, tmp_path: Path) -> None:
    web.of, web.breaks = _changing(web), {2}  # the first one is asked for a single byte
    assert main(["-o", "out", "--path", web.url("none")]) == 0
    assert len(web.asked) == 3
    assert _is_one_answer(web, (tmp_path / "out").read_bytes())


def test_with_a_validator_content_that_changes_is_no_success(
    web: Web, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    web.of = _changing(web)
    assert main(["-o", "out", "--path", web.url("etag"), "--path", web.url("etag", "file?1")]) == 3
    assert "its file has the ETag" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_answer_longer_than_its_range_is_neither_kept_nor_read(
    web: Web, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It filled the memory, and bytes behind the end of the file were counted as some of it."""
    web.more = 0
    assert main(["-o", "out", "--path", web.url("more")]) == 3
    assert "sends more than" in capsys.readouterr().err
    time.sleep(0.2)
    assert web.more < MORE_BYTES // 2
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("kind", "said"), [("etag", "--resume continues."), ("whole", "--resume begins again")])
def test_what_resume_does_is_said(
    web: Web, kind: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every answer ends early until the path is dead."""
    monkeypatch.setattr("multipath.state.MAX_FAILURES", 1)
    web.breaks, web.broken_bytes = set(range(2, 100)), 10_000
    assert main(["-o", "out", "--path", web.url(kind)]) == 3
    assert said in capsys.readouterr().err


def test_interrupted_before_the_first_byte_nothing_is_said_to_be_kept(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_self: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Transfer, "run", interrupted)
    assert main(["-o", "out", "--path", web.url("etag")]) == 130
    assert "Interrupted. Nothing was received." in capsys.readouterr().err
    assert left(tmp_path) == []


def test_what_hashes_vouched_for_is_not_continued_without_them(
    web: Web, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mirrors have their own ETags then, and a piece that is not complete was not checked."""
    part = Part(tmp_path / "out", None, resume=False, is_verified=True)
    part.write(0, memoryview(bytes(1000)))
    part.save(Facts(web.url("etag"), SIZE, f'"{hashlib.sha256(web.right).hexdigest()}"'), [(0, 1000)])
    os.close(part._fd)
    assert main(["-o", "out", "--path", web.url("etag"), "--resume"]) == 2
    assert "begun with hashes" in capsys.readouterr().err
    assert left(tmp_path) == ["out.part", "out.part.map"]


def test_with_an_old_date_or_hashes_several_ranges_are_requested(
    web: Web, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    whole = hashlib.sha256(web.right).hexdigest()
    (tmp_path / "one.meta4").write_text(
        '<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="out">'
        f'<size>{SIZE}</size><hash type="sha-256">{whole}</hash>'
        f"<url>{web.url('none')}</url><url>{web.url('none', 'file?1')}</url></file></metalink>"
    )
    for name, given in {"a date": ["--path", web.url("old")], "a hash": ["--metalink", "one.meta4"]}.items():
        with case(subtests, name):
            web.asked.clear()
            assert main(["-o", "out", *given]) == 0
            assert (tmp_path / "out").read_bytes() == web.right
            assert len(web.asked) > 3
    with case(subtests, "a hash, and it changes"):
        web.of = _changing(web)
        assert main(["-o", "out", "--metalink", "one.meta4"]) == 4


def test_what_was_received_without_a_validator_is_not_continued(web: Web, tmp_path: Path) -> None:
    (tmp_path / "out.part").write_bytes(bytes(SIZE))
    facts = {"url": web.url("none"), "size": SIZE, "etag": None, "modified": None, "ranged": True}
    found = {"format": "mpget 1", "file": facts, "is_verified": False, "done": [[0, 1000]]}
    (tmp_path / "out.part.map").write_text(json.dumps(found))
    assert main(["-o", "out", "--path", web.url("none"), "--resume"]) == 0
    assert (tmp_path / "out").read_bytes() == web.right


def test_what_a_full_disk_did_not_take_is_not_in_the_map(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose chunk it takes a half of, and whose map has room."""
    room, write = 150_000, os.pwrite

    def written(descriptor: int, data: memoryview, at: int) -> int:
        if at >= room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data[: room - at], at)

    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", written)
        assert main(["-o", "out", "--path", web.url("etag")]) == 5
    there = (tmp_path / "out.part").read_bytes()
    for start, end in json.loads((tmp_path / "out.part.map").read_text())["done"]:
        assert there[start:end] == web.right[start:end]
