"""Whatever the five programs get as arguments, files, environment and answers: no traceback, and an exit code of the
manual. Each table runs in this process."""

from __future__ import annotations

import argparse
import copy
import http.server
import io
import json
import os
import re
import socketserver
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import multipath.__main__ as mpget
import multipath.state
import scionlab_bw.__main__ as client
from ap_agent.commands import agent_cli, limiter_cli
from lab.nginx import free_port
from scionlab_bw import all_links, answers, commands, credentials, reserve, test_link
from scionlab_bw import client as rest
from scionlab_bw.errors import Refused
from scionlab_bw.units import parse_moment
from station import ap_end
from tests.terminal import run_in_terminal

ROOT = Path(__file__).parents[2]

SECRET = "slbwu_this-is-the-secret-of-this-test"
T = "2026-11-22T18:30:00+00:00"
PHASE = {
    **{"number": 0, "kind": "echo", "direction": "both", "payload_bytes": 100, "kbit": 10, "duration_ms": 1000},
    "count": 5,
}
OF_SHAPE: dict[Any, Any] = {
    **{answers.number: 1, answers.positive: 1.0, answers.whole: 500, answers.natural: 7, answers.port: 50_000},
    **{answers.moment: T, answers.key: "b" * 64, answers.address: "192.0.2.1", answers.hops: ["a", "b"]},
    **{str: "a", bool: True, dict: {}},
}
OF_KEY = {  # what a command needs to end well, or a test looks for
    **{"next": None, "state": "finished", "stage": "enforced", "code": "full", "token": SECRET, "phases": [PHASE]},
    **{"from_ms": 1_000, "until_ms": 9_000, "now_ms": 900, "attachment_point": "17-ffaa:0:1107"},
}


def right(shape: Any) -> Any:
    """An answer of this shape. A key that a command reads and its shape lacks is missing in it."""
    if isinstance(shape, dict):
        names = {key.removesuffix("?"): inner for key, inner in shape.items()}
        return {name: OF_KEY[name] if name in OF_KEY else right(inner) for name, inner in names.items()}
    if isinstance(shape, list | tuple):  # of items, or with None
        return [right(shape[0])] if isinstance(shape, list) else right(shape[0])
    return OF_SHAPE[shape]


RIGHT = {name: right(shape) for name, shape in answers.SHAPES.items()} | {"POST tests/#/report/": {}}
CALLS = {
    "login": ["login", "URL", "--email", "a@example.org"],
    "logout": ["logout"],
    "ases": ["ases"],
    "rename": ["rename", "5", "Label"],
    "links": ["links", "--state", "failed"],
    "show": ["show", "7"],
    "set": ["set", "7", "500", "--for", "2h", "--at", "18:30"],
    "set-all": ["set-all", "5", "500"],
    "profile": ["profile", "7", "square", "--low", "1", "--high", "2", "--half-period", "30s", "--cycles", "2"],
    "timed": ["timed", "7", "--all"],
    "cancel": ["cancel", "7", "--id", "7"],
    "usage": ["usage", "7", "--last", "1h", "--step", "10s"],
    "path": ["path", "FILE", "--traceroute", "FILE"],
    "paths": ["paths", "5"],
    "history": ["history", "7", "--limit", "5"],
    "wait": ["wait", "7", "--timeout", "1s"],
    "watch": ["watch", "7", "--once"],
    "watch-load": ["watch-load", "7", "--for", "10s", "--at", "18:30"],
    "test": ["test", "7", "quick", "--set", "seconds=3", "--at", "18:30", "--bind", "192.0.2.1"],
    "test joint": ["test", "5", "--all-links", "--set", "seconds=3"],
}
ODD_TEXTS = ["", "-1", "9" * 30, "\udcff", "\u0663", "a" * 10_000, "[", "%s%n", "../..", "\x1b[2J", "99999999d",
             "2026-13-45 99:99", "9999-12-31T23:59:59-14:00", "0001-01-01 00:00", "1e9", "nan"]  # fmt: skip
