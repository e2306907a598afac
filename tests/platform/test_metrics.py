"""/metrics: who may read it, what it says, what it costs, and that several processes count together."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.db import DatabaseError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families
from pytest_django import Settings
from redis.exceptions import ConnectionError as RedisConnectionError

from scionlab.accounts.models import Mail, User
from scionlab.enforcement.models import HostReceipt
from scionlab.enforcement.receipt import receipt_store
from scionlab.enforcement.receipt_format import Direction, LinkReceipt, Receipt
from scionlab.limits.update import link_set_bandwidth
from scionlab.platform import redis_client
from scionlab.platform.metrics import names, shared
from scionlab.site import figures
from scionlab.testbed import selectors
from scionlab.testbed.models import Host, Link
from tests.cases import table
from tests.monitoring_files import named_metrics

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "a-token-of-more-than-thirty-two-characters"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
METRICS = [metric for metric in vars(names).values() if isinstance(metric, MetricWrapperBase)]
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _nothing_was_counted(settings: Settings) -> None:
    settings.METRICS_TOKEN = TOKEN
    cache.delete("scionlab.metrics.figures")
    for metric in METRICS:
        metric.clear()
        if not metric._labelnames:
            metric._metric_init()  # type: ignore[no-untyped-call]  # it has no types


def scrape(**labels: str) -> dict[str, float]:
    """Every sample by name, `{name}{label=value,...}`; of those with these labels."""
    answer = Client().get("/metrics", headers=BEARER)
    assert answer.status_code == 200
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(answer.content.decode()):
        assert family.documentation, family.name
        for sample in family.samples:
            if labels.items() <= sample.labels.items():
                shown = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
                found[f"{sample.name}{{{shown}}}" if shown else sample.name] = sample.value
    return found


# --- who may ------------------------------------------------------------------------------------------------


def test_nobody_may_read_it_by_default(settings: Settings, staff: User) -> None:
    settings.METRICS_TOKEN = ""
    browser = Client()
    browser.force_login(staff)
    assert browser.get("/metrics").status_code == 404
    assert Client().get("/metrics", headers={"Authorization": "Bearer "}).status_code == 404


@table(
    "header",
    ["", "Bearer ", "Bearer x", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer \xff"],
)
def test_another_token_is_refused_and_told_nothing(header: str) -> None:
    answer = Client().get("/metrics", headers={"Authorization": header})
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="metrics"'
    assert b"scionlab_" not in answer.content
    assert TOKEN.encode() not in answer.content


@table(("proxies", "forwarded", "status"), [(0, "", 200), (1, "127.0.0.1, 203.0.113.9", 401), (1, "127.0.0.1", 200)])
def test_networks_are_those_of_the_client_as_our_proxies_saw_it(
    settings: Settings, proxies: int, forwarded: str, status: int
) -> None:
    settings.METRICS_NETWORKS = [ip_network("127.0.0.0/8")]
    settings.TRUSTED_PROXIES = proxies
    headers = {"X-Forwarded-For": forwarded} if forwarded else {}
    assert Client().get("/metrics", headers=headers).status_code == status


# --- what it says -------------------------------------------------------------------------------------------


def test_requests_are_counted_by_view_and_never_by_what_strangers_choose() -> None:
    Client().get("/login/")
    Client().get("/login/")
    Client().get("/nowhere/at/all?x=1")
    Client().generic("BREW", "/login/")
    found = scrape()
    assert found["scionlab_http_requests_total{method=GET,status=200,view=login}"] == 2
    assert found["scionlab_http_requests_total{method=GET,status=404,view=none}"] == 1
    assert found["scionlab_http_requests_total{method=other,status=405,view=login}"] == 1
    assert found["scionlab_http_request_seconds_count{view=login}"] == 3
    assert found["scionlab_http_request_seconds_bucket{le=+Inf,view=login}"] == 3
    assert not [name for name in found if "nowhere" in name or "BREW" in name]


def receipt_of(host: Host, link: Link, kbit: int) -> Receipt:
    host.refresh_from_db()
    seen = Direction(dev="eth0", rate_kbit=kbit, bytes=0, packets=0, drops=0, backlog_bytes=0)
    return Receipt(
        schema=1,
        agent_version="1",
        written_version=f"{selectors.generation()}.{host.config_version}",
        limits_version=host.limits_version,
        written_at=timezone.now().isoformat(),
        writes=0,
        links={link.interface_a.interface_id: LinkReceipt(kbit, "enforced", seen, seen)},
        problems=[],
    )


def test_the_way_from_save_to_kernel_is_timed_once_per_change(host_a: Host, link: Link, owner: User) -> None:
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=700, actor=owner)
    Link.objects.filter(pk=link.pk).update(changed_at=timezone.now() - timedelta(seconds=0.7))
    for _ in range(3):
        receipt_store(host_id=host_a.pk, receipt=receipt_of(host_a, link, 700))
    found = scrape()
    assert found["scionlab_save_to_kernel_seconds_count"] == 1
    assert 0.7 <= found["scionlab_save_to_kernel_seconds_sum"] < 60
    assert found["scionlab_receipts_total{result=stored}"] == 3
    # Not where the kernel differed for a while: that is no save.
    receipt_store(host_id=host_a.pk, receipt=receipt_of(host_a, link, 650))
    receipt_store(host_id=host_a.pk, receipt=receipt_of(host_a, link, 700))
    assert scrape()["scionlab_save_to_kernel_seconds_count"] == 1


def test_hosts_and_mails_are_counted(host_a: Host, host_b: Host, link: Link, receipt: HostReceipt) -> None:
    Mail.objects.all().delete()
    written = timezone.now() - timedelta(hours=1)
    Mail.objects.create(key="a", recipient="a@example.org", subject="s", body="b", attempts=2, last_error="refused")
    Mail.objects.create(key="b", recipient="a@example.org", subject="s", body="b")
    Mail.objects.create(key="c", recipient="a@example.org", subject="s", body="b", sent_at=timezone.now())
    Mail.objects.filter(key="a").update(created_at=written)
    found = scrape()
    hosts = {state: found[f"scionlab_attachment_point_hosts{{state={state}}}"] for state in ("current", "never")}
    assert hosts == {"current": 1, "never": 1}
    assert (found["scionlab_mails_waiting"], found["scionlab_mails_failing"]) == (2, 1)
    assert found["scionlab_mail_oldest_timestamp_seconds"] == pytest.approx(written.timestamp(), abs=1)
    cache.delete("scionlab.metrics.figures")
    Host.objects.filter(pk=host_a.pk).update(limits_version=99)
    assert scrape()["scionlab_attachment_point_hosts{state=behind}"] == 1


# --- what it costs, and what it does without a part ------------------------------------------------------------


def test_a_scrape_is_cheap_and_the_next_one_is_cheaper(link: Link) -> None:
    with CaptureQueriesContext(connection) as first:
        scrape()
    assert len(first) == 9
    with CaptureQueriesContext(connection) as second:
        scrape()
    assert len(second) == 0


def test_tasks_that_no_worker_has_taken_are_counted(settings: Settings) -> None:
    if not settings.REDIS_URL:
        pytest.skip("needs Redis")
    settings.CELERY_TASK_DEFAULT_QUEUE = "a-queue-of-this-test"
    for task in "12":
        redis_client.client().lpush(settings.CELERY_TASK_DEFAULT_QUEUE, task)
    try:
        assert scrape()["scionlab_queue_tasks"] == 2
    finally:
        redis_client.client().delete(settings.CELERY_TASK_DEFAULT_QUEUE)


def test_without_the_database_it_says_so_and_still_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    names.POLLS.labels("not_modified").inc()

    def away(now: object) -> None:
        raise DatabaseError("gone")

    monkeypatch.setattr(figures, "_read", away)
    found = scrape()
    assert (found["scionlab_up{part=database}"], found["scionlab_up{part=redis}"]) == (0, 1)
    assert found["scionlab_polls_total{answer=not_modified}"] == 1
    assert not [name for name in found if name.startswith("scionlab_links")]


def test_without_redis_it_says_so_and_loses_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    names.POLLS.labels("not_modified").inc(3)
    with monkeypatch.context() as broken:
        broken.setattr(redis_client, "client_of", _Gone)
        found = scrape()
        assert (found["scionlab_up{part=database}"], found["scionlab_up{part=redis}"]) == (1, 0)
        assert found["scionlab_links{stage=enforced}"] == 0
    names.POLLS.labels("not_modified").inc()
    assert scrape()["scionlab_polls_total{answer=not_modified}"] == 4


class _Gone:
    def __init__(self, _url: str) -> None: ...

    def __getattr__(self, name: str) -> Any:
        raise RedisConnectionError("gone")


COUNT = """
import os, sys
import django
from django.conf import settings
settings.METRICS_DIR = sys.argv[1]
django.setup()
from scionlab.platform.metrics import names
names.POLLS.labels("delivered").inc(5)
if len(sys.argv) == 2:
    names.WAITING.set(7)
