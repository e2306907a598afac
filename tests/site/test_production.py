"""The production settings in a web server of their own: what is answered without TLS, and the health check of compose.

The server is a process, because Django's settings are read once; its database is an embedded one.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.site.test_settings_env import PRODUCTION

ROOT = Path(__file__).resolve().parents[2]
HOST = "lab.example.org"
ENVIRONMENT = PRODUCTION | {"ALLOWED_HOSTS": f"{HOST},other.example.org"}
SERVE = """
import json
import os
import socket
import uvicorn
from django.conf import settings
wanted = ("DEBUG", "PASSWORD_HASHERS", "SESSION_COOKIE_NAME", "SESSION_COOKIE_SECURE", "REST_FRAMEWORK")
print(json.dumps([getattr(settings, name) for name in wanted]))
settings.DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["DATABASE"]}}
from scionlab.asgi import application
from scionlab.delivery.polls.worker import PollServer, Worker
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
PollServer(uvicorn.Config(application, **Worker.CONFIG_KWARGS)).run(sockets=[listener])
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The static files of the image, by the command of the Dockerfile; no secret is there while it is built."""
    collected = tmp_path_factory.mktemp("image") / "collected"
    manage("collectstatic", "--no-input", settings="collect", STATIC_ROOT=str(collected))
    return collected


def manage(*command: str, settings: str, **environment: str) -> None:
    known = {"PATH": os.environ["PATH"], "DJANGO_SETTINGS_MODULE": f"scionlab.settings.{settings}"}
    with tempfile.TemporaryDirectory() as var:
        subprocess.run(
            [sys.executable, "manage.py", *command],
            cwd=ROOT,
            env=known | {"SCIONLAB_VAR": var} | environment,
            check=True,
            capture_output=True,
            timeout=120,
        )


@dataclass(frozen=True)
class Server:
    """`settings`: those that its process has."""

    port: int
    settings: list[Any]


@pytest.fixture(scope="module")
def server(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    var = tmp_path_factory.mktemp("var")
    environment = {
        "PATH": os.environ["PATH"],
        "SCIONLAB_VAR": str(var),
        "STATIC_ROOT": str(image),  # pages name their static files by the hashes that were made there
        "DATABASE": str(var / "database"),
        "DEBUG": "1",  # which production does not heed
        **ENVIRONMENT,
    }
    command = [sys.executable, "-c", SERVE]
    with (
        (var / "log").open("w") as log,
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=log, text=True) as running,
    ):
        try:
            assert running.stdout is not None
            settings = running.stdout.readline()
            written = running.stdout.readline().strip()  # ends when the server is ready, or when it is dead
            assert written.isdigit(), (var / "log").read_text()
            yield Server(int(written), json.loads(settings))
        finally:
            running.kill()


@pytest.fixture
def port(server: Server) -> int:
    return server.port


def ask(port: int, path: str, **headers: str) -> tuple[http.client.HTTPResponse, str]:
    """The answer to a plain HTTP request, and its body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        named = {name.replace("_", "-"): value for name, value in {"Host": HOST, **headers}.items()}
        connection.request("GET", path, headers=named)
        response = connection.getresponse()
        return response, response.read().decode()
    finally:
        connection.close()


def get(port: int, path: str, **headers: str) -> tuple[int, str]:
    """Status and redirect address."""
    response, _ = ask(port, path, **headers)
    return response.status, response.getheader("Location", "")


def test_health_checks_are_answered_without_tls(port: int) -> None:
    assert get(port, "/livez") == (200, "")
    assert get(port, "/readyz") == (503, "")  # this database has no tables
    assert get(port, "/metrics") == (404, "")  # nobody may, unless a setting says so


@pytest.mark.parametrize("path", ["/", "/login/", "/livezz", "/livez/", "/x/livez", "/livez%0A"])
def test_every_other_page_is_redirected_to_tls(port: int, path: str) -> None:
    assert get(port, path) == (301, f"https://{HOST}{path}")


def test_pages_carry_what_browsers_need_to_protect_them(port: int) -> None:
    response, page = ask(port, "/login/", X_Forwarded_Proto="https")
    headers = {name.lower(): value for name, value in response.getheaders()}
    assert response.status == 200
    assert headers["strict-transport-security"] == "max-age=31536000; includeSubDomains; preload"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    cookie = headers["set-cookie"]
    assert cookie.startswith("__Host-csrftoken=")
    assert {"HttpOnly", "Secure", "Path=/", "SameSite=Lax"} <= set(cookie.split("; "))
    assert "no-store" in headers["cache-control"]
    assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")
    assert re.search(r"/static/scionlab/site\.[0-9a-f]{12}\.css", page)  # named by its content


