"""An attachment point with an interface per limit, so that tools which only know interfaces can take part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from contract.link_info import check_link_info
from lab.bench.engines import Engine
from lab.bench.peers import thesis, wondershaper
from measuring.netns import Namespace

OURS, THESIS, SCHEME = "ours", "the thesis' sequence", wondershaper.SCHEME
NO_LIMIT = "no limit"  # what the machine can do at all; only where that may be less than the limit
UDP, TCP = "UDP", "TCP"
TO_USER, FROM_USER = "to user", "from user"
DIRECTIONS = (TO_USER, FROM_USER)


@dataclass(frozen=True)
class Wire:
    """One interface of the attachment point with the link behind it."""

    number: int
    kbit: int

    @property
    def dev(self) -> str:
        return f"eth{self.number}"

    @property
    def ap_address(self) -> str:
        return f"192.0.2.{self.number * 4 + 1}"

    @property
    def user_address(self) -> str:
        return f"192.0.2.{self.number * 4 + 2}"

    @property
    def ends(self) -> tuple[tuple[str, int], tuple[str, int]]:
        return (self.ap_address, 51_000 + self.number), (self.user_address, 50_000 + self.number)

    @property
    def ifb(self) -> str:
        """Of a tool that needs one for each interface."""
        return f"ifb{self.number}"

    def entry(self, protocol: str) -> dict[str, object]:
        """For TCP only the thesis' four keys: a link is UDP otherwise."""
        four = {"AS_ID": 182, "IsUserAS": True, "Bandwidth": self.kbit, "IP-Address": self.user_address}
        (local, local_port), (_, port) = self.ends
        return four if protocol == TCP else four | {"Port": port, "Local-IP": local, "Local-Port": local_port}


def install(tool: str, protocol: str, ap: Namespace, wires: Iterable[Wire]) -> None:
    """Limit these wires with this tool. Raises `LabError` or `RuntimeError` when it cannot."""
    if tool == NO_LIMIT:
        return
    if tool == OURS:
        wanted = check_link_info({str(wire.number): wire.entry(protocol) for wire in wires})
        with Engine(ap) as engine:
            engine.enforce(wanted)
        return
    for wire in wires:
        ifb = wire.ifb
        if tool == THESIS:
            links = [thesis.ThesisLink(wire.number, wire.user_address, wire.kbit)]
            for command in thesis.enforce_commands(wire.dev, links, ifb=ifb)[len(thesis.remove_commands("", "")) :]:
                ap.run(*command)
        else:
            ap.ip_batch([f"link add {ifb} type ifb", f"link set {ifb} up"])
            ap.run("tc", "-batch", "-", stdin="\n".join(wondershaper.scheme(wire.dev, ifb, wire.kbit)) + "\n")
