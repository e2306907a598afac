"""The audit of dependencies: a known vulnerability fails, and what was not looked up is never called clean."""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load() -> Any:
    spec = importlib.util.spec_from_file_location("audit", ROOT / ".ci" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


audit = load()


class Advisories(BaseHTTPRequestHandler):
    """Knows one vulnerable version, as OSV would."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = {}
        if (asked["package"]["name"], asked["version"]) == ("idna", "3.6"):
            fixed = {"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3.7"}]}
            affected = [{"package": {"name": "idna", "ecosystem": "PyPI"}, "ranges": [fixed]}]
            known = {"vulns": [{"id": "CVE-2024-3651", "summary": "slow", "affected": affected}]}
        body = json.dumps(known).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Silence."""


@pytest.fixture
def advisories(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Advisories)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    monkeypatch.setenv("AUDIT_OSV_URL", f"http://127.0.0.1:{server.server_port}/")
    yield
    server.shutdown()
    server.server_close()


def lock(folder: Path, *pins: str) -> str:
    path = folder / "some.lock"
    path.write_text("".join(f"{pin} --hash=sha256:{'0' * 64}\n" for pin in pins))
    return str(path)


def test_a_known_vulnerability_fails_with_its_remedy(advisories: None, tmp_path: Path) -> None:
    status, lines = audit.run([lock(tmp_path, "idna==3.6", "certifi==2024.2.2")])
    assert status == 1
    assert lines == ["VULNERABLE: idna 3.6: CVE-2024-3651; fixed in 3.7", "audited: 2 of 2 packages"]


def test_without_a_database_of_advisories_nothing_is_called_audited(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AUDIT_OSV_URL", "http://127.0.0.1:1/")  # nobody listens there
    status, lines = audit.run([lock(tmp_path, "idna==3.6")])
    assert status == 0
    assert [line[:12] for line in lines] == ["NOT audited:"]
