"""What nginx answers and hands on, by packaging/nginx/nginx.conf, in front of a web tier that echoes.

The real service behind it is in test_deployment.py.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lab.nginx import free_port
from tests.faults.service.nginx import Nginx, unfinished
from tests.faults.service.servers import wait_for

pytestmark = pytest.mark.xdist_group("nginx")

TOKEN = "tOkEn-that-proves-something"


class Echo(BaseHTTPRequestHandler):
    """Tells what arrived, as JSON; waits `?wait=` seconds first."""

    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        wait = re.search(r"[?&]wait=([0-9.]+)", self.path)
        time.sleep(float(wait[1]) if wait else 0.0)
        told = {"path": self.path, "headers": {name.lower(): value for name, value in self.headers.items()},
                "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}  # fmt: skip
        content = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = _answer  # noqa: N815  the library's names

    def log_message(self, *_: object) -> None:
        pass


class Quiet(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


@pytest.fixture(scope="module")
def nginx() -> Iterator[Nginx]:
    web = Quiet(("127.0.0.1", 0), Echo)
    threading.Thread(target=web.serve_forever, args=(0.1,), daemon=True).start()
    # The second port is a replica that has gone.
    front = Nginx(web.server_address[1], free_port())
    try:
        front.start()
        yield front
    finally:
        front.stop()
        web.shutdown()
        web.server_close()


@pytest.fixture(scope="module")
def alone() -> Iterator[Nginx]:
    """In front of nobody."""
    front = Nginx(free_port())
    try:
        front.start()
        yield front
    finally:
        front.stop()


def lines_of(path: Path, wanted: str) -> list[str]:
    wait_for(lambda: wanted in path.read_text(), f"{path.name} has {wanted}")
    return [line for line in path.read_text().splitlines() if wanted in line]


def test_plain_http_is_redirected_to_the_sites_first_name_and_another_name_reaches_no_web_tier(nginx: Nginx) -> None:
    answer = nginx.ask("GET", "/ases/?a=1", host="evil.example.net", port=nginx.port_80)
    assert (answer.status, answer.headers["Location"]) == (301, "https://lab.example.org/ases/?a=1")
    assert nginx.ask("GET", "/", host="evil.example.net").status == 421
    assert nginx.ask("GET", "/", host="www.lab.example.org").json["headers"]["host"] == "www.lab.example.org"


def test_the_web_tier_is_told_who_asks_how_and_under_which_id(nginx: Nginx) -> None:
    forged = {"X-Forwarded-For": "192.0.2.9", "X-Forwarded-Proto": "gopher", "X-Request-ID": "mine",
              "X-Test-Address": "198.51.100.4"}  # fmt: skip
    answer = nginx.ask("GET", "/ases/", headers=forged)
    told = answer.json["headers"]
    assert told["x-forwarded-for"] == "192.0.2.9, 198.51.100.4"
    assert told["x-forwarded-proto"] == "https"
    assert re.fullmatch(r"[0-9a-f]{32}", told["x-request-id"])
    assert answer.headers["X-Request-ID"] == told["x-request-id"]
    (line,) = lines_of(nginx.access_log, told["x-request-id"])
    assert re.match(r'\d{4}-\d\d-\d\dT\S+ [0-9a-f]{32} 198\.51\.100\.4 "GET /ases/" 200 ', line)


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("/api/v4/host/abc/usage", 9 * 2**20),
        ("/api/v4/host/abc/enforcement", 9 * 2**20),
        ("/api/v4/host/abc/test_results", 9 * 2**20),
        ("/api/v4/host/abc/installed", 9 * 2**20),
        ("/api/v1/tests/7/report/", 264 * 2**10),
        ("/api/v4/host/abc/config", 128 * 2**10),
        ("/ases/", 128 * 2**10),
    ],
)
def test_a_body_arrives_up_to_what_its_door_needs(nginx: Nginx, path: str, most: int) -> None:
    body = (bytes(range(256)) * 36_864)[:most]
    here = {"X-Test-Address": "198.51.100.211"}
    answer = nginx.ask("POST", path, body=body, headers=here)
    assert (answer.json["bytes"], answer.json["sha256"]) == (most, hashlib.sha256(body).hexdigest())
    assert nginx.ask("POST", path, body=b"x", headers={**here, "Content-Length": str(most + 1)}).status == 413


def test_a_network_has_64_requests_at_once_beside_the_polls_of_its_hosts(nginx: Nginx) -> None:
    here = {"X-Test-Address": "203.0.113.77"}
    with contextlib.ExitStack() as lines:
        for _ in range(64):
            line = unfinished(nginx, "/ases/", length=131_072, sent=1000, address="203.0.113.77")
            lines.callback(line.close)
        wait_for(lambda: nginx.ask("GET", "/ases/", headers=here).status == 429, "the network is full")
        assert nginx.ask("GET", "/api/v1/links/", headers=here).json["code"] == "throttled"
        assert nginx.ask("GET", "/api/v4/host/abc/config?version=1.1", headers=here).status == 200
        assert nginx.ask("POST", "/api/v4/host/abc/enforcement", body=b"{}", headers=here).status == 200
        assert nginx.ask("GET", "/ases/", headers={"X-Test-Address": "203.0.113.78"}).status == 200


def test_a_body_that_stops_is_given_up_after_10_s(nginx: Nginx) -> None:
    """As nginx measures it: this process may be busy meanwhile."""
    line = unfinished(nginx, "/ases/", length=1000, sent=900, address="203.0.113.99")
    line.settimeout(30)
    with line:
        assert line.recv(100)[:12] in {b"", b"HTTP/1.1 408"}
    (logged,) = lines_of(nginx.access_log, " 203.0.113.99 ")
    took = re.search(r" ([\d.]+)s web=", logged)
    assert took is not None, logged
    assert 9 < float(took[1]) < 15


def test_a_poll_of_61_s_is_waited_for(nginx: Nginx) -> None:
    assert nginx.ask("GET", "/api/v4/host/abc/config?version=1.1&wait=61.5", port=nginx.port).status == 200


@pytest.mark.parametrize("path", ["/login/", "/admin/login/", "/account/reset/", "/account/register/", "/api/v4/enrol"])
def test_a_door_takes_31_tries_at_once_from_a_network_and_says_when_to_return(nginx: Nginx, path: str) -> None:
    here = {"X-Test-Address": f"198.51.100.{sum(path.encode()) % 256}"}

    def knock(_: int) -> int:
        return nginx.ask("POST", path, body=b"x", headers=here).status

    begun = time.monotonic()
    with ThreadPoolExecutor(8) as many:
        found = Counter(many.map(knock, range(60)))
    assert found.keys() == {200, 429}
    assert 31 <= found[200] <= 32 + time.monotonic() - begun, "one more for each second that this took"
    answers = [nginx.ask("POST", path, body=b"x", headers=here) for _ in range(5)]
    busy = [answer for answer in answers if answer.status == 429]  # after a second one of them is let in
    assert {answer.headers["Retry-After"] for answer in busy} == {"30"}
    assert {"throttled" in answer.text for answer in busy} == {path.startswith("/api/")}
    elsewhere = {"X-Test-Address": "203.0.113.7"}
    assert nginx.ask("POST", path, body=b"x", headers=elsewhere).status == 200
    assert nginx.ask("GET", path, headers=here).status == 200, "only what is sent"


def test_the_addresses_of_one_ipv6_64_are_one_network(nginx: Nginx) -> None:
    def knock(number: int) -> int:
        return nginx.ask("POST", "/password/", headers={"X-Test-Address": f"2001:db8:0:a::{number:x}"}).status

    begun = time.monotonic()
    found = Counter(map(knock, range(1, 61)))
    assert found[200] <= 32 + time.monotonic() - begun
    assert found.keys() == {200, 429}
    assert nginx.ask("POST", "/password/", headers={"X-Test-Address": "2001:db8:0:b::1"}).status == 200


@pytest.mark.parametrize(
    ("path", "logged"),
    [
        (f"/account/confirm/{TOKEN}/", "/account/confirm/..."),
        (f"/account/%63onfirm/{TOKEN}/", "/account/confirm/..."),
        (f"/account/reset/MQ/{TOKEN}/", "/account/reset/..."),
        (f"/account/mails/{TOKEN}/", "/account/mails/..."),
        ("/account/reset/sent/", "/account/reset/sent/"),
        (f"/login/?next=/account/confirm/{TOKEN}/", "/login/"),
    ],
)
@pytest.mark.parametrize("is_up", [True, False])
def test_the_log_has_no_link_that_proves_something(
    nginx: Nginx, alone: Nginx, path: str, logged: str, is_up: bool
) -> None:
    front = nginx if is_up else alone
    answer = front.ask("GET", path, headers={"Referer": f"https://lab.example.org/?{TOKEN}"} if is_up else {})
    assert answer.status == (200 if is_up else 503)
    (line,) = lines_of(front.access_log, answer.headers["X-Request-ID"])
    assert f'"GET {logged}"' in line
    assert TOKEN not in front.access_log.read_text()
    assert TOKEN not in front.error_log.read_text()


def test_without_a_web_tier_everybody_is_told_when_to_return_in_their_own_form(alone: Nginx) -> None:
    pages = [alone.ask("GET", "/ases/") for _ in range(12)]
    api = [alone.ask("GET", path) for path in ("/api/v1/links/", "/api/v4/host/abc/config?version=1.1")]
    assert {answer.status for answer in (*pages, *api)} == {503}
    after = [int(answer.headers["Retry-After"]) for answer in (*pages, *api)]
    assert set(after) <= {1, 2, 3}
    assert len(set(after)) > 1, "spread"
    assert pages[0].text == "The service cannot answer now. Reload this page in a few seconds.\n"
    assert [(answer.json["code"], answer.headers.get_content_type()) for answer in api] == [
        ("unavailable", "application/json")
    ] * 2


def test_a_hashed_file_comes_from_the_folder_of_all_versions_or_from_the_web_tier(nginx: Nginx) -> None:
    (nginx.folder / "static/site.0123456789ab.css").write_text("old")
    (nginx.folder / "static/site.css").write_text("whose?")
    old = nginx.ask("GET", "/static/site.0123456789ab.css")
    assert (old.text, old.headers["Cache-Control"]) == ("old", "public, max-age=315360000, immutable")
    assert old.headers.get_content_type() == "text/css"
    assert nginx.ask("GET", "/static/site.ba9876543210.css").json["path"] == "/static/site.ba9876543210.css"
    assert nginx.ask("GET", "/static/site.css").json["path"] == "/static/site.css", "each version has its own"


def test_health_is_not_for_strangers(nginx: Nginx) -> None:
    for path in ("/livez", "/readyz"):
        assert nginx.ask("GET", path, headers={"X-Test-Address": "198.51.100.1"}).status == 403
        assert nginx.ask("GET", path, headers={"X-Test-Address": "127.0.0.1"}).status == 200
