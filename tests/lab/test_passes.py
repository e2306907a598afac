"""`lab.passes` counts what a call enters of the service, and nothing else."""

from __future__ import annotations

import pytest

from lab.passes import passed
from scionlab.platform.notation.isd_as import parse_isd_as


def test_functions_of_the_service_are_counted_with_their_modules_and_apps() -> None:
    found = passed(lambda: [parse_isd_as("17-ffaa:1:1") for _ in range(3)] and None)
    assert ("platform.notation.isd_as", "parse_isd_as") in found.functions
    assert (found.apps, {module.rpartition(".")[0] for module in found.modules}) == (
        {"platform"},
        {"platform.notation"},
    )
    assert not any("<" in name for _, name in found.functions)


def test_nothing_is_counted_after_a_failure() -> None:
    with pytest.raises(ZeroDivisionError):
        passed(lambda: print(1 // 0))
    assert passed(lambda: None).functions == frozenset()
