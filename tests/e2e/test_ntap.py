"""What NTAP asks of a testbed, N1 to N10 (LINK_TESTS section 6), with every program real. N9, routes by source address,
is in tests/kernel/test_routes.py; policies (N2), forms from a file (N3), results of both sides (N5) and which time is
free (N6) in tests/linktests/test_sending_tests.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import requests

from lab.browser import Browser
from lab.demo.client import run_client
from lab.demo.world import PASSWORD, SITE_URL, UserAs
from measuring.netns import Namespace
from station.plan import read_phases
from station.user_end import UserOrder, run_user_end
from tests.e2e.conftest import Stack
from tests.e2e.test_rotation import shell, wait_until

pytestmark = pytest.mark.kernel

ANNA = UserAs("NTAP", "anna@example.org", "192.0.2.11", 50_700, 2_000, 0)
SECOND = timedelta(seconds=1)


@dataclass
class Anna:
    """Anna on the host of her AS: over REST, on the site, and with the command line client."""

    stack: Stack
    host: Namespace
    token: str
    link: dict[str, Any]

    def ask(self, method: str, path: str, body: Any = None, *, etag: str = "") -> requests.Response:
        headers = {"Authorization": f"Token {self.token}"} | ({"If-None-Match": etag} if etag else {})

        def send() -> requests.Response:
            return requests.request(method, f"{SITE_URL}/api/v1/{path}", json=body, headers=headers, timeout=20)

        answer: requests.Response = self.host.call(send)
        return answer

    def reserve(self, *, ahead_s: int | None = None, **body: Any) -> requests.Response:
        if ahead_s is not None:
            body["begins_at"] = (datetime.now(UTC) + ahead_s * SECOND).isoformat(timespec="seconds")
        return self.ask("POST", f"links/{self.link['id']}/tests/", body)

    def test(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", f"tests/{number}/").json()
        return found

    def client(self, *arguments: str, host: Namespace | None = None, stdin: str = "") -> tuple[int, str]:
        """On her host, unless said otherwise."""
        return run_client(host or self.host, self.token, *arguments, stdin=stdin)

    def browse(self, path: str) -> tuple[Browser, Any]:
        browser = Browser(SITE_URL)
        page = browser.open("/login/")
        browser.send(page, page.form("username", "password"), {"username": ANNA.owner, "password": PASSWORD})
        return browser, browser.open(path)

    @property
    def page(self) -> str:
        return f"/ases/{self.link['as_id']}/links/{self.link['id']}/"

    def until_free(self) -> None:
        """No test has the link's time."""

        def is_free() -> bool:
            found = self.ask("GET", f"links/{self.link['id']}/tests/").json()["results"]
            now = datetime.now(UTC)
            return all(one["cancelled_at"] or datetime.fromisoformat(one["ends_at"]) < now for one in found)

        wait_until(is_free, "a test stays open", within_s=60)


@pytest.fixture(scope="module")
def made(stack: Stack) -> Anna:
    stack.site.create_user_as(ANNA, stack.attachment_point_id)
    link = stack.site.link(ANNA)
    wait_until(lambda: stack.site.status(ANNA)["stage"] == "enforced", "the limit is not enforced")
    host = stack.world.users[ANNA.host_name]
    shell(stack, "from scionlab.linktests.models import TestPolicy\nTestPolicy.objects.all().delete()\nprint(1)")
    return Anna(stack, host, stack.site.token(ANNA.owner), link)


@pytest.fixture
def anna(made: Anna) -> Iterator[Anna]:
    yield made
    for one in made.ask("GET", f"links/{made.link['id']}/tests/").json()["results"]:
        if one["state"] in {"scheduled", "armed", "running"}:
            made.ask("DELETE", f"tests/{one['id']}/")
    made.until_free()
    # A link has 8 tests in its document, and those just over stay in it.
    shell(
        made.stack,
        "from datetime import timedelta\nfrom django.utils import timezone\n"
        "from scionlab.linktests.link_test import link_tests_retire\n"
        "print(link_tests_retire(now=timezone.now() + timedelta(days=1)))",
    )


def test_n1_two_stations_from_a_page(anna: Anna) -> None:
    """Scheduled in the form, run by the command that the page shows, answered on the page."""

    def schedule() -> str:
        browser, page = anna.browse(f"{anna.page}test/quick/")
        soon = (datetime.now(UTC) + 6 * SECOND).strftime("%Y-%m-%d %H:%M:%S")
        after = browser.send(
            page, page.form("test-seconds"), {"test-seconds": "3", "test-begins_at": soon}, button="Schedule"
        )
        return after.url

    where = anna.host.call(schedule).removeprefix(SITE_URL)
    number = where.rstrip("/").rpartition("/")[2]
    code, said = anna.client("test", str(anna.link["id"]), "--id", number)
    assert code == 0, said
    _, page = anna.host.call(lambda: anna.browse(where))
    assert "of 2 000 kbit/s arrived" in page.html.replace("\N{NO-BREAK SPACE}", " ")
    found = anna.test(int(number))["sending_verdict"]
    assert (found["code"], found["to_user"]["code"], found["from_user"]["code"]) == ("enforced",) * 3
    steps = found["to_user"]["steps"] + found["from_user"]["steps"]
    assert [one["limits_kbit"] for one in steps] == [[2000], [2000]]
    assert all(one["dropped_percent"] > 0 for one in steps)


