"""The hashing program: handles one request after the other, until its parent closes the pipe or dies.

Started as a file and not as a module of the package, so that it only loads Django's hashers (no settings, no database,
no Celery).
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

NICENESS: Final = 10  # a tenth of the CPU share of a page on the same CPU


def serve(line: Connection, slot: Path) -> None:
    """Serve requests. `slot` is a lock file: of all processes of the machine that share it, one hashes at a time."""
    with slot.open("w") as lock, suppress(EOFError, OSError):  # the parent died
        while True:
            request = json.loads(line.recv_bytes())
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                answer = {"result": _carry_out(**request)}
            except Exception as exc:
                answer = {"error": type(exc).__name__}  # its text could contain the password
            finally:
                fcntl.flock(lock, fcntl.LOCK_UN)
            line.send_bytes(json.dumps(answer).encode())


def _carry_out(algorithm: str, parameters: Mapping[str, int], method: str, arguments: list[Any]) -> str | bool:
    from django.contrib.auth import hashers  # noqa: PLC0415  after `os.nice`: loading it takes a while

    kinds = {"argon2": hashers.Argon2PasswordHasher, "pbkdf2_sha256": hashers.PBKDF2PasswordHasher}
    hasher = kinds[algorithm]()
    for name, value in parameters.items():
        setattr(hasher, name, value)
    result: str | bool = getattr(hasher, method)(*arguments)
    return result


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C reaches the whole terminal; the parent decides
    os.nice(NICENESS)
    serve(Connection(int(sys.argv[1])), Path(sys.argv[2]))
