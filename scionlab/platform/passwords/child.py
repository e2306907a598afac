"""What runs in the processes that hash."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Mapping
from typing import Any, Final

from django.contrib.auth import hashers

NICENESS: Final = 10  # a tenth of the CPU share of a page on the same CPU
_KINDS: Final = {"argon2": hashers.Argon2PasswordHasher, "pbkdf2_sha256": hashers.PBKDF2PasswordHasher}


def begin() -> None:
    """Of each process, before its first hash."""
    os.nice(NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C reaches the whole terminal; the parent decides
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A killed parent closes no queue: its processes would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def carry_out(
    algorithm: str, parameters: Mapping[str, int], method: str, arguments: tuple[Any, ...]
) -> tuple[str, str | bool]:
    """Return "" and the result; or the name of the error, whose text could contain the password, and ""."""
    hasher = _KINDS[algorithm]()
    for name, value in parameters.items():
        setattr(hasher, name, value)
    try:
        return "", getattr(hasher, method)(*arguments)
    except Exception as exc:
        return type(exc).__name__, ""