def test_n4_create_cancel_status_and_wait(anna: Anna) -> None:
    made = anna.reserve(tool="quick", ahead_s=20).json()
    assert made["state"] == "scheduled"
    wait_until(lambda: anna.test(made["id"])["state"] != "scheduled", "it is not armed", within_s=15)
    assert anna.test(made["id"])["state"] == "armed"
    etag = anna.ask("GET", f"tests/{made['id']}/").headers["ETag"]
    assert anna.ask("GET", f"tests/{made['id']}/", etag=etag).status_code == 304
    assert anna.ask("DELETE", f"tests/{made['id']}/").status_code == 204
    assert anna.test(made["id"])["state"] == "cancelled"
    code, said = anna.client("test", str(anna.link["id"]), "reach")
    assert (code, said.splitlines()[0].split()[:1]) == (0, ["Test"]), said
    reached = anna.test(int(said.split()[1]))
    assert (reached["tool"], reached["state"]) == ("reach", "finished")


def test_n6_deadlines_of_a_scheduler(anna: Anna) -> None:
    # Nobody runs the user's end of this one: it ends by itself, and says so.
    alone = anna.reserve(tool="reach").json()
    ends_at = datetime.fromisoformat(alone["ends_at"])
    wait_until(lambda: anna.test(alone["id"])["state"] in {"finished", "failed"}, "it stays open", within_s=60)
    assert datetime.now(UTC) - ends_at < 30 * SECOND
    assert anna.test(alone["id"])["sending_verdict"] is None or not anna.test(alone["id"])["sending_verdict"]["is_good"]


def test_n7_one_node_two_nodes_and_composite(anna: Anna) -> None:
    link = str(anna.link["id"])
    code, said = anna.client("watch-load", link, "--for", "5s")
    assert (code, "Not enough was sent" in said) == (1, True), said  # one node: nothing was offered
    anna.until_free()
    ends = anna.link["isd_as"], anna.link["interface_id"], anna.link["attachment_point"]
    path = f"{ends[0]} {ends[1]}>{anna.link['attachment_point_interface_id']} {ends[2]} 9>8 17-ffaa:0:9"
    code, said = anna.client("path", "-", "--test", "quick", stdin=path)
    assert code == 0, said
    assert "1 of 2 links of this path is yours" in said
    assert "From your AS: enforced" in said


def test_n8_exact_targets(anna: Anna) -> None:
    """A host that is not the registered one gets nothing, although it has the key."""
    ben = anna.stack.world.users["u12"]
    before = anna.ask("GET", f"links/{anna.link['id']}/tests/").json()["count"]
    code, said = anna.client("test", str(anna.link["id"]), "quick", "--set", "seconds=3", host=ben)
    assert code == 1, said
    assert "answers only the registered address" in " ".join(said.split())
    found = anna.ask("GET", f"links/{anna.link['id']}/tests/").json()
    assert found["count"] == before + 1
    sent = shell(
        anna.stack,
        "from scionlab.linktests.models import TestResult\n"
        "reports = [r.report for r in TestResult.objects.filter(test_id={number}) if r.report]\n"
        "print(sum(p['sent_bytes'] + p['received_bytes'] for r in reports for p in r['phases']))",
        number=str(found["results"][0]["id"]),
    )
    assert sent == "0"


def test_n10_a_client_of_ones_own(anna: Anna) -> None:
    """REST and the station's package are enough; a clock that is an hour off changes nothing. On a machine that is busy
    with other tests the client may send in bursts, which is `mixed`: then once more."""
    codes = [run_by_rest(anna)]
    while codes[-1] == "mixed" and len(codes) < 3:
        anna.until_free()
        codes.append(run_by_rest(anna))
    assert codes[-1] == "enforced", codes


def run_by_rest(anna: Anna) -> str:
    """Code of the verdict."""
    made = anna.reserve(tool="quick", parameters={"seconds": 3}).json()
    deadline = time.monotonic() + 20
    while (start := anna.ask("POST", f"tests/{made['id']}/start/", {})).status_code == 409:
        assert time.monotonic() < deadline, start.text
        time.sleep(0.2)
    said = start.json()
    assert start.headers["Cache-Control"] == "no-store"
    order = UserOrder(
        said["test"], bytes.fromhex(said["key"]), said["ip"], said["port"], said["from_ms"], said["until_ms"],
        read_phases(said["phases"]), clock_off_ms=said["now_ms"] - time.time_ns() // 1_000_000,
    )  # fmt: skip
    order = replace(order, bind=said["remote_ip"])
    report = anna.host.call(lambda: run_user_end(order, lambda _: None))
    assert report["outcome"] == "completed", report["why"]
    assert anna.ask("POST", f"tests/{made['id']}/report/", report).status_code == 201
    assert anna.ask("POST", f"tests/{made['id']}/report/", report).status_code == 200
    wait_until(lambda: anna.test(made["id"])["state"] == "finished", "no result", within_s=30)
    return str(anna.test(made["id"])["sending_verdict"]["code"])
