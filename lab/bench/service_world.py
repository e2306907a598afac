"""A database with thousands of hosts, and web servers on it.

A web server has one process, on one processor of its own; the database, Redis and the clients have the others. So a
figure per second is a figure per processor, and what the database does is not counted for anybody.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path

from lab import servers
from lab.bench.core import REPOSITORY, cpu_s_of
from lab.bench.poll_client import PollingHost
from lab.serve import is_healthy
from lab.service import CoordinationService

START_DEADLINE_S = 60.0
SERVER_CPU = 0
BIND = "127.0.0.1:0"  # any free port


class ServiceBenchError(RuntimeError):
    """Something that is to be measured did not start; the message has the end of its log."""


class WebServer:
    """A gunicorn with one worker process."""

    def __init__(self, master: subprocess.Popen[bytes], port: int) -> None:
        self._master = master
        self.port = port
        children = Path(f"/proc/{master.pid}/task/{master.pid}/children").read_text(encoding="ascii").split()
        self.worker_pid = int(children[0])

    def cpu_s(self) -> float:
        """Processor time of the worker."""
        return cpu_s_of(self.worker_pid)

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.worker_pid}/status").read_text(encoding="ascii")
        found = re.search(r"VmRSS:\s+([0-9]+) kB", status)
        if found is None:
            raise LookupError(f"process {self.worker_pid} has no VmRSS")
        return int(found[1]) * 1024


class Site:
    """A database filled with `hosts` hosts, and one attachment point whose host has `links` Links."""

    def __init__(self, folder: Path, urls: Mapping[str, str], *, hosts: int, links: int) -> None:
        self._folder = folder
        self.database_url = urls.get("DATABASE_URL", "")
        environment = {"LOG_LEVEL": "WARNING", **urls}
        self._service = CoordinationService(
            folder, bind=BIND, site_url="http://127.0.0.1:8000", environment=environment
        )
        self._service.manage("migrate", "-v0")
        said = self.run("-m", "lab.bench.service_data", "fill", str(hosts), str(links)).splitlines()
        everybody = [PollingHost(*json.loads(line)) for line in said if line.startswith("[")]
        self.hosts, self.attachment_point = everybody[:-1], everybody[-1]

    def run(self, *arguments: str) -> str:
        """A program of Python to its end, with the service's settings; what it printed. Raises `ServiceError`."""
        return self._service.output_of(*arguments)

    @contextlib.contextmanager
    def serve(self) -> Iterator[WebServer]:
        log = self._folder / "web.log"
        gunicorn = [sys.executable, "-m", "gunicorn", "--config", "python:scionlab.gunicorn", "--workers", "1"]
        gunicorn += ["--no-control-socket", "--bind", BIND]
        with log.open("wb") as out:
            master = subprocess.Popen(
                ["taskset", "-c", str(SERVER_CPU), *gunicorn],
                cwd=REPOSITORY,
                env=self._service.environment,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        try:
            yield WebServer(master, _port_of(master, log))
        finally:
            master.send_signal(signal.SIGTERM)
            try:
                master.wait(timeout=30)
            except subprocess.TimeoutExpired:
                os.killpg(master.pid, signal.SIGKILL)
                master.wait()

    @contextlib.contextmanager
    def changing(self) -> Iterator[Changes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "lab.bench.service_data", "change"],
            cwd=REPOSITORY,
            env=self._service.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            yield Changes(process)
        finally:
            if process.stdin is not None:
                process.stdin.close()
            process.wait(timeout=30)
            if process.stdout is not None:
                process.stdout.close()


class Changes:
    """Saves something in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._read("ready")

    def save(self, what: int | str) -> float:
        """Raise L of this host, or the generation (`all`); returns the moment of the commit."""
        if self._process.stdin is None:
            raise ServiceBenchError("the process that changes has no input")
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        return float(self._read("a time"))

    def _read(self, wanted: str) -> str:
        while self._process.stdout is not None:
            line = self._process.stdout.readline()
            if not line:
                break
            if line.strip() == "ready" or re.fullmatch(r"[0-9.]+", line.strip()):
                return line
        raise ServiceBenchError(f"the process that changes ended without saying {wanted}")


def _port_of(master: subprocess.Popen[bytes], log: Path) -> int:
    """The port, once the server answers there."""
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline and master.poll() is None:
        said = log.read_text(encoding="utf-8", errors="replace")
        found = re.search(r"Listening at: http://127\.0\.0\.1:([0-9]+)", said)
        if found and is_healthy(f"http://127.0.0.1:{found[1]}"):
            return int(found[1])
        time.sleep(0.1)
    master.kill()
    raise ServiceBenchError(f"the web server did not start: {log.read_text(errors='replace')[-800:]}")


@contextlib.contextmanager
def on_other_cpus() -> Iterator[None]:
    """This process, and all that it starts, leave the web server's processor alone."""
    before = os.sched_getaffinity(0)
    others = before - {SERVER_CPU}
    if not others:
        raise ServiceBenchError("The web server needs a processor of its own: measure on a machine with two or more.")
    os.sched_setaffinity(0, others)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def site(kind: str, *, hosts: int, links: int) -> Iterator[Site]:
    """`kind` is "postgresql" (with Redis) or "embedded"."""
    with on_other_cpus(), tempfile.TemporaryDirectory(prefix="slbw-bench-") as name, contextlib.ExitStack() as stack:
        urls = stack.enter_context(servers.both()) if kind == "postgresql" else {}
        yield Site(Path(name), urls, hosts=hosts, links=links)


@contextlib.contextmanager
def statements(database_url: str) -> Iterator[list[str]]:
    """What PostgreSQL is asked meanwhile, filled in at the end: its own log is the witness."""
    folder = urllib.parse.unquote(database_url.partition("host=")[2])
    log = Path(folder) / "postgres.log"
    found: list[str] = []
    _set_logging(folder, "all")
    size = log.stat().st_size
    try:
        yield found
    finally:
        time.sleep(0.3)  # the log is written by another process
        said = log.read_bytes()[size:].decode(errors="replace")
        _set_logging(folder, "none")
        found += re.findall(r"LOG:  (?:statement|execute [^:]*): *\n?\s*(\w+)", said)


def _set_logging(folder: str, level: str) -> None:
    psql = str(servers.newest_postgres() / "psql")
    for command in (f"ALTER SYSTEM SET log_statement = '{level}'", "SELECT pg_reload_conf()"):
        arguments = [psql, "-q", "-X", "-h", folder, "-U", "postgres", "-d", "postgres", "-c", command]
        subprocess.run(arguments, check=True, capture_output=True)
    time.sleep(0.3)  # until every process of the server has read it
