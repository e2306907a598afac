"""Hosts in network namespaces; a test that cannot have them is skipped, by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest

from measuring.iproute import available, cleanup_stale
from measuring.netns import Lab

_missing, _swept = cache(available), cache(cleanup_stale)


def need_namespaces(prefix: str) -> None:
    """For what makes its `Lab` itself. What a run that was killed outright left of this prefix is removed."""
    missing = _missing()
    if missing is not None:
        pytest.skip(missing)
    _swept(prefix)


@contextmanager
def a_lab(prefix: str) -> Iterator[Lab]:
    """Two at once need a prefix each. Raises `LabError`."""
    need_namespaces(prefix)
    with Lab(prefix) as made:
        yield made
