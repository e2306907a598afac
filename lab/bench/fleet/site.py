"""A whole service for the fleet, as docker-compose.yml has it: PostgreSQL, two Redis, nginx, replicas, worker and beat.

Each replica has a loopback address of its own and the same port, and nginx finds them through a name server, as with
Docker. A replica has one process (WEB_WORKERS=1).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lab import servers
from lab.bench.fleet.names import Names, serving
from lab.bench.service_world import ServiceBenchError, family_of, resident_bytes_of
from lab.nginx import Nginx, free_port
from lab.service import CoordinationService, on_this_host

DEADLINE_S = 300.0
FIRST_REPLICA = 10  # 127.0.18.10


class FleetSite:
    """Started by `running`; `facts` are what `lab.bench.fleet.data` printed."""

    def __init__(self, folder: Path, urls: Mapping[str, str], names: Names, redis: contextlib.ExitStack) -> None:
        self._folder, self._names, self._redis = folder, names, redis
        self._port = free_port("127.0.18.10")
        self._replicas: dict[str, CoordinationService] = {}
        self._next = FIRST_REPLICA
        self.nginx = Nginx({
            "$web web:8000;": f"$web web:{self._port};",
            "resolver 127.0.0.11 ": f"resolver 127.0.0.1:{names.port} ",
        })  # fmt: skip
        self._environment = {
            **urls,
            "WEB_WORKERS": "1",
            "API_THROTTLE_USER": "100000/min",
            "API_THROTTLE_TOKEN": "100000/min",
            "TRUSTED_PROXIES": "1",
        }
        self.background = self._service("background", "127.0.0.1:0")
        self.background.prepare()
        self.facts: dict[str, Any] = {}

    @property
    def port(self) -> int:
        """nginx's, without TLS."""
        return self.nginx.port

    @property
    def database_url(self) -> str:
        return str(self._environment["DATABASE_URL"])

    def _service(self, name: str, bind: str) -> CoordinationService:
        made = CoordinationService(
            self._folder / name,
            bind=bind,
            site_url=f"http://127.0.0.1:{self.nginx.port}",
            environment=self._environment,
            start_process=on_this_host,
        )
        (made.var_dir / "log").mkdir(parents=True, exist_ok=True)
        return made

    def fill(self, *, busy: int, links: int, quiet: int, savers: int) -> None:
        numbers = (str(one) for one in (busy, links, quiet, savers))
        self.facts = json.loads(self.background.output_of("-m", "lab.bench.fleet.data", *numbers).splitlines()[-1])

    # --- replicas -----------------------------------------------------------------------------------------------

    @property
    def replicas(self) -> list[str]:
        return list(self._replicas)

    def add_replicas(self, count: int) -> list[str]:
        """New ones at new addresses, named as soon as they are ready; their addresses."""
        made: dict[str, CoordinationService] = {}
        for _ in range(count):
            address = f"127.0.18.{self._next}"
            self._next += 1
            made[address] = self._service(f"web-{address}", f"{address}:{self._port}")
            made[address].start_part("web")
        for address, service in made.items():
            until(partial(self._is_ready, address), service)
        self._replicas |= made
        self.name(self.replicas)
        return list(made)

    def name(self, addresses: Sequence[str]) -> None:
        """What the name server answers from now on."""
        self._names.addresses = tuple(addresses)

    def end(self, addresses: Sequence[str]) -> None:
        """As `docker stop` of all of them at once: SIGTERM, and current requests are answered. The name of each goes
        when it has ended."""
        processes = {address: self._replicas[address].part("web") for address in addresses}
        for process in processes.values():
            process.send_signal(signal.SIGTERM)
        for address, process in processes.items():
            process.wait(timeout=DEADLINE_S)
            self._replicas.pop(address).stop()
            self.name(self.replicas)

    def kill(self, address: str) -> None:
        """SIGKILL to all of it; its name stays, as nobody has noticed yet."""
        process = self._replicas[address].part("web")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=DEADLINE_S)

    def start_again(self, address: str) -> None:
        self._replicas[address].start_part("web")
        until(partial(self._is_ready, address), self._replicas[address])

    def _is_ready(self, address: str) -> bool:
        try:
            with urllib.request.urlopen(f"http://{address}:{self._port}/readyz", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def cpu_s(self) -> dict[str, float]:
        """Processor time so far of each replica, and of nginx."""
        pids = {address: one.part("web").pid for address, one in self._replicas.items()} | {"nginx": self.nginx.pid}
        return {name: sum(map(_cpu_s, family_of(pid))) for name, pid in pids.items()}

    def resident_bytes(self, address: str) -> int:
        return sum(map(resident_bytes_of, family_of(self._replicas[address].part("web").pid)))

    def connections(self) -> dict[str, int]:
        """How many connections each replica has now: its polls that wait, and what is being answered."""
        said = subprocess.run(
            ["ss", "-Htn", "state", "established", f"sport = :{self._port}"], capture_output=True, text=True, check=True
        )
        found = dict.fromkeys(self._replicas, 0)
        for line in said.stdout.splitlines():
            address = line.split()[2].rpartition(":")[0]
            if address in found:
                found[address] += 1
        return found

    # --- Redis, PostgreSQL --------------------------------------------------------------------------------------

    def stop_redis(self) -> None:
        """Both: messages, and the cache; what they had is gone."""
        self._redis.close()

    def start_redis(self) -> None:
        for name in ("redis", "cache"):
            shutil.rmtree(self._folder / name, ignore_errors=True)
            self._redis.enter_context(servers.redis(self._folder / name))

    def rows(self, sql: str) -> list[list[str]]:
        folder = Path(self.database_url.partition("host=")[2].replace("%2F", "/"))
        psql = [str(servers.newest_postgres() / "psql"), "-qXAt", "-h", str(folder), "-U", "postgres", "-d", "postgres"]
        done = subprocess.run([*psql, "-c", sql], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ServiceBenchError(done.stderr[-500:])
        return [line.split("|") for line in done.stdout.splitlines()]

    def close(self) -> None:
        for one in self._replicas.values():
            one.stop()
        self.background.stop()
        self.nginx.stop()


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running() -> Iterator[FleetSite]:
    """A site with worker and beat, without replicas and without rows."""
    # /tmp: a Unix socket's path has at most 107 bytes, and user postgres must be able to reach it.
    folder = Path(tempfile.mkdtemp(prefix="slbw-fleet-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        with (
            servers.postgres(folder / "pg") as database_url,
            contextlib.ExitStack() as redis,
            serving() as names,
        ):
            urls = {"DATABASE_URL": database_url}
            for name, variable in (("redis", "REDIS_URL"), ("cache", "CACHE_URL")):
                urls[variable] = redis.enter_context(servers.redis(folder / name))
            site = FleetSite(folder, urls, names, redis)
            try:
                yield site
            finally:
                site.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def start_background(site: FleetSite) -> None:
    for part in ("worker", "beat"):
        site.background.start_part(part)
    until(site.background.worker_is_ready, site.background)


def until(is_so: Callable[[], bool], service: CoordinationService) -> None:
    """Raises `ServiceError` where a part of the service has ended, `ServiceBenchError` after the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        service.check()
        if time.monotonic() > deadline:
            raise ServiceBenchError(f"{service.var_dir.name} was not ready within {DEADLINE_S:g} s")
        time.sleep(0.2)