if os.fork() == 0:  # as a worker's children: what the parent counted is not theirs
    names.POLLS.labels("delivered").inc()
    os._exit(0)
os.wait()
print("counted", flush=True)
sys.stdin.read()
"""


def test_processes_count_together_whatever_ends_them(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each of them counts 6 polls in two processes, and 7 that wait."""
    environment = {"DJANGO_SETTINGS_MODULE": "scionlab.settings.test", "PATH": "", "PYTHONPATH": str(ROOT)}
    environment |= {"REDIS_URL": settings.REDIS_URL, "SCIONLAB_VAR": str(settings.VAR_DIR)}
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    running: list[subprocess.Popen[bytes]] = []

    def start(number: int, *more: str) -> None:
        command = [sys.executable, "-c", COUNT, str(tmp_path), *more]
        pipe = subprocess.PIPE
        started = [subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe) for _ in range(number)]
        running.extend(started)
        assert [one.stdout and one.stdout.readline() for one in started] == [b"counted\n"] * number

    def counted() -> tuple[float, float]:
        found = scrape()
        return found["scionlab_polls_total{answer=delivered}"], found.get("scionlab_polls_waiting", 0)

    def kill(*processes: subprocess.Popen[bytes]) -> None:
        for process in processes:
            process.kill()
            process.communicate()

    try:
        start(2)
        assert counted() == (12, 14)
        kill(running[0])
        assert counted() == (12, 7)  # what was counted stays; who waited there waits no more
        start(1)
        assert counted() == (18, 14)
        assert len(list(tmp_path.glob("*.lock"))) <= 4  # it took the files of one that has ended
        kill(running[1])
        start(1, "nobody waits here")
        assert counted() == (24, 7)  # nobody looked meanwhile: its number is that of one where some waited
        kill(*running[2:])
        assert counted() == (24, 0)
        start(1)
        assert counted() == (6, 7)  # the first of a new run
    finally:
        kill(*running)


def test_without_room_on_the_disk_a_process_counts_for_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    shared.share(str(tmp_path))
    assert "metrics.alone" in caplog.text
    names.POLLS.labels("not_modified").inc()
    assert scrape()["scionlab_polls_total{answer=not_modified}"] == 1


# --- what is written about it -----------------------------------------------------------------------------------


def test_every_metric_says_what_it_is_and_dashboard_and_alerts_name_no_other() -> None:
    shown = Client().get("/metrics", headers=BEARER).content.decode()
    exported = set(re.findall(r"^# TYPE (scionlab_\w+) ", shown, flags=re.MULTILINE))
    assert set(re.findall(r"^# HELP (scionlab_\w+) \S", shown, flags=re.MULTILINE)) == exported
    wanted = {name for name in named_metrics() if not name.startswith("scionlab_bw_")}
    assert len(wanted) > 15
    assert wanted - exported == set()
