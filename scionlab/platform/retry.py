"""Retries a transaction that the database aborted because of a deadlock.

Services take locks in one order (`testbed.locks`), which avoids deadlocks. A deleted row takes others along in an order
of the database's own, so PostgreSQL may still find one and abort a transaction. That has no effect: no counter rose, no
mail is stored and no callback runs, so it is repeated.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from django.db import OperationalError, connection

logger = logging.getLogger(__name__)

ATTEMPTS: Final = 3
PAUSE_S: Final = 0.1  # at most, doubled each time: so that they do not meet again

_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


def is_conflict(error: BaseException | None) -> bool:
    """True if the database aborted a transaction because of another one: a deadlock, a failed serialization."""
    return getattr(getattr(error, "__cause__", None), "sqlstate", None) in {"40P01", "40001"}


def retried(function: Callable[_Arguments, _Answer]) -> Callable[_Arguments, _Answer]:
    """Decorate a function: up to 3 attempts if the database aborts its transaction (`is_conflict`). For entry points
    (handlers of the REST API, pages, tasks) and for services called without one. The function must be one transaction,
    or idempotent. Within another transaction the error is passed on."""

    @wraps(function)
    def run(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Answer:
        for attempt in range(1, ATTEMPTS):
            try:
                return function(*args, **kwargs)
            except OperationalError as exc:
                if connection.in_atomic_block or not is_conflict(exc):
                    raise
                logger.warning("retry.conflict function=%s attempt=%s", function.__qualname__, attempt)
                time.sleep(random.uniform(0, PAUSE_S * 2**attempt))  # noqa: S311  nobody gains by guessing it
        return function(*args, **kwargs)

    return run
