"""What a kernel and a process can do: tried, and said with a remedy where it is missing."""

from __future__ import annotations

import shlex

import pytest

from ap_agent.selftest.needs import FEATURES, State, of_this_process, try_all
from measuring.iproute import LabError

ALL_RIGHTS = "CapEff:\t000001ffffffffff\n"


@pytest.mark.parametrize(
    ("bits", "missing"),
    [
        ("000001ffffffffff", []),
        ("0000000000001000", ["CAP_BPF", "CAP_SYS_ADMIN"]),
        ("0000008000001000", ["CAP_SYS_ADMIN"]),
        ("0000000000000000", ["CAP_NET_ADMIN", "CAP_BPF", "CAP_SYS_ADMIN"]),
    ],
)
def test_capabilities_are_bits_of_the_effective_set(bits: str, missing: list[str]) -> None:
    found = of_this_process(f"Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t{bits}\n")
    assert [one.name for one in found if one.is_in_the_way] == missing
    assert all(one.remedy for one in found if one.is_in_the_way)


@pytest.mark.parametrize(
    ("release", "is_in_the_way"),
    [("5.10.0-28-amd64", True), ("5.11.22", True), ("5.12.0", False), ("6.1.0-18-amd64", False), ("6.18.44", False)],
)
def test_a_kernel_that_is_too_old_is_named(release: str, is_in_the_way: bool) -> None:
    (kernel,) = (one for one in of_this_process(ALL_RIGHTS, release) if one.name.startswith("Linux"))
    assert (kernel.name, kernel.is_in_the_way) == ("Linux 5.12 or newer", is_in_the_way)
    assert release in kernel.detail


@pytest.mark.parametrize("name", [one.name for one in FEATURES])
def test_what_the_kernel_refuses_is_missing_with_its_words_and_its_module(name: str) -> None:
    """And what comes behind it is not tried."""
    refused = next(one for one in FEATURES if one.name == name)

    def run(*argv: str) -> str:
        if list(argv) == shlex.split(refused.command):
            raise LabError("`tc` ended with 2: Error: Specified qdisc\nkind is unknown.")
        return ""

    found = {one.name: one for one in try_all(run)}
    assert found[name].state is State.MISSING
    assert found[name].detail.endswith("Error: Specified qdisc kind is unknown")
    assert f"modprobe {refused.module}" in found[name].remedy
    behind = [one.name for one in FEATURES[FEATURES.index(refused) + 1 :]]
    assert {found[one].state for one in behind} <= {State.UNTRIED}
