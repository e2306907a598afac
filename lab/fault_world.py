"""A host with the running limiter and traffic on its links, for `lab.faults` to break.

                 ┌ eth0 192.0.2.1 ──────── 192.0.2.11 eth0 ┐
    203.0.113.1  ap                                        u1  203.0.113.11       link 1: those, by route over eth0
                 ├ eth1 198.51.100.1 ── 198.51.100.11 eth1 ┤                      link 2: the addresses of eth0
                 └ tun0 10.10.1.1 ─ ─ ─ ─ ─  10.10.1.2 tun0 ┘                     link 3: through the tunnel

Links 1 and 3 are offered much more than their limit, so that every moment without it shows; link 2 much less, so that
every packet that is missing was lost. There is no agent: the document lies where it would have put it.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lab import witness
from lab.processes import Processes
from lab.running import ready
from measuring.netns import Lab, Namespace
from measuring.traffic import Endpoint, data

IFBS = ("slbw0", "slbw1")
HOOKS = {"egress": "slbw0", "ingress": "slbw1"}  # where each leads
FROM_USER_BIT = 0x1000
HOST_ID = "lab"
NETS = {"eth0": "192.0.2", "eth1": "198.51.100", "eth2": "198.51.101"}
LIMIT_KBIT = {1: 1_000, 2: 4_000, 3: 1_000}
OFFERED_KBIT = {1: 8_000, 2: 400, 3: 4_000}
PAYLOAD_BYTES = {1: 500, 2: 100, 3: 500}
AP_END = {1: ("203.0.113.1", 51_001), 2: ("192.0.2.1", 51_002), 3: ("10.10.1.1", 51_003)}
USER_END = {1: ("203.0.113.11", 50_001), 2: ("192.0.2.11", 50_002), 3: ("10.10.1.2", 50_003)}
_START_DEADLINE_S = 20.0
# Nothing polls and nothing compares: what is repaired is repaired because the kernel told it.
_SETTINGS: dict[str, object] = {"allow_unsigned": True, "log_level": "debug", "audit_interval_s": 3600}


class FaultWorld:
    """Context manager: the hosts, the tunnel, and the limiter once every link is limited. Raises `LabError`."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __enter__(self) -> FaultWorld:
        with ExitStack() as closing:
            folder = closing.enter_context(tempfile.TemporaryDirectory(prefix=f"{self._prefix}-"))
            self.lab = closing.enter_context(Lab(self._prefix))
            self.ap, self.user = self.lab.namespace("ap"), self.lab.namespace("u1")
            self.connect("eth0")
            self.connect("eth1")
            for host, address in ((self.ap, "203.0.113.1"), (self.user, "203.0.113.11")):
                host.ip("addr", "add", f"{address}/32", "dev", "lo")
            self.route_over("192.0.2")
            for host in (self.ap, self.user):
                self.open_tunnel(host)
            self.programs = closing.enter_context(Processes(self.ap, Path(folder), _SETTINGS))
            self.hand_over()
            self.programs.start("limiter")
            self.programs.until(lambda: self.enforced() == set(LIMIT_KBIT), _START_DEADLINE_S)
            self._closing = closing.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._closing.close()

    # --- hosts and wires ------------------------------------------------------------------------------------

    def connect(self, dev: str) -> None:
        """The wire between both hosts, new, with its addresses."""
        net = NETS[dev]
        self.lab.veth(self.ap.nic(dev, f"{net}.1/24"), self.user.nic(dev, f"{net}.11/24"))

    def route_over(self, net: str) -> None:
        """Send the packets of link 1 through one of `NETS`, in both directions."""
        self.user.ip("route", "replace", "203.0.113.1", "via", f"{net}.1", "src", "203.0.113.11")
        self.ap.ip("route", "replace", "203.0.113.11", "via", f"{net}.11", "src", "203.0.113.1")

    def open_tunnel(self, host: Namespace) -> None:
        """A tun device, new, and the process that carries its packets to the other host."""
        inner, outer, peer = (
            ("10.10.1.1", "192.0.2.1", "10.10.1.2=192.0.2.11")
            if host is self.ap
            else ("10.10.1.2", "192.0.2.11", "10.10.1.1=192.0.2.1")
        )
        self.lab.tun(host.nic("tun0", f"{inner}/24"))
        ready(host, "lab.tunnel", "--dev", "tun0", "--local", f"{outer}:1194", "--peer", f"{peer}:1194")

    def renew_tunnel(self) -> None:
        """Delete the device of the attachment point and make it anew. Its process goes on: on a busy machine the start
        of another one may take longer than a run's traffic."""
        self.ap.ip("link", "del", "tun0")
        self.lab.tun(self.ap.nic("tun0", "10.10.1.1/24"))

    def tc(self, *words: str) -> str:
        return self.ap.run("tc", *words)

    # --- the limiter ----------------------------------------------------------------------------------------

    def hand_over(self) -> None:
        """What the agent would have handed, unsigned."""
        link_info = json.dumps({str(number): _entry(number) for number in LIMIT_KBIT})
        said = {"host_id": HOST_ID, "generation": 1, "config_version": 1, "limits_version": 1, "observe_only": False}
        said["sha256"] = hashlib.sha256(link_info.encode()).hexdigest()
        path = self.programs.path_of("state_dir") / "document.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"schema": 1, "unsigned": said}) + "\n" + link_info, encoding="utf-8")

    def enforced(self) -> set[int]:
        """The links of which the limiter says so."""
        state = self.programs.state()
        links = state.links if state is not None else {}
        return {number for number, one in links.items() if one.state == "enforced"}

    # --- what the kernel has ----------------------------------------------------------------------------------

    def stands(self, *devices: str) -> bool:
        """Both IFBs are up with every link's class, and packets of these devices are led there."""
        found = witness.links(self.ap)
        return all(
            "UP" in found.get(ifb, {"flags": []})["flags"] and self._rates_kbit(ifb, bit) == LIMIT_KBIT
            for ifb, bit in zip(IFBS, (0, FROM_USER_BIT), strict=True)
        ) and all(self._is_hooked(device) for device in devices)

    def _rates_kbit(self, ifb: str, bit: int) -> dict[int, int]:
        shown = witness.classes(self.ap, ifb)
        return {int(name.partition(":")[2], 16) & ~bit: one.rate_bits // 1000 for name, one in shown.items()}

    def _is_hooked(self, device: str) -> bool:
        shown = ((hook, self.ap.run("tc", "filter", "show", "dev", device, hook, check=False)) for hook in HOOKS)
        return all(text.count("direct-action") == 1 and f"device {HOOKS[hook]})" in text for hook, text in shown)

    # --- traffic ------------------------------------------------------------------------------------------------

    def traffic(self) -> dict[Namespace, list[Endpoint]]:
        """What both hosts send on all links."""
        plan: dict[Namespace, list[Endpoint]] = {self.ap: [], self.user: []}
        for link in LIMIT_KBIT:
            stream = (data(OFFERED_KBIT[link], PAYLOAD_BYTES[link]),)
            plan[self.ap].append(Endpoint(f"link{link}", AP_END[link], USER_END[link], stream))
            plan[self.user].append(Endpoint(f"link{link}", USER_END[link], AP_END[link], stream))
        return plan


def _entry(link: int) -> dict[str, Any]:
    """Its entry in link_info.json (DOMAIN section 3)."""
    return {
        "AS_ID": 0xB6 + link,
        "IsUserAS": True,
        "Bandwidth": LIMIT_KBIT[link],
        "IP-Address": USER_END[link][0],
        "Port": USER_END[link][1],
        "Local-IP": AP_END[link][0],
        "Local-Port": AP_END[link][1],
        "VPN": link == 3,
    }
