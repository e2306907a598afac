"""Hosts for kernel tests: an attachment point `ap` and two users, each a namespace of its own.

    u1 ── eth0  ap  eth1 ── u2        192.0.2.0/24, 2001:db8:1::/64        198.51.100.0/24, 2001:db8:2::/64

The witness is always `tc` and `ip`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from measuring.iproute import available, cleanup_stale
from measuring.netns import Lab, Namespace
from tests.kernel.engine_bed import EngineBed, engine_bed

T = TypeVar("T")

PREFIX = "slbwk"
MISSING = available()

Entry = dict[str, Any]


def entry(ip: str, kbit: int, port: int | None = 50000, **more: object) -> Entry:
    """One value of link_info.json; `port=None` is the thesis' four keys."""
    found: Entry = {"AS_ID": 0xB6, "IsUserAS": True, "Bandwidth": kbit, "IP-Address": ip, **more}
    if port is not None:
        found["Port"] = port
    return found


@dataclass
class Host:
    """The attachment point of a test, with its users."""

    lab: Lab
    ap: Namespace
    u1: Namespace
    u2: Namespace

    def inside(self, function: Callable[[], T]) -> T:
        return self.ap.call(function)

    def tc(self, *arguments: str) -> str:
        return self.ap.run("tc", *arguments)

    def snapshot(self) -> list[str]:
        """Everything that we could have left behind, as tc and ip print it, without numbers that the kernel picks."""
        shown = []
        for name in self.devices():
            shown += [f"device {name}", *self.tc("qdisc", "show", "dev", name).splitlines()]
            shown += self.tc("class", "show", "dev", name).splitlines()
            for hook in ("ingress", "egress"):
                text = self.tc("filter", "show", "dev", name, hook) if self.has_hook(name) else ""
                shown += [f"{name} {hook} {one}" for one in re.sub(r"\n[ \t]+", " ", text).splitlines()]
        numbers = r"( direct_packets_stat \d+| id \d+| index \d+ ref \d+ bind \d+)"
        return sorted(re.sub(numbers, "", line).strip() for line in shown)

    def devices(self) -> list[str]:
        return [line.split()[0].partition("@")[0] for line in self.ap.ip("-br", "link").splitlines()]

    def has_hook(self, name: str) -> bool:
        return " ffff: " in self.tc("qdisc", "show", "dev", name)


def is_alive(pid: int) -> bool:
    """It may end between two looks at it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture(scope="session")
def _no_leftovers() -> None:
    """A run that was killed outright leaves its namespaces behind."""
    if MISSING is None:
        cleanup_stale(PREFIX)


@pytest.fixture
def host(_no_leftovers: None) -> Iterator[Host]:
    if MISSING is not None:
        pytest.skip(MISSING)
    with Lab(PREFIX) as lab:
        ap, u1, u2 = (lab.namespace(name) for name in ("ap", "u1", "u2"))
        lab.veth(
            ap.nic("eth0", "192.0.2.1/24", "2001:db8:1::1/64"), u1.nic("eth0", "192.0.2.11/24", "2001:db8:1::11/64")
        )
        lab.veth(
            ap.nic("eth1", "198.51.100.1/24", "2001:db8:2::1/64"),
            u2.nic("eth0", "198.51.100.11/24", "2001:db8:2::11/64"),
        )
        yield Host(lab, ap, u1, u2)


@pytest.fixture
def bed() -> Iterator[EngineBed]:
    """An attachment point for tests of the engine."""
    if MISSING is not None:
        pytest.skip(MISSING)
    with engine_bed() as made:
        yield made
