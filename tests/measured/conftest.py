"""Real packets through a real kernel: skipped, by name, where there is no root or no iproute2."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from measuring.iproute import available, cleanup_stale
from tests.measured.testbed import (
    PREFIX,
    STOOD_STILL_S,
    Testbed,
    WindowExceededError,
    longest_pauses,
    report,
)

MEASURED_AGAIN = 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if "tests/measured/" in item.nodeid]
    for item in here:
        item.add_marker(pytest.mark.measured)
        item.add_marker(pytest.mark.kernel)


@pytest.fixture(scope="session")
def _namespaces() -> None:
    missing = available()
    if missing is not None:
        pytest.skip(f"measured: {missing}")
    cleanup_stale(PREFIX)


@pytest.fixture(scope="module")
def _shared_bed(_namespaces: None) -> Iterator[Testbed]:
    with Testbed() as testbed:
        yield testbed


@pytest.fixture
def bed(_shared_bed: Testbed) -> Iterator[Testbed]:
    """An attachment point with four user hosts, which a module's tests share. Every test begins without a limit."""
    yield _shared_bed
    _shared_bed.forget()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Measure again what failed while the machine stood still (`STOOD_STILL_S`), or where only a window was exceeded
    (`WindowExceededError`). A limiter that is wrong is wrong each time."""
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    for _ in range(MEASURED_AGAIN):
        with longest_pauses() as pauses_s:
            try:
                pyfuncitem.obj(**arguments)
                return True
            except AssertionError as exc:
                longest_s = max(pauses_s, default=0.0)
                if not isinstance(exc, WindowExceededError) and longest_s <= STOOD_STILL_S:
                    raise
                report(measured_again=pyfuncitem.name, stood_still_s=f"{longest_s:.3f}", because=exc)
        if isinstance(testbed := arguments.get("bed"), Testbed):
            testbed.lab.stop_all()  # probes that the failed run left
            testbed.forget()
    return None  # pytest calls it once more, for good
