"""A joint test with every program real: two links of one AS on its host, real data, and what they carry together."""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests

from lab.demo.client import run_client
from lab.demo.world import SITE_URL
from tests.e2e.conftest import Stack
from tests.e2e.test_rotation import shell, wait_until

pytestmark = [pytest.mark.kernel, pytest.mark.measured, pytest.mark.timeout(300)]

FAST_KBIT, SLOW_KBIT = 2000, 1000


@pytest.fixture
def joint(stack: Stack) -> dict[str, Any]:
    """The report of one of 3 s as the service shows it. Felix has two links to one attachment point, from two ports of
    one address."""
    token = stack.site.token("felix@example.org")

    def ask(method: str, path: str, body: Any = None) -> dict[str, Any]:
        headers = {"Authorization": f"Token {token}"}

        def send() -> requests.Response:
            return requests.request(method, f"{SITE_URL}/api/v1/{path}", json=body, headers=headers, timeout=20)

        answer = stack.in_network(send)
        assert answer.ok, answer.text
        found: dict[str, Any] = answer.json()
        return found

    at = {"attachment_point_id": stack.attachment_point_id, "public_ip": "192.0.2.14"}
    ends = [
        {**at, "public_port": port, "bandwidth_kbit": kbit} for port, kbit in ((50_810, FAST_KBIT), (50_811, SLOW_KBIT))
    ]
    as_id = ask("POST", "ases/", {"label": "Joint", "installation_type": "dedicated", "attachments": ends})["id"]
    wait_until(
        lambda: {one["status"]["stage"] for one in ask("GET", f"ases/{as_id}/")["links"]} == {"enforced"},
        "the limits are not enforced",
    )
    shell(stack, "from scionlab.linktests.models import TestPolicy\nprint(TestPolicy.objects.all().delete())")
    arguments = ("test", str(as_id), "--all-links", "--set", "seconds=3", "--json")
    code, said = run_client(stack.world.users["u14"], token, *arguments)
    assert code == 0, said
    found: dict[str, Any] = json.loads(said)
    return found


def test_two_links_together_carry_the_sum_of_what_they_carry_alone(joint: dict[str, Any]) -> None:
    assert (joint["state"], joint["is_good"]) == ("finished", True), joint["text"]
    assert len(joint["parts"]) == 4
    for direction in ("to_user", "from_user"):
        side = joint[direction]
        assert side["total"]["limit_kbit"] == FAST_KBIT + SLOW_KBIT
        assert 0.95 * 3000 <= side["total"]["passed_kbit"] <= 1.02 * 3000, side["text"]
        assert 0.95 * 3000 <= side["total"]["arrived_kbit"] <= 1.02 * 3000, side["text"]
        assert side["total"]["passed_kbit"] >= 0.97 * side["alone_kbit"]
        assert 28 <= side["total"]["dropped_percent"] <= 38, "of one and a half times the limits, a third"
