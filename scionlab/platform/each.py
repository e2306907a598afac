"""Runs work on many items so that the failure of one does not affect others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

logger = logging.getLogger(__name__)


def for_each(ids: Iterable[int], work: Callable[[int], list[int]]) -> list[int]:
    """Collect what `work` returns for all ids. Failures are logged, and the last one is raised at the end, so that the
    task counts as failed."""
    done: list[int] = []
    failed: Exception | None = None
    for one in ids:
        try:
            done += work(one)
        except Exception as exc:
            logger.exception("each.failed work=%s id=%s", getattr(work, "__qualname__", work), one)
            failed = exc
    if failed is not None:
        raise failed
    return done