ODD_BODIES = [b"", b"{}", b"[]", b"null", b"7", b"[" * 200_000, b'{"a":' * 100_000, b"\xff\xfe", b"<html>", b"NaN",
              b'{"results": [{}], "next": null}', b'{"results": [1, null, []], "next": 7}', b'{"results": 5}',
              b'{"message": 7}', b"9" * 5000]  # fmt: skip
ODD_VALUES: list[Any] = [None, "x", -1, 10**40, [], {}, [None], "0001-01-01T00:00:00+00:00"]


class Faults:
    """The rows that failed: thousands of them, each too short for a report of its own."""

    def __init__(self) -> None:
        self.found: list[str] = []

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        try:
            yield
        except (Exception, pytest.fail.Exception) as exc:
            self.found.append(f"{name}: {traceback.format_exception(exc)[-1][:600]}")


@pytest.fixture
def faults() -> Iterator[Faults]:
    found = Faults()
    yield found
    assert not found.found, f"{len(found.found)} rows:\n" + "\n".join(found.found[:20])


class Service(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.reset()

    def reset(self) -> None:
        self.answers, self.status, self.body, self.date = copy.deepcopy(RIGHT), 200, None, None
        self.asked: list[str] = []
        self.queries: list[str] = []
        self.body_after_s, self.location = 0.0, ""

    date: datetime | None
    status: int
    body: bytes | None


class Answers(http.server.BaseHTTPRequestHandler):
    server: Service
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        name = re.sub("[0-9]+", "#", self.path.partition("?")[0].removeprefix("/api/v1/"))
        self.server.asked.append(f"{self.command} {name}")
        self.server.queries.append(self.path.partition("?")[2])
        found = self.server.answers.get(f"{self.command} {name}", {})
        body = self.server.body if self.server.body is not None else json.dumps(found).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.end_headers()
        self.wfile.flush()
        time.sleep(self.server.body_after_s)
        self.wfile.write(body)

    do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815  # names of http.server

    def date_time_string(self, timestamp: float | None = None) -> str:
        if self.server.date is not None:
            timestamp = self.server.date.timestamp()
        return super().date_time_string(timestamp)  # type: ignore[arg-type]  # as http.server calls it

    def log_message(self, *_arguments: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[Service]:
    with Service() as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.fixture
def service(server: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
    server.reset()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv(credentials.URL_VARIABLE, server.url)
    monkeypatch.setenv(credentials.TOKEN_VARIABLE, SECRET)
    monkeypatch.setattr(test_link, "run_user_end", lambda _order, _say: {})
    for module, name in (
        (commands, "POLL_S"),
        (test_link, "POLL_S"),
        (reserve, "FOLLOW_S"),
    ):
        monkeypatch.setattr(module, name, 0.05)
    monkeypatch.setattr(all_links, "_run_ends", lambda *given: (f"{one['id']} {one['link_id']}" for one in given[1]))
    (tmp_path / "paths").write_text("paths")
    return server


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The exit code of a program, and all that it says."""

    def do(main: Callable[..., int], arguments: list[str], codes: set[int], typed: bytes = b"") -> tuple[int, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed)))
        sys.stderr.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # as outside of pytest
        try:
            code = main(arguments)
        except SystemExit as exc:  # argparse
            code = int(exc.code or 0)
        said = "".join(capsys.readouterr())
        assert code in codes, said
        assert "Traceback" not in said
        assert SECRET not in said
        return code, said

    return do


def _call(name: str, service: Service, tmp_path: Path) -> list[str]:
    places = {"URL": service.url, "FILE": str(tmp_path / "paths")}
    return [places.get(word, word) for word in CALLS[name]]


def test_every_subcommand_is_in_the_table() -> None:
    (chosen,) = [one for one in client.parser()._actions if isinstance(one, argparse._SubParsersAction)]
    assert set(chosen.choices) == {name.partition(" ")[0] for name in CALLS}


def test_the_client_with_right_answers(service: Service, run: Run, tmp_path: Path, faults: Faults) -> None:
    for name in CALLS:
        for extra in ([], ["--json"] if name not in {"login", "logout"} else []):
            with faults.of(f"{name} {extra}"):
                run(client.main, [*_call(name, service, tmp_path), *extra], {0}, b"password\n")


def test_the_client_with_odd_arguments(service: Service, run: Run, tmp_path: Path, faults: Faults) -> None:
    for name in CALLS:
        given = _call(name, service, tmp_path)
        for place in range(1, len(given)):
            for odd in ODD_TEXTS:
                with faults.of(f"{name} {place} {odd[:20]!r}"):
                    run(client.main, [*given[:place], odd, *given[place + 1 :]], {0, 1, 2, 3, 4}, b"password\n")


def test_the_client_with_odd_bodies(service: Service, run: Run, tmp_path: Path, faults: Faults) -> None:
    for name in CALLS:
        for service.status in (200, 401, 302):
            bodies = ODD_BODIES if service.status == 200 else ODD_BODIES[:7]
            for service.body in bodies:
                if name == "logout" and service.status in {200, 401}:
                    continue  # a deletion has no body, and a token that ended is let go
                with faults.of(f"{name} {service.status} {service.body[:20]!r}"):
                    run(client.main, _call(name, service, tmp_path), {1, 3, 4}, b"password\n")


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield from _places(one, (*path, key))


def _changed(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    if not path:
        return odd
    found = copy.copy(value)
    found[path[0]] = _changed(value[path[0]], path[1:], odd)
    return found


READS = {  # which command reads the answer to a request
    "GET profile/": "login", "POST token/": "login", "GET ases/": "ases", "GET ases/#/": "rename",
    "PATCH ases/#/": "set-all",
    "GET ases/#/paths/": "paths", "POST ases/#/tests/": "test joint", "GET links/": "links", "GET links/#/": "show",
    "PATCH links/#/": "set", "GET links/#/history/": "history", "GET links/#/usage/": "usage",
    "GET links/#/timed-limits/": "timed", "POST links/#/timed-limits/": "profile", "POST links/#/tests/": "watch-load",
    "GET tests/#/": "watch-load", "POST tests/#/start/": "test", "POST tests/#/report/": "test",
    "GET joint-tests/#/": "test joint", "POST paths/": "path",
}  # fmt: skip


@pytest.mark.parametrize("request_", RIGHT)
def test_the_client_with_one_odd_value_in_an_answer(
    service: Service, run: Run, tmp_path: Path, faults: Faults, request_: str
) -> None:
    assert set(READS) == set(RIGHT)
    given = ["set", "7", "500"] if request_ == "PATCH links/#/" else _call(READS[request_], service, tmp_path)
    for path in _places(RIGHT[request_]):
        for odd in ODD_VALUES:
            service.answers[request_] = _changed(RIGHT[request_], path, odd)
            with faults.of(f"{path} {odd!r:.20}"):
                run(client.main, given, {0, 1, 2, 3}, b"password\n")


def test_the_client_in_odd_environments(
    service: Service, run: Run, tmp_path: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    table: list[tuple[dict[str, str | None], int]] = [
        ({"REQUESTS_CA_BUNDLE": "/none"}, 2),
        ({credentials.URL_VARIABLE: "https://["}, 2),
        ({credentials.URL_VARIABLE: "https://a:b:c"}, 2),
        ({credentials.URL_VARIABLE: "https://example.org:99999"}, 2),
        ({credentials.URL_VARIABLE: f"https://{'a' * 64}.org"}, 2),
        ({credentials.URL_VARIABLE: "https://user:pass@example.org"}, 2),
        ({credentials.TOKEN_VARIABLE: f"\ufeff{SECRET}\r\n"}, 0),
        ({credentials.TOKEN_VARIABLE: f"{SECRET}\u00fc"}, 2),
        ({credentials.TOKEN_VARIABLE: f"{SECRET}\r\nHost: x"}, 2),
        ({credentials.TOKEN_VARIABLE: None, "XDG_CONFIG_HOME": "/dev/null"}, 4),
        ({credentials.TOKEN_VARIABLE: None, "XDG_CONFIG_HOME": "a" * 5000}, 4),
    ]
    for number, (changes, code) in enumerate(table):
        with faults.of(f"{number} {[*changes]}"), monkeypatch.context() as patch:
            if changes.get("REQUESTS_CA_BUNDLE"):  # only https reads it
                patch.setenv(credentials.URL_VARIABLE, service.url.replace("http", "https"))
            for name, value in changes.items():
                patch.delenv(name) if value is None else patch.setenv(name, value)
            run(client.main, ["links"], {code})


def test_the_client_with_odd_credential_files(
    service: Service, run: Run, tmp_path: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(credentials.TOKEN_VARIABLE)
    file = credentials.path()
    file.parent.mkdir()
    good = json.dumps({"url": service.url, "token": SECRET})
    table = {
        good: 0, f"\ufeff{good}\r\n": 0, good.replace(SECRET, f" {SECRET}\\r\\n"): 0,
        good.replace(SECRET, f"{SECRET}\\u0000"): 2,
        "": 4, "[]": 4, "7": 4, "[" * 200_000: 4, "{}": 4, '{"url": [], "token": {}}': 2, "\x00": 4, SECRET: 4,
    }  # fmt: skip
    for content, code in table.items():
        with faults.of(content[:30].replace(SECRET, "")):
            file.write_text(content)
            file.chmod(0o600)
            run(client.main, ["links"], {code})
    with faults.of("a folder"):
        file.unlink()
        file.mkdir(0o700)
        run(client.main, ["links"], {4})
        run(client.main, ["login", service.url, "--token"], {2}, SECRET.encode())


def test_what_is_pasted_is_stripped_and_never_shown(service: Service, run: Run, faults: Faults) -> None:
    table = {f"\ufeff {SECRET} \r\n": 0, f"{SECRET}\r\n": 0, f"{SECRET}\u00e4\n": 2, "\n": 2, "": 2}
    for typed, code in table.items():
        with faults.of(repr(typed).replace(SECRET, "")):
            run(client.main, ["login", service.url, "--token"], {code}, typed.encode())
    with faults.of("other bytes"):
        run(client.main, ["login", service.url, "--token"], {2}, b"\xff\xfe" + SECRET.encode())


# --- mpget, both ends of a test, and the programs of an attachment point ----------------------------------------------


class Raw(socketserver.ThreadingTCPServer):
    """Answers every connection with the same bytes."""

    daemon_threads = allow_reuse_address = True
    answer = b""


class Once(socketserver.StreamRequestHandler):
    server: Raw

    def handle(self) -> None:
        self.request.recv(65536)
        self.wfile.write(self.server.answer)


ODD_ANSWERS = [
    b"", b"\r\n\r\n", b"HTTP/9.9 xyz\r\n\r\n", b"HTTP/1.1 206 x\r\n\r\n",
    b"HTTP/1.1 200 x\r\nContent-Length: -5\r\n\r\n",
    b"HTTP/1.1 206 x\r\nContent-Range: bytes 0-0/999999999999999999\r\nContent-Length: 1\r\nETag: \"a\"\r\n\r\nx",
    b"HTTP/1.1 206 x\r\nContent-Range: bytes 5-1/0\r\n\r\n", b"HTTP/1.1 200 x\r\n" + b"a: b\r\n" * 200 + b"\r\n",
    b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nzz\r\n", b"\xff" * 70_000,
    b"HTTP/1.1 302 x\r\nLocation: http://[\r\n\r\n", b"HTTP/1.1 302 x\r\n\r\n",
    b"HTTP/1.1 200 x\r\nDate: x\r\nLast-Modified: "
    b"Mon, 99 Foo 99999 99:99:99 GMT\r\nContent-Length: 3\r\n\r\nabc",
]  # fmt: skip


def test_mpget_with_odd_answers(run: Run, tmp_path: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(multipath.state, "MAX_FAILURES", 1)
    with Raw(("127.0.0.1", 0), Once) as raw:
        threading.Thread(target=raw.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        url = f"http://127.0.0.1:{raw.server_address[1]}/file"
        for number, raw.answer in enumerate(ODD_ANSWERS):
            with faults.of(f"{number} {raw.answer[:40]!r}"):
                run(mpget.main, ["-o", f"out{number}", "--path", url], {0, 3, 5})
                run(mpget.main, ["-o", f"m{number}", "--metalink", url], {2})
        raw.shutdown()


def test_mpget_with_odd_arguments_and_metalinks(
    run: Run, tmp_path: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["-o", "out", "--path", "http://127.0.0.1:9/file", "--max-paths", "2", "--min-weight", "5", "--slot", "1s"]
    for place in range(3, len(given), 2):
        for odd in [*ODD_TEXTS, "http://[", f"http://{'a' * 64}.x/f", "proxy=http://[>http://a/f", "dev=>http://a/f"]:
            with faults.of(f"{given[place - 1]} {odd[:20]!r}"):
                run(mpget.main, [*given[:place], odd, *given[place + 1 :]], {2})
    head = '<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="{}">'
    for number, inner in enumerate(
        ["", "</file></metalink>", "<a>" * 50_000, "\x00", "<url>http://[</url></file></metalink>"]
    ):
        with faults.of(f"Metalink {number}"):
            (tmp_path / "odd.meta4").write_text(head.format("x") + inner)
            run(mpget.main, ["--metalink", "odd.meta4"], {2})
    with faults.of("a folder"):
        run(mpget.main, ["--metalink", str(tmp_path)], {2})


def test_an_odd_order_is_refused_by_the_end_of_a_test(run: Run, faults: Faults) -> None:
    for typed in [b"", b"[" * 4096, b"{}", b"null", b"\xff", b'{"id": 5}', b"9" * 4096, b'{"id": "' + b"a" * 4096]:
        with faults.of(repr(typed[:20])):
            run(lambda _arguments: ap_end.main(), [], {2}, typed)


PROGRAMS = {agent_cli: "agent", limiter_cli: "limiter"}


@pytest.mark.parametrize("program", PROGRAMS, ids=PROGRAMS.values())
def test_programs_of_an_attachment_point_with_odd_files(run: Run, tmp_path: Path, faults: Faults, program: Any) -> None:
    """Each command stops at a configuration that it cannot read, before it looks at anything else."""
    odd: dict[str, bytes] = {
        "no TOML": b"[", "nested": b"a = " + b"[" * 200_000, "no UTF-8": b"\xff", "NUL": b"\x00",
        "digits": b"a = " + b"9" * 5000,
        "unknown key": b"unknown = 1", "wrong type": b"state_dir = 7", "secret": f'host_secret = ["{SECRET}"]'.encode(),
        "date": b"a = 9999-99-99",
    }  # fmt: skip
    extra = {"enrol": ["https://example.org"], "accept-older": ["1.1"], "routes": ["status"]}
    for command in program.COMMANDS:
        if command == "selftest":
            continue  # reads no configuration
        for name, content in odd.items():
            with faults.of(f"{command} {name}"):
                (tmp_path / "agent.toml").write_bytes(content)
                (tmp_path / "agent.toml").chmod(0o600)
                given = ["--config", str(tmp_path / "agent.toml"), command, *extra.get(command, [])]
                run(lambda words: program.main(words, {}), given, {2}, SECRET.encode())
        for place in ("none", ".", "a" * 5000, "\udcff"):
            with faults.of(f"{command} --config {place[:10]!r}"):
                given = ["--config", str(tmp_path / place), command, *extra.get(command, [])]
                run(lambda words: program.main(words, {}), given, {2}, SECRET.encode())


NO_ENGINE: Any = object()  # the file is read first


def test_a_limiter_with_odd_link_infos(run: Run, tmp_path: Path, faults: Faults) -> None:
    config = tmp_path / "agent.toml"
    config.write_text(f'limiter_state_dir = "{tmp_path}"\nlimiter_run_dir = "{tmp_path}"\nmaps_dir = "{tmp_path}"\n')
    file = tmp_path / "link_info.json"
    infinite = b'{"1": {"AS_ID": 1, "IsUserAS": true, "Bandwidth": 1e400, "IP-Address": "x"}}'
    for content in (b"", b"[", b"{" * 200_000, b"\xff", b'{"1": 7}', infinite):
        file.write_bytes(content)
        with faults.of(repr(content[:30])):
            given = ["--config", str(config), "plan", "--link-info", str(file)]
            _, said = run(lambda words: limiter_cli.main(words, {}, NO_ENGINE), given, {1, 2})
            assert "link_info.json" in said


def test_an_agent_with_odd_arguments_and_tokens(run: Run, tmp_path: Path, faults: Faults) -> None:
    config = tmp_path / "agent.toml"
    config.write_text(f'state_dir = "{tmp_path}"\nlimiter_state_dir = "{tmp_path}"\n')
    for odd in ODD_TEXTS:
        for words in (["accept-older", "--", odd], ["enrol", "--", odd], ["--config", "x", odd]):
            with faults.of(f"{words[0]} {odd[:20]!r}"):
                run(lambda given: agent_cli.main(["--config", str(config), *given], {}), words, {1, 2}, SECRET.encode())
    for typed in (b"", b"\xff\xfe", b"\x00", f"\ufeff{SECRET}\r\n".encode()):
        with faults.of(f"token {typed[:4]!r}"):
            given = ["--config", str(config), "enrol", "https://127.0.0.1:9", "--credentials", str(tmp_path / "c")]
            run(lambda words: agent_cli.main(words, {}), given, {1, 2}, typed)


def test_output_that_cannot_be_written_is_no_traceback_and_json_is_whole(service: Service, tmp_path: Path) -> None:
    """In processes of their own: the streams are the program's."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    service.answers["GET links/"]["results"][0]["status"]["remark"]["text"] = "Z\u00fcrich \u2026"
    service.answers["GET links/#/"]["as_label"] = "Z\u00fcrich"
    table = [(">/dev/full", 1, "links"), (">&-", 0, "links"), ("", 0, "links"), ("2>&-", 0, "links")]
    for redirection, code, words in [*table, ("", 0, "watch 7 --once --json")]:
        done = subprocess.run(
            ["/bin/sh", "-c", f'"$@" {redirection}', "sh", sys.executable, "-m", "scionlab_bw", *words.split()],
            env=env,
            capture_output=True,
            cwd=tmp_path,
            check=False,
        )
        assert (done.returncode, b"Traceback" in done.stderr) == (code, False), done.stderr
    assert json.loads(done.stdout)["as_label"] == "Z\u00fcrich"


# --- where secrets go, and whose clock counts -------------------------------------------------------------------------


def test_what_is_sent_to_this_host_takes_no_proxy(service: Service, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real proxy process, which says what it is asked for."""
    port = free_port()
    command = [sys.executable, "-m", "tests.mpget_server", "proxy", "127.0.0.1", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as proxy:
        assert proxy.stdout is not None
        try:
            assert proxy.stdout.readline() == "ready\n"
            for name in ("http_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
                monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
            for name in ("no_proxy", "NO_PROXY"):
                monkeypatch.delenv(name, raising=False)
            run(client.main, ["login", service.url, "--email", "a@example.org"], {0}, b"password\n")
            run(client.main, ["links"], {0})
        finally:
            proxy.terminate()
        assert proxy.stdout.read() == ""
    assert "POST token/" in service.asked


def test_login_makes_no_token_that_it_cannot_store_and_says_what_it_replaces(
    service: Service, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (credentials.URL_VARIABLE, credentials.TOKEN_VARIABLE):
        monkeypatch.delenv(name)
    words = ["login", service.url, "--email", "a@example.org"]
    with monkeypatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", "/proc/none")
        _, said = run(client.main, words, {2}, b"password\n")
    assert "Set XDG_CONFIG_HOME to a folder that can be written" in said
    assert "POST token/" not in service.asked
    run(client.main, words, {0}, b"password\n")
    first = credentials.stored()
    _, said = run(client.main, words, {0}, b"password\n")
    again = credentials.stored()
    assert first is not None
    assert first == again
    assert re.fullmatch(r"scionlab-bw on .* \([0-9a-f]{6}\)", first.name)
    assert f"in place of the one for {service.url}" in said
    credentials.forget()
    run(client.main, words, {0}, b"password\n")
    other = credentials.stored()
    assert other is not None
    assert other.name != first.name
    service.status, service.body = 401, b'{"message": "This API token is not valid."}'
    _, said = run(client.main, ["logout"], {0})
    assert "had already ended" in said
    assert credentials.stored() is None


def test_a_clock_that_is_off_is_said_and_the_services_counts(service: Service, run: Run) -> None:
    service.date = datetime(2025, 1, 1, 12, 0, tzinfo=UTC)
    _, said = run(client.main, ["usage", "7", "--last", "1h"], {0})
    assert re.search(r"This host's clock is \d+ d .* ahead of the service's, which counts\.", said)
    assert "begins_at=2025-01-01T11%3A" in service.queries[-1]
    service.date = None
    assert "clock" not in run(client.main, ["usage", "7"], {0})[1]


def test_redirect_to_what_is_no_text_is_not_the_users_mistake(service: Service, run: Run) -> None:
    """The library reads where to, also if it is not to follow."""
    service.status, service.location = 302, "http://\xff/"
    assert "answers 302 Found" in run(client.main, ["links"], {3})[1]


def test_slow_answer_does_not_make_the_clock_wrong(service: Service, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its date is that of its beginning."""
    monkeypatch.setattr(rest, "CLOCK_SLACK_S", 1)
    service.body_after_s = 3.0
    assert "clock" not in run(client.main, ["usage", "7"], {0})[1]


@pytest.mark.parametrize("form", ["%H:%M:%S", "%H:%M"])
def test_the_present_second_is_now_and_not_tomorrow(form: str) -> None:
    now = datetime(2026, 11, 22, 18, 30, 5, 123456, tzinfo=UTC)
    assert parse_moment(f"{now:{form}}", now=now, zone=UTC) == now
    assert parse_moment("18:29", now=now, zone=UTC) == datetime(2026, 11, 23, 18, 29, tzinfo=UTC)
    assert parse_moment("18:30:04", now=now, zone=UTC) == datetime(2026, 11, 23, 18, 30, 4, tzinfo=UTC)


def test_a_table_fits_a_terminal_of_80_columns(service: Service, tmp_path: Path) -> None:
    link = service.answers["GET links/"]["results"][0]
    link["status"]["remark"]["text"] = "a foreign filter stands in front of the limits of this link"
    (code, screen) = run_in_terminal(
        [sys.executable, "-m", "scionlab_bw", "links"], env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=tmp_path
    )
    assert (code, screen.wrapped) == (0, 0)
    assert {"foreign", "front", "17-ffaa:0:1107", "NOT"} - set(" ".join(screen.rows).split()) == {"NOT"}


def test_helps_fit_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    def helps(parser: argparse.ArgumentParser) -> Iterator[str]:
        yield parser.format_help()
        for one in parser._actions:
            if isinstance(one, argparse._SubParsersAction):
                for inner in one.choices.values():
                    yield from helps(inner)

    for module in (client, mpget, agent_cli, limiter_cli):
        assert [row for text in helps(module.parser()) for row in text.splitlines() if len(row) > 80] == []


@pytest.mark.parametrize("command", ["watch-load", "test"])
def test_both_kinds_of_test_wait_for_a_free_slot(
    service: Service, run: Run, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    soon = (datetime.now(UTC) + timedelta(seconds=30)).isoformat()
    bodies: list[dict[str, Any]] = []
    real = rest.Service.post

    def post(self: rest.Service, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path == "links/7/tests/":
            bodies.append(body)
            if len(bodies) == 1:
                raise Refused("The link is being tested.", document={"next_free_at": soon})
        return real(self, path, body)

    monkeypatch.setattr(rest.Service, "post", post)
    _, said = run(client.main, [command, "7"], {0})
    assert "Waiting for it." in said
    assert [body.get("begins_at") for body in bodies] == [None, soon]
