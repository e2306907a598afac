"""Work on many things, one after the other, where the failure of one harms no other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

logger = logging.getLogger(__name__)


def for_each(ids: Iterable[int], work: Callable[[int], list[int]]) -> list[int]:
    """What `work` returned for all ids, in one list. Where some fail, each is logged, the others are done, and the last
    error is raised in the end: so the task counts as failed."""
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
