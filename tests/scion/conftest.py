"""Tests that ask the real SCION programs; skipped, by name, where `./dev scion` has not built them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.scion.net import ScionNet
from lab.scion.programs import missing
from tests.support.namespaces import need_namespaces

PREFIX = "slbwscion"


@pytest.fixture(scope="session")
def scion_programs() -> None:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def net(scion_programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScionNet]:
    """Core AS, attachment point and user AS, running, which a module's tests share. Without a limit."""
    need_namespaces(PREFIX)
    with ScionNet(PREFIX, Path(tmp_path_factory.mktemp("scion"))) as made:
        yield made
