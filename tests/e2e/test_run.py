"""`./dev run`: what somebody sees who starts it for the first time, without root."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from lab.nginx import free_port

ENOUGH_S = 200


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """Its address, once it says what to try first."""
    bind = f"127.0.0.1:{free_port()}"
    said = tmp_path / "said"
    with said.open("w") as out:
        program = subprocess.Popen(
            [sys.executable, "-m", "lab.serve", "--bind", bind, "--var", str(tmp_path / "var")],
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    deadline = time.monotonic() + ENOUGH_S
    try:
        while "Try first" not in said.read_text():
            assert program.poll() is None, said.read_text()
            assert time.monotonic() < deadline, said.read_text()
            time.sleep(0.2)
        yield f"http://{bind}"
    finally:
        program.send_signal(signal.SIGTERM)
        code = program.wait(60)
    assert code == 0


def logged_in(site: str, email: str, password: str) -> requests.Session:
    """Somebody's script."""
    session = requests.Session()
    answer = session.post(f"{site}/api/v1/token/", json={"email": email, "password": password}, timeout=20)
    session.headers["Authorization"] = f"Token {answer.json()['token']}"
    return session


def links_of(session: requests.Session, site: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = session.get(f"{site}/api/v1/links/", timeout=20).json()["results"]
    return found


def test_each_state_is_there_and_a_saved_limit_is_enforced(site: str) -> None:
    admin = logged_in(site, "admin@example.org", "demo-admin-1107")
    states = Counter(link["status"]["state"] for link in links_of(admin, site))
    assert states == {"enforced": 5, "failed": 1, "no_report": 1, "clamped": 1, "blocked": 1}
    owner = logged_in(site, "owner@example.org", "demo-owner-17")
    (link,) = [one["id"] for one in links_of(owner, site) if one["as_label"] == "Laptop over VPN"]
    saved = owner.patch(f"{site}/api/v1/links/{link}/", json={"bandwidth_kbit": 640}, timeout=20)
    assert saved.status_code == 200, saved.text
    deadline = time.monotonic() + 30
    while owner.get(f"{site}/api/v1/links/{link}/", timeout=20).json()["status"]["enforced_kbit"] != 640:
        assert time.monotonic() < deadline
        time.sleep(0.2)
