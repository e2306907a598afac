"""Hosts for kernel tests: an attachment point `ap` and two users, each a namespace of its own.

    u1 ── eth0  ap  eth1 ── u2        192.0.2.0/24, 2001:db8:1::/64        198.51.100.0/24, 2001:db8:2::/64

The engine runs in this process, inside the AP's namespace; the witness is always `tc` and `ip`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from ap_agent.model import EngineSettings
from ap_agent.reconcile import CycleResult, plan_cycle, reconcile, reset
from bandwidth_config import LinkInfo, check_link_info
from measuring.netns import Lab, Namespace, available, cleanup_stale

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


def links(**entries: Entry) -> dict[int, LinkInfo]:
    """`links(l1=entry(...), l7=entry(...))`: keyed by interface id."""
    return check_link_info({name.removeprefix("l"): value for name, value in entries.items()})


@dataclass
class Host:
    """The attachment point of a test, with its users."""

    lab: Lab
    ap: Namespace
    u1: Namespace
    u2: Namespace
    settings: EngineSettings = field(default_factory=EngineSettings)

    def inside(self, function: Callable[[], T]) -> T:
        return self.ap.call(function)

    def reconcile(self, wanted: dict[int, LinkInfo]) -> CycleResult:
        return self.inside(lambda: reconcile(wanted, self.settings))

    def plan(self, wanted: dict[int, LinkInfo]) -> CycleResult:
        return self.inside(lambda: plan_cycle(wanted, self.settings))

    def reset(self) -> CycleResult:
        return self.inside(lambda: reset(self.settings))

    def tc(self, *arguments: str) -> str:
        return self.ap.run("tc", *arguments)

    def snapshot(self, *, has_tables: bool = False) -> list[str]:
        """Everything that we could have left behind, as tc and ip print it, without numbers that the kernel picks.

        Hash tables and what leads to them only if asked for: they may stay from what was there before.
        """
        shown = []
        for name in self.devices():
            shown += [f"device {name}", *self.tc("qdisc", "show", "dev", name).splitlines()]
            shown += self.tc("class", "show", "dev", name).splitlines()
            for hook in ("root", "ingress", "egress"):
                at = [] if hook == "root" else [hook]  # tc's word "root" asks for something else
                text = self.tc("filter", "show", "dev", name, *at) if self.has_hook(name, hook) else ""
                shown += [f"{name} {hook} {one}" for one in _filters(text) if has_tables or not _is_of_tables(one)]
        return sorted(re.sub(r" direct_packets_stat \d+", "", line).strip() for line in shown)

    def devices(self) -> list[str]:
        return [line.split()[0].partition("@")[0] for line in self.ap.ip("-br", "link").splitlines()]

    def has_hook(self, name: str, hook: str) -> bool:
        return hook == "root" or " ffff: " in self.tc("qdisc", "show", "dev", name)


def _filters(text: str) -> list[str]:
    """Each filter as one line, and each table; their numbers, nodes and actions are the kernel's choice or history's,
    and so is at which of its two preferences an index lives.
    """
    joined = re.sub(r"\n[ \t]+", " ", text)
    lines = [
        re.sub(r"( fh \S+| order \d+ key ht \S+ bkt \S+| link \S+| index \d+ ref \d+ bind \d+)", "", line)
        for line in joined.splitlines()
    ]
    lines = [re.sub(r" pref (1[1-4]\d) ", lambda found: f" pref {int(found[1]) & ~1} ", line) for line in lines]
    return [line for line in lines if line.strip()]


def _is_of_tables(line: str) -> bool:
    return " ht divisor " in line or " hash mask " in line


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
