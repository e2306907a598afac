"""Two PostgreSQL servers, of which one follows the other, and people who save while the first one dies.

Everything is real: streaming replication, `synchronous_standby_names` as docs/operations.md has it, and a promotion.
Both listen on Unix sockets in a temporary folder only.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import psycopg

from lab.servers import POSTGRES_OPTIONS, ServerError, as_postgres, newest_postgres
from lab.service import on_this_host

DEADLINE_S = 60.0  # beside other tests
STANDBY = "standby"  # the name under which it follows
# Durability against the machine's own power off: the folders are thrown away, and a killed process loses nothing.
VOLATILE = ("fsync=off", "listen_addresses=", "max_wal_size=64MB", "shared_buffers=32MB")


def wait_until(is_so: Callable[[], object], what: str) -> None:
    """Raises `ServerError` when that takes too long."""
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        if time.monotonic() > deadline:
            raise ServerError(f"{what}: not within {DEADLINE_S:g} s")
        time.sleep(0.02)


class Server:
    """One server below `folder`: a copy of the one whose socket is in `copy_of`, which it may follow."""

    def __init__(self, folder: Path, *, copy_of: Path, follows: bool = False) -> None:
        self.folder, self._bin, self._data = folder, newest_postgres(), folder / "data"
        self._process: subprocess.Popen[str] | None = None
        folder.mkdir()
        if os.geteuid() == 0:
            os.chown(folder, pwd.getpwnam("postgres").pw_uid, pwd.getpwnam("postgres").pw_gid)
        source = f"host={copy_of} user=postgres application_name={STANDBY}"
        follow = ["--write-recovery-conf"] if follows else []
        self._run("pg_basebackup", "--pgdata", str(self._data), "--checkpoint=fast", "--no-sync",
                  "--dbname", source, *follow)  # fmt: skip

    def start(self, *options: str) -> None:
        every = [*POSTGRES_OPTIONS, *VOLATILE, f"unix_socket_directories={self.folder}", *options]
        argv = [str(self._bin / "postgres"), "-D", str(self._data), *(part for one in every for part in ("-c", one))]
        with (self.folder / "postgres.log").open("a") as log:
            self._process = on_this_host(as_postgres(argv), cwd=Path("/"), stdout=log, stderr=log)
        ready = [str(self._bin / "pg_isready"), "-q", "-h", str(self.folder)]
        wait_until(lambda: subprocess.run(ready, check=False).returncode == 0, "PostgreSQL answers")

    def kill(self) -> None:
        """At once and without a word to anybody (`pg_ctl stop -m immediate`); can be called twice."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(timeout=DEADLINE_S)

    def promote(self) -> None:
        """Returns when it accepts writes."""
        self._run("pg_ctl", "promote", "--pgdata", str(self._data))

    def ask(self, sql: str, *values: object) -> list[tuple[object, ...]]:
        """One statement, committed; its rows."""
        with psycopg.connect(host=str(self.folder), user="postgres", dbname="postgres", autocommit=True) as connection:
            cursor = connection.execute(sql, values)
            return cursor.fetchall() if cursor.description else []

    def clients(self) -> int:
        """Who is connected besides us."""
        sql = "SELECT 1 FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        return len(self.ask(sql))

    def _run(self, program: str, *arguments: str) -> None:
        command = as_postgres([str(self._bin / program), *arguments])
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", timeout=DEADLINE_S)
        if done.returncode != 0:
            raise ServerError(f"{program} failed: {done.stderr[-500:]}")


class Pair:
    """A primary and its standby, which follows asynchronously until `be_synchronous`. The primary is a copy of the
    server whose socket is in `copy_of`."""

    def __init__(self, folder: Path, *, copy_of: Path) -> None:
        self.primary = Server(folder / "a", copy_of=copy_of)
        self.primary.start()
        self.standby = Server(folder / "b", copy_of=self.primary.folder, follows=True)
        self.standby.start()
        # The standby is named first: it is passed over because it takes no writes.
        hosts = quote(f"{self.standby.folder},{self.primary.folder}", safe=",")
        self.url = f"postgres://postgres@/postgres?host={hosts}"  # for DATABASE_URL, whoever is the primary

    def be_synchronous(self) -> None:
        """From now on a commit is answered when the standby has it, no longer when the primary alone has it."""
        self.primary.ask(f"ALTER SYSTEM SET synchronous_standby_names = '{STANDBY}'")
        self.primary.ask("SELECT pg_reload_conf()")
        sql = "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = 'sync'"
        wait_until(lambda: self.primary.ask(sql), "the standby is synchronous")

    def saves_that_wait(self) -> int:
        """Commits of the primary that the standby has not confirmed."""
        return len(self.primary.ask("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))

    def promote(self) -> None:
        """The standby becomes the primary, which waits for nobody; the other one must be dead."""
        for statement in ("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()"):
            self.standby.ask(statement)  # as docs/operations.md has it: a copy may have the setting
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary

    def saved_kbit(self) -> set[int]:
        """Every limit that the primary's audit has."""
        sql = "SELECT DISTINCT new_kbit FROM testbed_bandwidthchange WHERE new_kbit IS NOT NULL"
        return {int(str(kbit)) for (kbit,) in self.primary.ask(sql)}

    def follow_anew(self) -> None:
        """The dead one is made anew, as the standby of the other."""
        shutil.rmtree(self.standby.folder)
        self.standby = Server(self.standby.folder, copy_of=self.primary.folder, follows=True)
        self.standby.start()

    def close(self) -> None:
        for server in (self.standby, self.primary):
            server.kill()


@contextlib.contextmanager
def pair(folder: Path, *, copy_of: Path) -> Iterator[Pair]:
    """Below `folder`, which user postgres can reach; gone afterwards. Raises `ServerError`."""
    folder.mkdir()
    folder.chmod(0o755)
    made = None
    try:
        made = Pair(folder, copy_of=copy_of)
        yield made
    finally:
        if made is not None:
            made.close()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Savers:
    """`count` people who save one number after the other, no number twice; who is refused comes again after 0.1 s.

    `save(number)` is the HTTP status of the answer, or raises `OSError`; the numbers begin at `first`.
    """

    save: Callable[[int], int]
    count: int
    first: int
    accepted: list[tuple[float, float, int]] = field(default_factory=list)  # asked and answered (monotonic), and which
    refused: list[int] = field(default_factory=list)  # status; 0: no answer

    def __post_init__(self) -> None:
        self._is_over = threading.Event()

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        threads = [
            threading.Thread(target=self._go_on, args=(self.first + person,), daemon=True)
            for person in range(self.count)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            for thread in threads:
                thread.join(timeout=DEADLINE_S)

    def wait_for_more(self, count: int) -> None:
        """Until so many were accepted from now on."""
        enough = len(self.accepted) + count
        wait_until(lambda: len(self.accepted) >= enough, f"{count} saves go through")

    def first_after(self, moment: float) -> float:
        """Seconds from a moment until one was accepted that was asked for since. Raises `ValueError` without one."""
        return min(answered for asked, answered, _ in self.accepted if asked > moment) - moment

    def lost(self, stored: set[int]) -> list[int]:
        """What was accepted and is not there."""
        return sorted(number for _, _, number in self.accepted if number not in stored)

    def _go_on(self, number: int) -> None:
        while not self._is_over.is_set():
            asked = time.monotonic()
            try:
                status = self.save(number)
            except OSError:
                status = 0
            if status == 200:
                self.accepted.append((asked, time.monotonic(), number))
            else:
                self.refused.append(status)
                self._is_over.wait(0.1)
            number += self.count
