"""A PostgreSQL and a Redis of our own, for tests and benchmarks.

Both listen on Unix sockets in a temporary folder only: nothing on the machine is touched, several runs do not meet, and
processes in any network namespace reach them. The options are those of docker-compose.yml, so what is tested and
measured is the same kind of server.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

POSTGRES_BIN = "/usr/lib/postgresql"
# docker-compose.yml starts the servers with the same options; tests/system/test_compose.py compares them.
# Without statistics, as in a new database, PostgreSQL takes joins of a few rows for large ones and compiles them: 4 to
# 11 s for a query of the service on a busy machine, less than 0.5 s without (docs/operations.md).
POSTGRES_OPTIONS = ("max_connections=300", "default_transaction_isolation=read committed", "timezone=UTC", "jit=off")
REDIS_OPTIONS = ("--save", "", "--appendonly", "no")
DEADLINE_S = 30.0


class ServerError(RuntimeError):
    """A server did not start; the message has the end of its log."""


def newest_postgres() -> Path:
    """The folder of the programs of the newest server. Raises `ServerError`."""
    found = sorted(Path(POSTGRES_BIN).glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not found:
        raise ServerError(f"No PostgreSQL server below {POSTGRES_BIN}. Install it: apt-get install postgresql")
    return found[-1].parent


def as_postgres(command: list[str]) -> list[str]:
    """PostgreSQL refuses to run as root; Debian's package has a user for it."""
    return (
        ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", *command] if os.geteuid() == 0 else command
    )


@contextlib.contextmanager
def postgres(folder: Path, *more: str) -> Iterator[str]:
    """Yields the DATABASE_URL of a fresh server in `folder`, with `more` options. Raises `ServerError`."""
    bin_dir, data, log = newest_postgres(), folder / "data", folder / "postgres.log"
    folder.mkdir()
    if os.geteuid() == 0:
        owner = pwd.getpwnam("postgres")
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    init = [str(bin_dir / "initdb"), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync", "-D", str(data)]
    done = subprocess.run(as_postgres(init), capture_output=True, text=True, check=False, cwd="/")
    if done.returncode != 0:
        raise ServerError(f"initdb failed: {done.stderr[-500:]}")
    options = [part for option in (*POSTGRES_OPTIONS, *more) for part in ("-c", option)]
    # Durability off: the folder is thrown away. It changes no answer that a client gets.
    volatile = ["-c", "fsync=off", "-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}"]
    with log.open("wb") as out:
        server = subprocess.Popen(
            as_postgres([str(bin_dir / "postgres"), "-D", str(data), *volatile, *options]),
            stdout=out,
            stderr=out,
            cwd="/",
            start_new_session=True,
        )
    try:
        _wait(lambda: (folder / ".s.PGSQL.5432").exists() and _answers(bin_dir, folder), server, log)
        yield f"postgres://postgres@/postgres?host={quote(str(folder), safe='')}"
    finally:
        server.send_signal(signal.SIGINT)  # fast shutdown
        _stop(server)


def _answers(bin_dir: Path, folder: Path) -> bool:
    command = [str(bin_dir / "pg_isready"), "-q", "-h", str(folder)]
    return subprocess.run(command, check=False).returncode == 0


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[str]:
    """Yields the REDIS_URL of a fresh server in `folder`. Raises `ServerError`."""
    if shutil.which("redis-server") is None:
        raise ServerError("No redis-server. Install it: apt-get install redis-server")
    folder.mkdir()
    socket, log = folder / "redis.sock", folder / "redis.log"
    command = ["redis-server", "--port", "0", "--unixsocket", str(socket), "--dir", str(folder), *REDIS_OPTIONS]
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
    try:
        _wait(socket.exists, server, log)
        yield f"unix://{socket}"
    finally:
        server.terminate()
        _stop(server)


def _wait(is_ready: Callable[[], bool], server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_ready():
        if server.poll() is not None or time.monotonic() > deadline:
            server.kill()
            raise ServerError(f"{server.args!r} did not start: {log.read_text(errors='replace')[-800:]}")
        time.sleep(0.05)


def _stop(server: subprocess.Popen[bytes]) -> None:
    try:
        server.wait(timeout=15)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


@contextlib.contextmanager
def both(*postgres_options: str) -> Iterator[dict[str, str]]:
    """Yields DATABASE_URL and REDIS_URL of fresh servers, which are gone afterwards. Raises `ServerError`."""
    # /tmp: a Unix socket's path has at most 107 bytes, and user postgres must be able to reach it.
    folder = Path(tempfile.mkdtemp(prefix="slbw-servers-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        with postgres(folder / "pg", *postgres_options) as database_url, redis(folder / "redis") as redis_url:
            yield {"DATABASE_URL": database_url, "REDIS_URL": redis_url}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