def test_a_page_that_does_not_exist_shows_nothing_of_the_settings(port: int) -> None:
    """`DEBUG=1` stands in this server's environment."""
    response, shown = ask(port, "/nowhere", X_Forwarded_Proto="https")
    assert response.status == 404
    assert "Page not found" in shown
    assert "urlpatterns" not in shown.lower()
    assert "DJANGO_SETTINGS_MODULE" not in shown


def test_production_hashes_passwords_with_argon2_and_serves_json_alone(server: Server) -> None:
    debug, hashers, cookie, is_secure, rest = server.settings
    assert (debug, cookie, is_secure) == (False, "__Host-sessionid", True)
    assert hashers[0] == "scionlab.platform.passwords.hashers.Argon2Hasher"
    assert rest["DEFAULT_RENDERER_CLASSES"] == ["rest_framework.renderers.JSONRenderer"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 301),  # an agent that asks without TLS is sent there; its poll is not answered
        ({"X_Forwarded_Proto": "https", "Host": "127.0.0.1"}, 400),
        ({"X_Forwarded_Proto": "https"}, 503),  # a poll like any other; this database has no tables
    ],
)
def test_polls_get_past_nothing_that_pages_do_not(port: int, headers: dict[str, str], status: int) -> None:
    basic = base64.b64encode(b"abc:secret").decode()
    assert get(port, "/api/v4/host/abc/config?version=1.1", Authorization=f"Basic {basic}", **headers)[0] == status


def health_check(port: int, allowed_hosts: str, path: str) -> int:
    """The exit status of compose's own command, asked of the server at `port` for `path` instead of /readyz."""
    services: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    kind, python, *arguments = services["web"]["healthcheck"]["test"]
    assert (kind, python) == ("CMD", "python")
    filled = [
        one.replace("${ALLOWED_HOSTS}", allowed_hosts).replace(":8000/readyz", f":{port}{path}") for one in arguments
    ]
    return subprocess.run([sys.executable, *filled], capture_output=True, check=False, timeout=30).returncode


def test_composes_health_check_passes_and_can_fail(port: int) -> None:
    assert health_check(port, ENVIRONMENT["ALLOWED_HOSTS"], "/livez") == 0
    assert health_check(port, ENVIRONMENT["ALLOWED_HOSTS"], "/readyz") == 1, "this database has no tables"
    assert health_check(port, "elsewhere.example.org", "/livez") == 1


@pytest.mark.parametrize("charset", ["rot13", "undefined", "base64", "punycode", "utf-16", "x" * 4000])
def test_an_encoding_that_nobody_sends_is_refused(port: int, charset: str) -> None:
    """Django would decode the query with it, before any of our code runs."""
    status, _ = get(port, "/login/?next=/ases/", Content_Type=f"text/html; charset={charset}")
    assert status == 415


@pytest.mark.parametrize(
    "content_type", ["text/html", "", "text/html; charset=UTF-8", 'x/y; CHARSET="iso-8859-1"', ";;"]
)
def test_the_usual_encodings_are_read(port: int, content_type: str) -> None:
    assert get(port, "/login/?next=/ases/", Content_Type=content_type)[0] == 301


def test_an_image_publishes_its_static_files_beside_those_of_older_versions(image: Path, tmp_path: Path) -> None:
    """By the command of docker-compose.yml."""
    served = tmp_path / "served"
    (served / "scionlab").mkdir(parents=True)
    (served / "scionlab/site.0123456789ab.css").write_text("of an older version")
    manage("publish_static", str(served), settings="prod", STATIC_ROOT=str(image), **ENVIRONMENT)
    files = [file for file in served.rglob("*") if file.is_file()]
    assert (served / "scionlab/site.0123456789ab.css").read_text() == "of an older version"
    assert len([file for file in files if re.fullmatch(r"site\.[0-9a-f]{12}\.css", file.name)]) == 2
    by_nginx = re.compile(r".+\.[0-9a-f]{12}(\.[a-z0-9]+)?(\.gz)?")
    assert [file.name for file in files if not by_nginx.fullmatch(file.name)] == []
    (site,) = (file for file in files if re.fullmatch(r"site\.(?!0123)[0-9a-f]{12}\.css", file.name))
    assert site.read_bytes() == (image / "scionlab" / site.name).read_bytes()
