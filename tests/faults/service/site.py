"""The service with its own PostgreSQL, Redis and mail server, and people and hosts who talk to it over HTTP."""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from lab.nginx import free_port
from lab.service import REPOSITORY, CoordinationService
from scionlab.platform import beat
from tests.faults.service.mailbox import Mailbox
from tests.faults.service.servers import DEADLINE_S, Postgres, Redis, wait_for

PREPARE = """
import django; django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
import json
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.utils import timezone
from scionlab.testbed.models import Host, Link
from scionlab.testbed import selectors
from tests.factories import AttachmentPointFactory, UserFactory, api_token, attach, spec

def cookie(user):
    session = SessionStore()
    session[SESSION_KEY], session[HASH_SESSION_KEY] = str(user.pk), user.get_session_auth_hash()
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session.save()
    return session.session_key

selectors.policy(), selectors.generation()
owner, staff = UserFactory(email="owner@example.org"), UserFactory(email="staff@example.org", is_staff=True)
aps = [AttachmentPointFactory(host__public_ipv4=f"192.0.2.{n}") for n in (1, 2, 3)]
made = attach(owner, *(spec(ap, public_port=50_000 + n) for n, ap in enumerate(aps)))
Host.objects.update(last_seen_at=timezone.now())
hosts = [Host.objects.get(pk=ap.host.pk) for ap in aps]
print(json.dumps({
    "token": api_token(owner), "owner_cookie": cookie(owner), "staff_cookie": cookie(staff),
    "user_as": made.pk, "ap_hosts": [ap.host.pk for ap in aps], "aps": [ap.pk for ap in aps],
    "links": list(Link.objects.order_by("pk").values_list("pk", flat=True)),
    "uids": [host.uid for host in hosts], "secrets": [host.secret for host in hosts],
}))
"""
# Key and subject; its id.
MAIL = (
    "INSERT INTO accounts_mail (key, kind, recipient, subject, body, created_at, attempts, not_before,"
    " last_error, purpose, network)"
    " VALUES (%s, '', 'owner@example.org', %s, 'It is.', now(), 0, now(), '', '', '') RETURNING id"
)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes
    seconds: float

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Site:
    """Everything of one service; `facts` names the rows that it starts with. `environment` is for all of its parts."""

    session_cookie, csrf_cookie = "sessionid", "csrftoken"

    def __init__(self, folder: Path, postgres: Postgres, redis: Redis, mailbox: Mailbox, **environment: str) -> None:
        self.folder, self.postgres, self.redis, self.mailbox = folder, postgres, redis, mailbox
        self._environment = environment
        self.port = free_port()
        self.service = self.another(self.port)
        self.facts: dict[str, Any] = {}

    def another(self, port: int, **environment: str) -> CoordinationService:
        """One more web tier on the same database and Redis, unless the environment names others."""
        made = CoordinationService(
            self.folder / f"var-{port}",
            bind=f"127.0.0.1:{port}",
            site_url=f"http://127.0.0.1:{self.port}",
            environment={
                "DATABASE_URL": self.postgres.url,
                "REDIS_URL": self.redis.url,
                "SWEEP_INTERVAL_S": "1",
                "WEB_WORKERS": "1",
                "EMAIL_HOST": "127.0.0.1",
                "EMAIL_PORT": str(self.mailbox.port),
                "PYTHONPATH": str(REPOSITORY),
                "API_THROTTLE_USER": "100000/min",
                **self._environment,
                **environment,
            },
        )
        (made.var_dir / "log").mkdir(parents=True, exist_ok=True)
        return made

    @contextmanager
    def web_tier(self, **environment: str) -> Iterator[int]:
        """One more that runs; its port."""
        port = free_port()
        tier = self.another(port, **environment)
        try:
            tier.start_part("web")
            wait_for(lambda: self.answers(port), "another web tier is up")
            yield port
        finally:
            tier.stop()

    def answers(self, port: int) -> bool:
        """True when the web tier at this port can work."""
        try:
            return self.request("GET", "/readyz", headers={}, port=port).status == 200
        except OSError:
            return False

    def prepare(self) -> None:
        self.facts = json.loads(self.python(PREPARE).splitlines()[-1])

    def in_place(self, command: list[str]) -> list[str]:
        """A command that sees the files of the service."""
        return command

    def python(self, code: str, *, must_succeed: bool = True) -> str:
        """A script with the service's settings, as one more process of it."""
        done = subprocess.run(
            self.in_place([sys.executable, "-c", code]), env=self.service.environment | {"LOG_LEVEL": "ERROR"},
            cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0 or not must_succeed, done.stderr
        return done.stdout

    # --- parts ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Whatever does not run, and waits until all of it works."""
        self.postgres.start()
        self.redis.start()
        fresh = [name for name in ("web", "worker", "beat") if not self.runs(name)]
        for name in fresh:
            self.service.start_part(name)
        wait_for(lambda: self.is_healthy() and self.service.worker_is_ready(), "the service is up")

    def runs(self, name: str) -> bool:
        try:
            return self.service.part(name).poll() is None
        except KeyError:
            return False

    def kill(self, name: str) -> None:
        """SIGKILL to the part and all its children: nothing of it gets to say anything. Of beat, the lease is over."""
        process = self.service.part(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=DEADLINE_S)
        if name == "beat":
            self.redis.command("del", beat.KEY)

    def is_healthy(self) -> bool:
        try:
            return self.get("/readyz", as_nobody=True).body.startswith(b"ok\n")
        except OSError:
            return False

    # --- people -----------------------------------------------------------------------------------------------

    def request(
        self, method: str, path: str, *, body: bytes = b"", headers: dict[str, str], port: int | None = None
    ) -> Answer:
        begun = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=DEADLINE_S)
        try:
            connection.request(method, path, body=body or None, headers=headers)
            found = connection.getresponse()
            return Answer(found.status, found.headers, found.read(), time.monotonic() - begun)
        finally:
            connection.close()

    def get(self, path: str, *, as_staff: bool = False, as_nobody: bool = False) -> Answer:
        """A page, for the owner unless somebody else is named."""
        cookie = self.facts.get("staff_cookie" if as_staff else "owner_cookie", "")
        return self.request("GET", path, headers={} if as_nobody else {"Cookie": f"{self.session_cookie}={cookie}"})

    def post(self, path: str, fields: dict[str, str], *, as_staff: bool = False) -> Answer:
        """A form of a page."""
        cookie = self.facts["staff_cookie" if as_staff else "owner_cookie"]
        return self.send_form(path, fields, session=f"{self.session_cookie}={cookie}; ")

    def send_form(self, path: str, fields: dict[str, str], *, session: str = "", **headers: str) -> Answer:
        csrf = "x" * 32
        headers |= {
            "Cookie": f"{session}{self.csrf_cookie}={csrf}",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        body = urlencode({**fields, "csrfmiddlewaretoken": csrf}).encode()
        return self.request("POST", path, body=body, headers=headers)

    def api(self, method: str, path: str, body: Any = None, *, token: str = "", port: int | None = None) -> Answer:
        """A script of the owner, unless it has another token."""
        headers = {"Authorization": f"Token {token or self.facts['token']}", "Content-Type": "application/json"}
        content = b"" if body is None else json.dumps(body).encode()
        return self.request(method, path, body=content, headers=headers, port=port)

    def save(self, kbit: int, *, link: int = 0, port: int | None = None) -> Answer:
        """The owner's script sets the bandwidth of one of the Links."""
        return self.api("PATCH", f"/api/v1/links/{self.facts['links'][link]}/", {"bandwidth_kbit": kbit}, port=port)

    def save_default(self, kbit: int) -> Answer:
        """An administrator sets the site's default on its page, and confirms the preview."""
        fields = {"default_bandwidth_kbit": str(kbit), "reason": "a test"}
        saved = self.post("/admin/testbed/bandwidthpolicy/1/change/", fields, as_staff=True)
        preview = saved.headers.get("Location", "")
        return self.post(f"{preview}apply/", fields, as_staff=True) if "/cockpit/" in preview else saved

    # --- hosts ------------------------------------------------------------------------------------------------

    def poll(
        self, *, version: str, limits: int | None = None, digest: str = "", wait_s: int = 0, host: int = 0,
        port: int | None = None,
    ) -> Answer:  # fmt: skip
        """The host of one of the attachment points asks."""
        query = {"version": version} | ({} if limits is None else {"limits": str(limits)})
        query |= {"digest": digest} if digest else {}
        query |= {"wait": str(wait_s)} if wait_s else {}
        return self._as_host(host, "GET", f"config?{urlencode(query)}", port=port)

    def _as_host(self, host: int, method: str, path: str, *, body: bytes = b"", port: int | None = None) -> Answer:
        uid, secret = self.facts["uids"][host], self.facts["secrets"][host]
        headers = {
            "Authorization": f"Basic {base64.b64encode(f'{uid}:{secret}'.encode()).decode()}",
            "User-Agent": "scionlab-bw-agent/0.9.0",
            "Content-Type": "application/json",
        }
        return self.request(method, f"/api/v4/host/{uid}/{path}", body=body, headers=headers, port=port)

    def report(
        self, *, version: str, limits: int, links: dict[str, int], host: int = 0, port: int | None = None, **values: Any
    ) -> Answer:
        """The agent of an attachment point sends a receipt: the kernel has `links`, kbit/s by interface id."""
        zeros = dict.fromkeys(("bytes", "packets", "drops", "backlog_bytes"), 0)
        entries = {
            key: {
                "kbit": kbit,
                "state": "enforced",
                "to_user": {"dev": "eth0", "rate_kbit": kbit, **zeros},
                "from_user": {"dev": "slbw0", "rate_kbit": kbit, **zeros},
            }
            for key, kbit in links.items()
        }
        receipt = {
            "schema": 1,
            "agent_version": "0.1.0",
            "version": version,
            "limits_version": limits,
            "observed_at": datetime.now(UTC).isoformat(),
            "writes": 0,
            "links": entries,
            "problems": [],
            **values,
        }
        return self._as_host(host, "POST", "enforcement", body=json.dumps(receipt).encode(), port=port)

    def fetch(self, *, version: str, limits: int, **others: Any) -> Answer:
        """The answer with something newer: the web tier may believe for a second that there is nothing (ADR 0011)."""
        answers: list[Answer] = []

        def is_there() -> bool:
            answers.append(self.poll(version=version, limits=limits, **others))
            return answers[-1].status == 200

        wait_for(is_there, "a poll brings something newer")
        return answers[-1]

    def versions(self, host: int = 0) -> tuple[str, int]:
        """G.H and L of the host of one of the attachment points."""
        sql = (
            "SELECT generation, config_version, limits_version FROM testbed_host, testbed_servicestate WHERE"
            " testbed_host.id = %s"
        )
        ((generation, config_version, limits_version),) = self.postgres.ask(sql, self.facts["ap_hosts"][host])
        assert isinstance(limits_version, int)
        return f"{generation}.{config_version}", limits_version

    # --- what is stored ---------------------------------------------------------------------------------------

    def stored_kbit(self, *, link: int = 0) -> int:
        ((kbit,),) = self.postgres.ask(
            "SELECT bandwidth_kbit FROM testbed_link WHERE id = %s", self.facts["links"][link]
        )
        assert isinstance(kbit, int)
        return kbit

    def maxima(self) -> list[int]:
        """What each attachment point clamps to."""
        rows = self.postgres.ask("SELECT maximum_kbit FROM testbed_attachmentpoint ORDER BY id")
        return [kbit for (kbit,) in rows if isinstance(kbit, int)]

    def changes_of(self, link: int = 0) -> list[int]:
        """The bandwidths that the audit has for the Link, in their order."""
        sql = "SELECT new_kbit FROM testbed_bandwidthchange WHERE link_id = %s ORDER BY id"
        return [kbit for (kbit,) in self.postgres.ask(sql, self.facts["links"][link]) if isinstance(kbit, int)]


class InBackground:
    """A function on a thread of its own; `result` waits for it, and raises what it raised."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = self._function()
        except BaseException as exc:  # told to whoever asks for the result
            self._error = exc

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> Any:
        self._thread.join(timeout=DEADLINE_S)
        assert self.is_done, "no answer"
        if self._error is not None:
            raise self._error
        return self._value
