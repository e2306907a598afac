"""Runs a whole Coordination Service on its embedded defaults: gunicorn, a Celery worker and beat on SQLite.

Used by `./dev run`, the demo and the end-to-end tests, in the host's own network or inside a namespace. The state is
in one folder (`SCIONLAB_VAR`), each process writes its log to a file there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Protocol

REPOSITORY = Path(__file__).resolve().parent.parent
PARTS = ("web", "worker", "beat")
START_DEADLINE_S = 60.0


class ServiceError(RuntimeError):
    """A part of the service did not start or ended; the message has the end of its log."""


class Starter(Protocol):
    """Starts a process: `subprocess.Popen`, or `Namespace.popen` for a service inside a namespace."""

    def __call__(self, argv: list[str], *, env: dict[str, str], cwd: Path, **options: Any) -> subprocess.Popen[str]: ...


def on_this_host(
    argv: list[str], *, env: dict[str, str] | None = None, cwd: Path, **options: Any
) -> subprocess.Popen[str]:
    """Start a program in this machine's own network.

    A session of its own: Ctrl-C reaches us alone, and we end the parts in order. Where we are killed outright, the
    kernel ends them (prctl(2), PR_SET_PDEATHSIG: when the *thread* that started them is gone); otherwise they would
    keep the port and answer in place of the next start.
    """
    if shutil.which("setpriv") is not None:
        argv = ["setpriv", "--pdeathsig", "TERM", "--", *argv]
    return subprocess.Popen(argv, env=env, cwd=cwd, text=True, start_new_session=True, **options)


class CoordinationService:
    """`bind` is gunicorn's address, `site_url` how others reach it; `environment` adds to ours."""

    def __init__(
        self,
        var_dir: Path,
        *,
        bind: str,
        site_url: str,
        environment: Mapping[str, str] | None = None,
        start_process: Starter = on_this_host,
    ) -> None:
        self.var_dir = var_dir
        self.bind = bind
        self.site_url = site_url
        self._start_process = start_process
        embedded = {name: value for name, value in os.environ.items() if name not in {"DATABASE_URL", "REDIS_URL"}}
        self.environment = embedded | {
            "DJANGO_SETTINGS_MODULE": "scionlab.settings.dev",
            "SCIONLAB_VAR": str(var_dir),
            "SITE_URL": site_url,
            "PYTHONUNBUFFERED": "1",
            **(environment or {}),
        }
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._logs: list[IO[str]] = []

    def manage(self, *arguments: str) -> str:
        """Run a management command to its end; returns what it printed. Raises `ServiceError`."""
        return self.output_of("manage.py", *arguments)

    def shell(self, script: str) -> Any:
        """Run Python in the service; returns what it printed last, which is JSON. Raises `ServiceError`."""
        return json.loads(self.manage("shell", "--no-imports", "-c", script).splitlines()[-1])

    def output_of(self, *arguments: str) -> str:
        """Run Python with these arguments in the service's environment. Raises `ServiceError`."""
        done = subprocess.run(
            [sys.executable, *arguments],
            env=self.environment | {"LOG_LEVEL": "ERROR"},  # what it prints is for people
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise ServiceError(f"{' '.join(arguments[:2])} failed: {(done.stderr or done.stdout)[-1500:].strip()}")
        return done.stdout

    def prepare(self) -> None:
        """Make the database; can be repeated. Raises `ServiceError`."""
        self.var_dir.mkdir(parents=True, exist_ok=True)
        (self.var_dir / "log").mkdir(exist_ok=True)
        self.manage("migrate", "--no-input", "-v0")

    def start(self, is_up: Callable[[], bool]) -> None:
        """Start web, worker and beat, and wait until `is_up` says yes. Raises `ServiceError`."""
        for name in PARTS:
            self.start_part(name)
        self.wait_until(lambda: is_up() and self.worker_is_ready())

    def start_part(self, name: str) -> subprocess.Popen[str]:
        """Start web, worker or beat alone, anew where it has ended; its log begins anew too."""
        celery = [sys.executable, "-m", "celery", "-A", "scionlab"]
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]  # one worker: nobody to talk to
        gunicorn = [sys.executable, "-m", "gunicorn", "--config", "python:scionlab.gunicorn", "--no-control-socket"]
        commands = {
            "web": [*gunicorn, "--bind", self.bind],
            "worker": [*celery, "worker", "--loglevel", "INFO", "--concurrency", "1", *quiet],
            "beat": [*celery, "beat", "--loglevel", "INFO", "--pidfile="],
        }
        self._run(name, commands[name])
        return self._processes[name]

    def part(self, name: str) -> subprocess.Popen[str]:
        """The process of web, worker or beat: the leader of a session of its own."""
        return self._processes[name]

    def wait_until(self, is_up: Callable[[], bool]) -> None:
        """Raises `ServiceError` when a part ends first, or the deadline is over."""
        deadline = time.monotonic() + START_DEADLINE_S
        while not is_up():
            self.check()
            if time.monotonic() > deadline:
                raise ServiceError(f"the service did not answer within {START_DEADLINE_S:g} s: {self._tail('web')}")
            time.sleep(0.1)

    def check(self) -> None:
        """Raises `ServiceError` when a part has ended."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise ServiceError(f"{name} ended with status {process.returncode}: {self._tail(name)}")

    def stop(self) -> None:
        """End what `start` started, and nothing else; can be called twice."""
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self._processes.values():
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        for log in self._logs:
            log.close()
        self._logs.clear()

    def _run(self, name: str, argv: list[str]) -> None:
        log = (self.var_dir / "log" / f"{name}.log").open("w", encoding="utf-8")
        self._logs.append(log)
        self._processes[name] = self._start_process(
            argv, env=self.environment, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )

    def worker_is_ready(self) -> bool:
        return " ready." in self._log("worker")

    def _tail(self, name: str) -> str:
        return self._log(name)[-800:]

    def _log(self, name: str) -> str:
        path = self.var_dir / "log" / f"{name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else "(no log)"
