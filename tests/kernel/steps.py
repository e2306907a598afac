"""Changes of twenty links to die in: from one wanted state to another, each as a value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Any

from ap_agent.model import IFB_NAME, EngineSettings
from bandwidth_config import LinkInfo
from tests.kernel.conftest import entry, links
from tests.kernel.flows import FASTEST_KBIT, Flow

UNLIMITED, DEFAULT = EngineSettings(), EngineSettings(unmatched="default", default_bandwidth_kbit=5000)
Links = dict[int, LinkInfo]


def _twenty() -> Links:
    """Of all kinds: addresses of their own, one shared by four, an entry without a port, IPv6, another interface."""
    found = {}
    for number in range(1, 9):
        found[f"l{number}"] = entry(f"192.0.2.{20 + number}", 8 + number)
        if number % 2:
            found[f"l{number}"] |= {"Local-IP": "192.0.2.1", "Local-Port": 51_000 + number}
    for number in range(9, 13):
        found[f"l{number}"] = entry("192.0.2.40", 8 + number, 50_000 + number)
    found["l13"] = entry("192.0.2.41", 21, None)
    for number in range(14, 19):
        found[f"l{number}"] = {**entry(f"2001:db8:1::a{number:x}", 8 + number), "Local-IP": "2001:db8:1::1"}
    found["l19"] = entry("198.51.100.21", 27)
    found["l20"] = entry("2001:db8:2::20", 28)
    found["l5"]["Bandwidth"] = found["l16"]["Bandwidth"] = 0
    return links(**found)


TWENTY = _twenty()


def changed(document: Links, **changes: dict[str, Any]) -> Links:
    """`changed(TWENTY, l1={"remote_port": 50001})`; None instead of a dictionary takes the link away."""
    numbered = {int(name.removeprefix("l")): change for name, change in changes.items()}
    return {number: replace(link, **numbered.get(number, {})) for number, link in document.items()}


def without(document: Links, *numbers: int) -> Links:
    return {number: link for number, link in document.items() if number not in numbers}


FASTER = {n: replace(one, bandwidth_kbit=min(FASTEST_KBIT, one.bandwidth_kbit * 3 // 2)) for n, one in TWENTY.items()}
OTHER_RATES = changed(
    FASTER, l2={"bandwidth_kbit": 0}, l5={"bandwidth_kbit": 30}, l14={"bandwidth_kbit": 9}, l18={"bandwidth_kbit": 0}
)
MOVED = changed(
    TWENTY,
    l1={"remote_ip": ip_address("192.0.2.29")},
    l2={"remote_port": 50_099},
    l3={"remote_ip": TWENTY[4].remote_ip},
    l4={"remote_ip": TWENTY[3].remote_ip},
    l9={"remote_port": 50_010},
    l10={"remote_port": 50_009},
    l14={"remote_ip": ip_address("2001:db8:1::29")},
    l19={"remote_ip": ip_address("192.0.2.30")},
)
THREE = without(TWENTY, *range(1, 13), *range(17, 20), 14, 15)
OTHER_THREE = changed(THREE, l16={"bandwidth_kbit": 20}, l20={"bandwidth_kbit": 0, "remote_port": 50_033}) | {
    7: TWENTY[7]
}
# Twenty addresses that differ in a byte in which the first two do not: their tables would pile up.
FEW = links(l1=entry("2001:db8:1::101", 20), l2=entry("2001:db8:1::202", 20))
CROWDED = FEW | links(**{f"l{n}": entry(f"2001:db8:1::1:{n:x}:303", 20) for n in range(3, 21)})


@dataclass(frozen=True)
class Step:
    """From one wanted state to another, with what somebody does before (`broken`)."""

    before: Links
    after: Links
    settings: EngineSettings = UNLIMITED
    settings_before: EngineSettings = UNLIMITED
    broken: str = ""
    is_fresh: bool = False  # what is there before must not remember what was there later
    is_beside_others: bool = False  # in a clsact of somebody else, which stays with what is in it

    @property
    def moved(self) -> list[tuple[Flow, Flow]]:
        """The packets of each link that stays, before and after, where they are not the same."""
        staying = sorted(self.before.keys() & self.after.keys())
        pairs = [(Flow.of(self.before[number]), Flow.of(self.after[number])) for number in staying]
        return [(old, new) for old, new in pairs if old != new]


OTHERS = (
    "qdisc add dev eth0 clsact",
    "filter add dev eth0 ingress pref 500 protocol ip u32 match ip src 203.0.113.7/32 flowid 9:9",
)
STEPS = {
    "small build": Step({}, THREE),
    "small change": Step(THREE, OTHER_THREE),
    "beside others": Step({}, THREE, is_beside_others=True),
    "build": Step({}, TWENTY),
    "rates": Step(TWENTY, OTHER_RATES),
    "move": Step(TWENTY, MOVED),
    "grow": Step(without(TWENTY, 2, 4, 9, 13, 15, 18, 19, 20), TWENTY),
    "rebuild": Step(FEW, CROWDED, is_fresh=True),
    "remove": Step(TWENTY, without(TWENTY, 1, 4, 9, 10, 13, 14, 19, 20)),
    "reset": Step(TWENTY, {}),
    "ifb": Step(TWENTY, TWENTY, broken=f"link del {IFB_NAME}"),
    "unmatched": Step(TWENTY, TWENTY, settings=DEFAULT),
    "unmatched back": Step(TWENTY, TWENTY, settings_before=DEFAULT),
}
