"""One bed for all tests of a module: links are made anew by each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.dataplane.bed import Bed, bed


@pytest.fixture(scope="module")
def shared_bed() -> Iterator[Bed]:
    with bed() as made:
        yield made


@pytest.fixture
def ap(shared_bed: Bed) -> Iterator[Bed]:
    yield shared_bed
    shared_bed.forget_links()
