"""Runs a transaction again that the database ended so that another one could go on.

Services take their locks in one order (`models.locks`), so they do not wait for each other in a circle. A row
that is deleted takes others along in an order of the database's own; there PostgreSQL may find a circle, and ends one
of the transactions. Nothing of it happened, no counter rose, no mail is kept and no callback runs: so it is done again.
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
PAUSE_S: Final = 0.1  # at most, doubled each time: those who met are not to meet again

_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


def is_conflict(error: BaseException | None) -> bool:
    """True where the database ended a transaction for another one's sake: a deadlock, a failed serialization."""
    return getattr(getattr(error, "__cause__", None), "sqlstate", None) in {"40P01", "40001"}


def retried(function: Callable[_Arguments, _Answer]) -> Callable[_Arguments, _Answer]:
    """Runs a function again, up to 3 times in all, whose transaction the database ended (`is_conflict`).

    For doors (handlers of the REST API, pages, tasks) and for services that are called without one of them. What the
    function does must be one transaction, or work that may be done any number of times. Within another transaction the
    error is passed on to whoever began that one.
    """

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
