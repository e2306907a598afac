"""A joint test with every program real: two links of one AS on its host, real data, and what they carry together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import requests

from lab.demo.client import run_client
from lab.demo.world import SITE_URL
from measuring.netns import Namespace
from tests.e2e.conftest import Stack
from tests.e2e.test_rotation import shell, wait_until

pytestmark = [pytest.mark.kernel, pytest.mark.measured, pytest.mark.timeout(300)]

OWNER, IP = "felix@example.org", "192.0.2.14"
FAST_KBIT, SLOW_KBIT = 2000, 1000
DIRECTIONS = ("to_user", "from_user")


@dataclass
class Felix:
    """Felix on the host of his AS, which has two links to one attachment point, from two ports of one address."""

    host: Namespace
    token: str
    as_id: int
    links: tuple[int, int]

    def joint(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Exit code, and the report as the service shows it."""
        code, said = run_client(self.host, self.token, "test", str(self.as_id), "--all-links", *arguments, "--json")
        assert code in {0, 1}, said
        found: dict[str, Any] = json.loads(said)
        return code, found

    @contextmanager
    def behind_a_line_of(self, kbit: int) -> Iterator[None]:
        """What leaves the host; nothing at the attachment point knows of it."""
        self.host.run("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", f"{kbit}kbit", "burst", "10kb",
                      "latency", "50ms")  # fmt: skip
        try:
            yield
        finally:
            self.host.run("tc", "qdisc", "del", "dev", "eth0", "root")


@pytest.fixture(scope="module")
def felix(stack: Stack) -> Felix:
    token = stack.site.token(OWNER)
    ends = [
        {"attachment_point_id": stack.attachment_point_id, "public_ip": IP, "public_port": port, "bandwidth_kbit": kbit}
        for port, kbit in ((50_810, FAST_KBIT), (50_811, SLOW_KBIT))
    ]
    body = {"label": "Joint", "installation_type": "dedicated", "attachments": ends}
    headers = {"Authorization": f"Token {token}"}

    def ask(method: str, path: str, body: Any = None) -> dict[str, Any]:
        def send() -> requests.Response:
            return requests.request(method, f"{SITE_URL}/api/v1/{path}", json=body, headers=headers, timeout=20)

        answer = stack.in_network(send)
        assert answer.ok, answer.text
        found: dict[str, Any] = answer.json()
        return found

    as_id = ask("POST", "ases/", body)["id"]

    def links() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = ask("GET", f"ases/{as_id}/")["links"]
        return found

    wait_until(lambda: {one["status"]["stage"] for one in links()} == {"enforced"}, "the limits are not enforced")
    shell(stack, "from scionlab.linktests.models import TestPolicy\nprint(TestPolicy.objects.all().delete())")
    by_kbit = {one["bandwidth_kbit"]: one["id"] for one in links()}
    return Felix(stack.world.users["u14"], token, as_id, (by_kbit[FAST_KBIT], by_kbit[SLOW_KBIT]))


def test_two_links_together_carry_the_sum_of_what_they_carry_alone(felix: Felix) -> None:
    code, found = felix.joint("--set", "seconds=3")
    assert (code, found["state"], found["is_good"]) == (0, "finished", True), found["text"]
    assert len(found["parts"]) == 4
    for direction in DIRECTIONS:
        side = found[direction]
        assert side["total"]["limit_kbit"] == FAST_KBIT + SLOW_KBIT
        assert 0.95 * 3000 <= side["total"]["passed_kbit"] <= 1.02 * 3000, side["text"]
        assert 0.95 * 3000 <= side["total"]["arrived_kbit"] <= 1.02 * 3000, side["text"]
        assert side["total"]["passed_kbit"] >= 0.97 * side["alone_kbit"]
        assert 28 <= side["total"]["dropped_percent"] <= 38, "of one and a half times the limits, a third"
