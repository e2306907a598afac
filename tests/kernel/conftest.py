"""Hosts for kernel tests. The witness is always `tc` and `ip`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.engine_bed import EngineBed, Host, attachment_point, engine_bed

PREFIX = "slbwk"


def is_alive(pid: int) -> bool:
    """It may end between two looks at it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def host() -> Iterator[Host]:
    with attachment_point(PREFIX) as made:
        yield made


@pytest.fixture
def bed() -> Iterator[EngineBed]:
    """An attachment point for tests of the engine."""
    with engine_bed() as made:
        yield made
