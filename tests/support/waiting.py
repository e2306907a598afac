"""Waiting for what happens in another process or thread."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(is_so: Callable[[], object], what: object = "it", within_s: float = 20.0) -> None:
    """Look again and again until it is so. The deadline is generous: it only ends what would never be so. `what` is
    what is told then, or who is asked for it."""
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline, f"waited {within_s} s for: {what() if callable(what) else what}"
        time.sleep(0.05)
