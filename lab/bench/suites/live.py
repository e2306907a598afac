"""What one viewer costs an attachment point of thousands of links: the limiter that counts one link each second, and
the agent that reports it over TLS, beside the limiter that nobody asks.

The limiter is the deployed process. The agent's part is its session (`ap_agent.agent.live`) in a process of its own, so
that its cost stands alone; the service is a stub on loopback with a certificate. CPU time is that of all threads that
live, in the kernel and outside; a thread that only waits for the deadline of a request ends before it is counted.
"""

from __future__ import annotations

import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from lab.bench.core import Outcome, Scale, Step
from lab.bench.report import Verdict, figure
from lab.bench.suites.document import LimiterProcess, cpu_s_of
from lab.bench.world import PREFIX, make_links
from measuring.iproute import LabError
from measuring.netns import Lab

NAME = "live"
TITLE = "Somebody looks"
TARGET_MS = 10.0  # of each second: 1 % of a processor
IDLE, LOOKED, AGENT, EXTRA = "limiter, nobody looks", "limiter, one viewer", "agent's session", "one viewer costs"
_FIRST_REPORTS = 3  # until the connection stands
_PATIENCE_S = 60.0


def steps(scale: Scale) -> list[Step]:
    size, seconds, times = scale.pick((4_000, 60, 3), (400, 10, 1))
    return [Step(f"{size} links", times * 2.2 * seconds + 60, partial(_measure, size, seconds, times))]


class _Service(ThreadingHTTPServer):
    """Takes rates, and says that link 1 is looked at until `is_over`."""

    daemon_threads = True
    is_over = False
    reports = 0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Service

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.reports += 1
        answer = b'{"links": []}' if self.server.is_over else b'{"links": ["1"]}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Nothing: nobody reads it."""


@contextmanager
def _service(folder: Path) -> Iterator[tuple[_Service, str, Path]]:
    """Running, its address, and the certificate that it shows."""
    file = folder / "service.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *subject]
    subprocess.run([*make, "-keyout", file, "-out", f"{file}.crt"], check=True, capture_output=True)
    server = _Service(("127.0.0.1", 0), _Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{file}.crt", file)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server, f"https://127.0.0.1:{server.server_port}", Path(f"{file}.crt")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def _agent(config: Path, service: _Service, url: str, ca_file: Path) -> Iterator[int]:
    """The process of a session that reports by now. Raises `LabError`."""
    command = [sys.executable, "-m", "lab.bench.live_program", str(config), url, str(ca_file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            deadline = time.monotonic() + _PATIENCE_S
            while service.reports < _FIRST_REPORTS:
                if process.poll() is not None or time.monotonic() > deadline:
                    process.kill()
                    raise LabError(f"no report: {process.stderr.read()[-800:] if process.stderr else b''!r}")
                time.sleep(0.05)
            yield process.pid
        finally:
            service.is_over = True


def _spent_ms(pids: list[int], seconds: int) -> list[float]:
    """CPU time of each process in each second."""
    before, began = [cpu_s_of(pid) for pid in pids], time.monotonic()
    time.sleep(seconds)
    took_s = time.monotonic() - began
    return [(cpu_s_of(pid) - spent) * 1000 / took_s for pid, spent in zip(pids, before, strict=True)]


def _measure(size: int, seconds: int, times: int, outcome: Outcome) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="slbw-live-") as name,
        Lab(PREFIX) as lab,
        LimiterProcess(lab, Path(name)) as limiter,
    ):
        folder, config = Path(name), limiter.programs.config
        limiter.hand(make_links(size, kbit=2_000))
        for _ in range(times):
            (idle_ms,) = _spent_ms([limiter.pid], seconds)
            with _service(folder) as (service, url, ca_file), _agent(config, service, url, ca_file) as agent:
                before = service.reports
                looked_ms, agent_ms = _spent_ms([limiter.pid, agent], seconds)
                reports = service.reports - before
            if reports < 0.9 * seconds:
                raise LabError(f"{reports} reports in {seconds} s")
            extra_ms = looked_ms - idle_ms + agent_ms
            for what, value in ((IDLE, idle_ms), (LOOKED, looked_ms), (AGENT, agent_ms), (EXTRA, extra_ms)):
                outcome.add(value, "ms", what=what, size=size)


def verdicts(outcome: Outcome) -> Iterator[Verdict]:
    for one in outcome.find(what=EXTRA):
        target = f"one viewer of {one.labels['size']} links costs < {TARGET_MS:g} ms of CPU in each second"
        yield Verdict(target, f"{figure(one.median)} ms", one.median < TARGET_MS)
