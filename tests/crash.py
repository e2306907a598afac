"""A process that dies before one of its system calls that change the disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

STEPS = ("mkdir", "open", "fsync", "rename", "replace", "unlink", "chmod", "fchmod")


class Crash(BaseException):
    """Not an `Exception`: nothing may catch it on the way, as nothing catches SIGKILL."""


@contextmanager
def before_each_step(action: Callable[[str], None]) -> Iterator[None]:
    """Call `action` with each of these calls and its first argument, before it is made."""
    with pytest.MonkeyPatch.context() as patched:
        for name in STEPS:
            real = getattr(os, name)

            def step(
                *args: object, _real: Callable[..., object] = real, _name: str = name, **options: object
            ) -> object:
                action(f"{_name} {args[0]}")
                return _real(*args, **options)

            patched.setattr(os, name, step)
        yield


def dying(at: int, error: BaseException) -> tuple[list[str], Callable[[str], None]]:
    """The steps so far, and an action that raises the error before the one of this number, from 1 on."""
    steps: list[str] = []

    def action(step: str) -> None:
        steps.append(step)
        if len(steps) == at:
            raise error

    return steps, action
