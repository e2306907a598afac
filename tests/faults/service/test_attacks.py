"""Six attacks that once harmed others, played on what is shipped: nginx, two web tiers with production's settings,
PostgreSQL and two Redis. After each, and during those that last, a bystander (another user, with Links at two other
attachment points) reads pages, logs in, and their attachment points report.

Host 0 is the hostile attachment point, where the bystander has a Link, too. Mallory is a user of attachment point 1.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import shutil
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab import nginx as lab_nginx
from tests.faults.service.mailbox import Mailbox
from tests.faults.service.nginx import Nginx, bodies_on_disk, unfinished
from tests.faults.service.servers import Postgres, Redis, wait_for
from tests.faults.service.site import Answer, Site

pytestmark = pytest.mark.xdist_group("attacks")

MALLORY = """
import django; django.setup()
import json
from scionlab.testbed.models import AttachmentPoint, Host
from tests.factories import UserFactory, api_token, attach, spec
import sys
mallory = UserFactory(email="mallory@example.org")
ap = AttachmentPoint.objects.get(host=Host.objects.get(pk=%s))
made = attach(mallory, spec(ap, public_ip="198.51.100.66", public_port=50_100))
link = made.interfaces.get().link_as_b
print(json.dumps({"token": api_token(mallory), "as": made.pk, "ap": ap.pk, "link": link.pk}))
"""
# Of a test that ended an hour ago nobody can read the result; an exception of the bystander's Link ends within 7 days.
UNREADABLE = """
import django; django.setup()
from datetime import timedelta
from django.utils import timezone
from scionlab.celery import app
from scionlab.testbed.models import Link
from scionlab.linktests.models import LinkTest, TestResult
from scionlab.limits.models import MaximumException
link, now = Link.objects.get(pk=%s), timezone.now()
began = now - timedelta(hours=1)
test = LinkTest.objects.create(link=link, tool="watch", begins_at=began, ends_at=began + timedelta(minutes=1),
                               created_by=link.interface_b.AS.useras.owner)
TestResult.objects.create(test=test, samples=[{}, {}], received_at=began, is_final=True)
LinkTest.objects.filter(pk=test.pk).update(created_at=began - timedelta(hours=1))
MaximumException.objects.create(link=link, maximum_kbit=5000, ends_at=now + timedelta(hours=1), state="approved",
                                decided_at=now - timedelta(days=9), reason="A measurement.")
for name in ("notify_tests", "find_notices", "notify_exceptions"):
    app.send_task(f"scionlab.tasks.{name}")
