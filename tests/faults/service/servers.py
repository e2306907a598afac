"""A PostgreSQL and a Redis of our own that can be killed, frozen, filled up and started again.

`tests.servers` starts the pair that other tests use and leaves it running; here each is a thing to break. PostgreSQL's
files lie on a small disk of its own where we may mount one: a tmpfs in a mount namespace that ends with us.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg

from lab.servers import POSTGRES_OPTIONS, REDIS_OPTIONS, ServerError, as_postgres, newest_postgres

DEADLINE_S = 60.0  # beside other tests
DISK_MIB = 192


def wait_for(is_so: Callable[[], object], what: str, *, deadline_s: float = DEADLINE_S) -> float:
    """The seconds until it is so; `pytest -s` shows them. Raises `AssertionError` when that takes too long."""
    begun = time.monotonic()
    while not is_so():
        assert time.monotonic() - begun < deadline_s, f"{what}: not within {deadline_s:g} s"
        time.sleep(0.02)
    took = time.monotonic() - begun
    print(f"measured: {what}: {took:.2f} s")
    return took


def started(command: list[str], **options: object) -> subprocess.Popen[bytes]:
    """A process that ends with us, in a session of its own."""
    argv = ["setpriv", "--pdeathsig", "KILL", "--", *command] if shutil.which("setpriv") else command
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(argv, start_new_session=True, **{**quiet, **options})  # type: ignore[call-overload, no-any-return]


class SmallDisk:
    """A tmpfs at `path` that only processes started with `inside` see; it is gone when `close` was called."""

    def __init__(self, path: Path, *, mib: int) -> None:
        self.path = path
        path.mkdir(parents=True)
        script = f"mount -t tmpfs -o size={mib}m,mode=0777 tmpfs {path} && exec sleep infinity"
        self._holder = started(["unshare", "--mount", "--propagation", "private", "sh", "-c", script])
        wait_for(lambda: os.path.ismount(self.seen), f"a tmpfs at {path}")

    @property
    def seen(self) -> Path:
        """The same folder as others reach it."""
        return Path(f"/proc/{self._holder.pid}/root{self.path}")

    def inside(self, command: list[str]) -> list[str]:
        return ["nsenter", "--target", str(self._holder.pid), "--mount", "--", *command]

    def fill(self) -> None:
        """To the last block. `free` undoes it."""
        with (self.seen / "filler").open("ab", buffering=0) as filler, contextlib.suppress(OSError):
            for size in (2**20, 2**12):
                with contextlib.suppress(OSError):
                    while True:
                        filler.write(bytes(size))

    def free(self) -> None:
        (self.seen / "filler").unlink(missing_ok=True)

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()


class Postgres:
    """A server below `folder`, with its files on a disk of `DISK_MIB` where `disk` is given."""

    def __init__(self, folder: Path, disk: SmallDisk | None) -> None:
        self.folder, self.disk = folder, disk
        self._bin = newest_postgres()
        self._data = (disk.path if disk else folder) / "data"
        folder.mkdir(exist_ok=True)
        if os.geteuid() == 0:
            os.chown(folder, pwd.getpwnam("postgres").pw_uid, pwd.getpwnam("postgres").pw_gid)
        done = self.run("initdb", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync", "--wal-segsize=1",
                        "-D", str(self._data))  # fmt: skip
        if done.returncode != 0:
            raise ServerError(f"initdb failed: {done.stderr[-500:]}")
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgres://postgres@/postgres?host={quote(str(self.folder), safe='')}"

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """One of PostgreSQL's programs, as its user."""
        command = self._in_place([str(self._bin / program), *arguments])
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", timeout=60)

    def _in_place(self, command: list[str]) -> list[str]:
        as_user = as_postgres(command)
        return self.disk.inside(as_user) if self.disk else as_user

    def start(self) -> float:
        """Seconds until it answers. Starts nothing where it runs."""
        if self._server is None or self._server.poll() is not None:
            options = [part for option in POSTGRES_OPTIONS for part in ("-c", option)]
            small = ["max_wal_size=8MB", "min_wal_size=2MB", "shared_buffers=16MB", "fsync=off", "listen_addresses="]
            options += [
                part for option in [*small, f"unix_socket_directories={self.folder}"] for part in ("-c", option)
            ]
            argv = self._in_place([str(self._bin / "postgres"), "-D", str(self._data), *options])
            with (self.folder / "postgres.log").open("ab") as log:
                self._server = started(argv, stdout=log, stderr=log, cwd="/")
        return wait_for(self.answers, "PostgreSQL answers")

    def answers(self) -> bool:
        return (
            subprocess.run([str(self._bin / "pg_isready"), "-q", "-h", str(self.folder)], check=False).returncode == 0
        )

    def stop(self) -> None:
        """At once and without a word to anybody, as `pg_ctl stop -m immediate`: what was not committed is gone."""
        assert self._server is not None
        self._server.send_signal(signal.SIGQUIT)  # nsenter and setpriv became the server: the process is the same
        self._server.wait(timeout=DEADLINE_S)

    def connect(self) -> psycopg.Connection:
        return psycopg.connect(host=str(self.folder), user="postgres", dbname="postgres")

    def ask(self, sql: str, *values: object) -> list[tuple[object, ...]]:
        """One statement, committed; its rows."""
        with self.connect() as connection:
            cursor = connection.execute(sql, values)  # type: ignore[arg-type]  # ours, not made of input
            return cursor.fetchall() if cursor.description else []

    @contextlib.contextmanager
    def holding(self, sql: str, *values: object) -> Iterator[psycopg.Connection]:
        """Locks that a statement takes, for as long as the block lasts."""
        connection = self.connect()
        try:
            connection.execute(sql, values)  # type: ignore[arg-type]  # ours, not made of input
            yield connection
        finally:
            with contextlib.suppress(psycopg.Error):
                connection.rollback()
            connection.close()

    def somebody_waits(self) -> bool:
        """True while a statement of somebody else waits for a lock."""
        return bool(self.ask("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))


class Redis:
    """A server on a socket in `folder`, with further `options`; what it had is gone when it was stopped."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self._options = folder, options
        folder.mkdir(exist_ok=True)
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        return self.folder / "redis.sock"

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> None:
        if self._server is None or self._server.poll() is not None:
            self.socket.unlink(missing_ok=True)
            listen = ["--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.folder)]
            self._server = started(["redis-server", *listen, *REDIS_OPTIONS, *self._options])
        wait_for(lambda: self.command("ping") == "PONG", "Redis answers")

    def command(self, *words: str) -> str:
        done = subprocess.run(
            ["redis-cli", "-s", str(self.socket), *words], capture_output=True, text=True, check=False, timeout=10
        )
        return done.stdout.strip()

    def stop(self) -> None:
        """Killed: it says goodbye to nobody."""
        assert self._server is not None
        self._server.kill()
        self._server.wait()

    def freeze(self) -> None:
        assert self._server is not None
        self._server.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._server is not None
        self._server.send_signal(signal.SIGCONT)
