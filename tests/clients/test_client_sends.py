"""`scionlab-bw test`: the user's end in this process, the attachment point's as a process of its own, on loopback."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from contract.link_tests import run_key
from scionlab.accounts.models import User
from scionlab.enforcement.models import HostReceipt
from scionlab.linktests.link_test import link_test_create
from scionlab.linktests.models import LinkTest
from scionlab.linktests.test_results import Upload, result_store
from scionlab.testbed.models import Host, Interface, Link
from tests.clients.test_client import Run, _own_folder, logged_in, run, url

__all__ = ["_own_folder", "logged_in", "run", "url"]  # the fixtures
# In one group: they have the ports of tests on this machine's loopback.
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.xdist_group("tests that send")]

USER_IP = "127.0.0.2"


@pytest.fixture
def loopback(link: Link, receipt: HostReceipt) -> None:
    """Both ends of the link are this machine."""
    Interface.objects.filter(pk=link.interface_a_id).update(public_ip="127.0.0.1")
    Interface.objects.filter(pk=link.interface_b_id).update(public_ip=USER_IP)
    HostReceipt.objects.update(says_tests=True, sending_tests="on")


class AttachmentPoint(threading.Thread):
    """Arms the next test, runs its end, and stores samples of a class that passed `passed` packets of 1494 bytes."""

    def __init__(self, host: Host, passed: int) -> None:
        super().__init__()
        self.host, self.passed, self.report = host, passed, dict[str, Any]()

    def run(self) -> None:
        for _ in range(1500):
            if (test := LinkTest.objects.filter(armed_at=None).first()) is not None:
                break
            time.sleep(0.02)
        assert test is not None
        order = {
            "id": test.test_id,
            "key": run_key(self.host.secret, test.test_id).hex(),
            "port": test.port,
            "local_ip": "127.0.0.1",
            "remote_ip": USER_IP,
            "ifindex": 0,
            "from_ms": round(test.begins_at.timestamp() * 1000),
            "until_ms": round(test.ends_at.timestamp() * 1000),
            "max_kbit": test.kbit,
            "max_bytes": test.max_bytes,
        }
        command = [sys.executable, "-m", "station.ap_end"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(json.dumps(order))
            child.stdin.close()
            bound = f"0100007F:{test.port:04X} "  # 127.0.0.1, as proc_net(5) writes it
            while child.poll() is None and bound not in Path("/proc/net/udp").read_text():
                time.sleep(0.02)
            LinkTest.objects.filter(pk=test.pk).update(armed_at=timezone.now())
            self.report = json.loads(child.stdout.read())
        began_ms = round(test.begins_at.timestamp() * 1000)
        samples = []
        for second in range(15):
            count = self.passed * second
            both = ("0" * 16, 1000, 1494 * count, count, 0, 0, 0)
            samples.append((began_ms + 1000 * second, 1000 * second, True, both, both))
        result_store(host_id=self.host.pk, upload=Upload(test.test_id, True, samples, self.report))
        connection.close()


@pytest.fixture
def attachment_point(link: Link, host: Host, request: pytest.FixtureRequest) -> Iterator[AttachmentPoint]:
    thread = AttachmentPoint(host, getattr(request, "param", 83))
    thread.start()
    yield thread
    thread.join(30)


@pytest.mark.parametrize("attachment_point", [20], indirect=True)
def test_traffic_that_the_class_does_not_count_is_not_called_enforced(
    run: Run, logged_in: str, link: Link, loopback: None, attachment_point: AttachmentPoint
) -> None:
    code, out, _ = run("test", str(link.pk), "--set", "seconds=3", "--set", "percent=100", "--bind", USER_IP, "--json")
    assert code == 1
    found = json.loads(out)
    assert found["sending_verdict"]["to_user"]["code"] == "no_result"
    assert "the limiter counted" in found["text"]


def test_reach_of_a_test_that_was_scheduled_on_the_page(
    run: Run, logged_in: str, link: Link, owner: User, loopback: None, attachment_point: AttachmentPoint
) -> None:
    made = link_test_create(link_id=link.pk, tool="reach", begins_at=None, actor=owner)
    code, out, err = run("test", str(link.pk), "--id", str(made.pk), "--bind", USER_IP)
    assert (code, err) == (0, ""), out
    assert "The ends reach each other: 20 of 20 packets came back, round trip" in out
    assert run("test", "1", "--id", "999999")[0] == 1