"""


class Shipped(Site):
    """Everybody but health checks comes through nginx, over TLS."""

    session_cookie, csrf_cookie = "__Host-sessionid", "__Host-csrftoken"
    front: Nginx

    def request(
        self, method: str, path: str, *, body: bytes = b"", headers: dict[str, str], port: int | None = None
    ) -> Answer:
        if port is not None or not hasattr(self, "front"):
            return super().request(method, path, body=body, headers=headers, port=port)
        return self.front.ask(method, path, body=body, headers={"Referer": "https://lab.example.org/", **headers})

    def log_in(self, email: str, password: str, address: str) -> Answer:
        fields = {"username": email, "password": password}
        return self.send_form("/login/", fields, **{"X-Test-Address": address})

    def register(self, email: str, address: str) -> Answer:
        return self.send_form("/account/register/", {"email": email}, **{"X-Test-Address": address})


@pytest.fixture(scope="module")
def site() -> Iterator[Shipped]:
    if lab_nginx.program() is None:
        pytest.skip("no nginx: apt-get install nginx")
    folder = Path(tempfile.mkdtemp(prefix="slbw-attacks-", dir="/tmp"))
    folder.chmod(0o755)
    mailbox, cache = Mailbox(), Redis(folder / "cache", "--maxmemory", "256mb", "--maxmemory-policy", "allkeys-lru")
    made = Shipped(
        folder,
        Postgres(folder / "pg", None),
        Redis(folder / "redis"),
        mailbox,
        DJANGO_SETTINGS_MODULE="scionlab.settings.prod",
        SECRET_KEY="k" * 60,
        SIGNING_SECRET="s" * 60,
        ALLOWED_HOSTS="lab.example.org,127.0.0.1",
        SITE_URL="https://lab.example.org",
        CACHE_URL=cache.url,
        TRUSTED_PROXIES="1",
        UNDERLAY_GLOBAL_ONLY="0",  # documentation addresses
        STATIC_ROOT=str(folder / "static"),
        API_THROTTLE_USER="600/min",
        LOGIN_FAILURES_PER_ADDRESS="10",
    )
    second = made.another(lab_nginx.free_port())
    front = Nginx(made.port, int(second.bind.rpartition(":")[2]))
    try:
        for server in (made.postgres, made.redis, cache):
            server.start()
        made.prepare()
        made.service.manage("collectstatic", "--no-input", "-v0")
        made.facts["mallory"] = json.loads(made.python(MALLORY % made.facts["ap_hosts"][1]).splitlines()[-1])
        front.start()
        second.start_part("web")
        made.front = front
        made.start()
        wait_for(lambda: made.answers(int(second.bind.rpartition(":")[2])), "the second web tier is up")
        yield made
    finally:
        front.stop()
        second.stop()
        made.service.stop()
        for started in (made.postgres, made.redis, cache):
            with contextlib.suppress(AssertionError):  # not started
                started.stop()
        mailbox.close()
        shutil.rmtree(folder, ignore_errors=True)


STRANGERS = "SELECT count(*) FROM accounts_mail WHERE recipient LIKE 'stranger%%'"

# --- the bystander --------------------------------------------------------------------------------------------------


def harm(site: Shipped, *, logs_in: bool = True) -> list[str]:
    """What the bystander, their attachment points and the operator are not served as ever; each is named."""
    wrong = []
    user_as, links = site.facts["user_as"], site.facts["links"][:3]
    pages = ["/ases/", f"/ases/{user_as}/", *(f"/ases/{user_as}/links/{link}/" for link in links)]
    for path in pages:
        if (status := site.get(path).status) != 200:
            wrong.append(f"{status} {path}")
    for path in ("/cockpit/", *(f"/cockpit/aps/{ap}/" for ap in site.facts["aps"]), "/admin/testbed/link/"):
        if (status := site.get(path, as_staff=True).status) != 200:
            wrong.append(f"{status} {path}, the administrator")
    for host in (1, 2):
        version, limits = site.versions(host)
        site.facts["counted"] = site.facts.get("counted", 0) + 1
        answer = site.report(version=version, limits=limits, links={"1": site.stored_kbit(link=host)}, host=host,
                             writes=site.facts["counted"], problems=[MANY_WORDS] * 40)  # fmt: skip
        stage = site.api("GET", f"/api/v1/links/{links[host]}/").json["status"]["stage"]
        if (answer.status, stage) != (200, "enforced"):
            wrong.append(f"receipt of host {host}: {answer.status} {answer.text[:200]}, Link {stage}")
    if logs_in and (answer := site.log_in("owner@example.org", PASSWORD, "203.0.113.200")).status != 302:
        wrong.append(f"log-in: {answer.status}")
    return wrong


PASSWORD = "correct horse battery"
# A receipt of 12 kB and more: larger than what nginx keeps in memory by its own default.
MANY_WORDS = {"code": "clock_step", "subject": "clock", "message": "words " * 50}


def test_nobody_is_harmed_before_an_attack(site: Shipped) -> None:
    assert harm(site) == []


# --- the attacks ----------------------------------------------------------------------------------------------------


def test_1_times_that_no_database_reads_back(site: Shipped) -> None:
    """From the hostile attachment point, each with counters that differ."""
    version, limits = site.versions(0)
    assert site.report(version=version, limits=limits, links={"1": 1000}).status == 200
    for number, said in enumerate(("9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "2262-04-11T23:47:17Z")):
        answer = site.report(version=version, limits=limits, links={"1": 900 + number}, observed_at=said)
        assert answer.status == 400
        (told,) = answer.json["fields"]["observed_at"]
        assert said in told["message"]
    for field, value in (("writes", 2**63), ("limits_version", 2**31), ("agent_version", "\0" * 9), ("run", "\ud800")):
        answer = site.report(**{"version": version, "limits": limits, "links": {"1": 1000}, field: value})  # type: ignore[arg-type]
        assert (field, answer.status) == (field, 400)
    assert site.report(version=version, limits=limits, links={"1": 1000}, writes=2).status == 200
    assert site.api("GET", f"/api/v1/links/{site.facts['links'][0]}/").json["status"]["stage"] == "enforced"
    assert harm(site) == []


def test_2_one_unreadable_result_of_a_test_and_the_mail_of_an_exception(site: Shipped) -> None:
    site.python(UNREADABLE % site.facts["links"][2])
    log = site.service.var_dir / "log/worker.log"
    wait_for(lambda: "each.failed work=link_tests_notify" in log.read_text(), "the row was met")
    wait_for(lambda: any("exception" in mail.lower() for mail in site.mailbox.received), "the mail of the exception")
    site.postgres.ask("DELETE FROM linktests_testresult")  # the page of its Link cannot read it either
    assert harm(site) == []


def test_3_sixteen_connections_for_dear_answers_and_eight_uploads_that_stop(site: Shipped) -> None:
    token, link = site.facts["mallory"]["token"], site.facts["mallory"]["link"]
    is_over = threading.Event()
    found: Counter[int] = Counter()

    def ask() -> None:
        while not is_over.is_set():
            found[site.api("GET", f"/api/v1/links/{link}/usage/?step=10s", token=token).status] += 1

    with ThreadPoolExecutor(16) as many, contextlib.ExitStack() as lines:
        for _ in range(16):
            many.submit(ask)
        for _ in range(8):
            lines.callback(upload_of_the_hostile_host(site).close)
        try:
            for _ in range(2):
                assert harm(site) == []
        finally:
            is_over.set()
    assert found.keys() <= {200, 429}
    assert found[429] > found[200], "two at once are answered"


def upload_of_the_hostile_host(site: Shipped) -> socket.socket:
    uid, secret = site.facts["uids"][0], site.facts["secrets"][0]
    words = base64.b64encode(f"{uid}:{secret}".encode()).decode()
    return unfinished(
        site.front, f"/api/v4/host/{uid}/enforcement", length=9 * 2**20, sent=2**20, address="203.0.113.9",
        credentials=f"Authorization: Basic {words}\r\n",
    )  # fmt: skip


def test_4_thirty_restarts_of_scion_at_somebody_elses_attachment_point(site: Shipped) -> None:
    mallory = site.facts["mallory"]
    path, attachment = f"/api/v1/ases/{mallory['as']}/", {"attachment_point_id": mallory["ap"]}
    site.postgres.ask("DELETE FROM testbed_restartbudget")
    before, _ = site.versions(1)
    for port in range(50_101, 50_131):
        attachment |= {"public_ip": "198.51.100.66", "public_port": port, "link_id": mallory["link"]}
        body = {"label": "", "installation_type": "dedicated", "attachments": [attachment]}
        answer = site.api("PUT", path, body, token=mallory["token"])
        assert answer.status == 200, answer.text
    after, limits = site.versions(1)
    assert int(after.partition(".")[2]) == int(before.partition(".")[2]) + 5
    told = site.api("GET", f"/api/v1/links/{mallory['link']}/", token=mallory["token"]).text
    assert "restarts SCION there, and there were many" in told
    assert site.save(700, link=1).status == 200, "the bystander's limit, at once"
    assert site.versions(1) == (after, limits + 1)
    assert harm(site) == []


def test_5_two_hundred_uploads_without_an_account_that_stop(site: Shipped) -> None:
    with contextlib.ExitStack() as lines:
        for number in range(100):
            network = f"203.0.113.{number % 4 + 10}"
            for length, sent in ((15_700_000, 100_000), (131_072, 130_972)):
                lines.callback(unfinished(site.front, "/ases/", length=length, sent=sent, address=network).close)
            guessed = f"/api/v4/host/{site.facts['uids'][1]}/enforcement"
            lines.callback(unfinished(site.front, guessed, length=9 * 2**20, sent=200_000, address=network).close)
        assert harm(site) == []
        assert bodies_on_disk(site.front) == 0
        assert harm(site) == []


def test_6_guessers_and_registrations_from_each_64_of_one_48(site: Shipped) -> None:
    is_over = threading.Event()
    guesses: Counter[int] = Counter()

    def guess(network: int) -> None:
        for number in itertools.count():
            if is_over.is_set():
                return
            address = f"2001:db8:1:{network:x}::5"
            guesses[site.log_in(f"guess{network}-{number}@example.org", "wrong", address).status] += 1

    def log_in(address: str) -> tuple[int, float]:
        """Status, and seconds until it was there."""
        began = time.monotonic()
        return site.log_in("owner@example.org", PASSWORD, address).status, time.monotonic() - began

    honest: list[tuple[int, float]] = []
    with ThreadPoolExecutor(24) as many:
        for network in range(24):
            many.submit(guess, network)
        try:
            for number in range(9):
                honest.append(log_in(f"203.0.113.{100 + number}"))
                time.sleep(0.2)  # some before the first failure is counted, and some after the /48 is closed
            wait_for(lambda: site.log_in("new@example.org", "x", "2001:db8:1:ff::5").status == 429, "the /48 is closed")
        finally:
            is_over.set()
    assert [status for status, _ in honest] == [302] * 9, "each at its first try"
    assert max(waited for _, waited in honest) < 10, honest
    assert guesses.keys() <= {200, 429, 503}
    assert guesses[200] < 80, "of a /48 are four times the 10 of an address tried; more only at the same moment"
    assert log_in("2001:db8:3::1")[0] == 302

    asked = Counter(site.register(f"stranger{n}@example.net", f"2001:db8:2:{n:x}::5").status for n in range(429))
    ((stored,),) = site.postgres.ask(STRANGERS)
    assert (stored, asked[302]) == (80, 80), "four times the 20 of an address for the /48"
    for n in range(100, 160):
        site.register(f"stranger{n + 1000}@example.net", f"2001:db8:{n:x}::5")
    ((stored,),) = site.postgres.ask(STRANGERS)
    assert stored == 100, "of the whole site, whatever the networks"
    assert harm(site) == []
