"""What is done to two flows under traffic: each change of ours, and what the peers do instead.

A and B are links of one user host each; `prepare` is the state before, `act` the change. Peers remove and rebuild.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from contract.link_info import LinkInfo, check_link_info
from lab.bench.engines import Engine
from lab.bench.peers import thesis, tree, wondershaper
from lab.bench.world import IFBS, entry, make_links, with_limit
from measuring.netns import Namespace

DEV = "eth0"
A, B, C = 2001, 2002, 2003  # interface ids of the two flows, and of a link that comes
USER = {A: "192.0.2.11", B: "192.0.2.12", C: "192.0.2.13"}
A_LIMIT, B_LIMIT = 12_000, 1_000
A_OFFERED, B_OFFERED, A_PAYLOAD = 10_000, 20_000, 958  # A: 1000 bytes on the wire, 1250 packets per second
ATTACH, REMOVE = "ours: the first links come", "ours: the last links go"
NOTHING_DONE = "ours: nothing"


@dataclass(frozen=True)
class Situation:
    """What is there before (`prepare`), and what is done under traffic (`act`); `b_limit` is the higher one of B."""

    name: str
    links: int
    prepare: Callable[[Namespace, Engine], None]
    act: Callable[[Namespace, Engine], None]
    b_limit: int = B_LIMIT


def situations(crowd: int) -> list[Situation]:
    """All, with so many other links where the engine acts."""
    return [*_ours(crowd), *_peers(crowd), *_attaching()]


def flows(kbit_a: int = A_LIMIT, kbit_b: int = B_LIMIT) -> dict[int, LinkInfo]:
    wanted = {A: kbit_a, B: kbit_b}
    return check_link_info({str(number): entry(USER[number], kbit, number) for number, kbit in wanted.items()})


def _ours(crowd: int) -> list[Situation]:
    idle = make_links(crowd, kbit=2_000)
    before = {**idle, **flows()}
    coming = check_link_info({str(C): entry(USER[C], 3_000, C)})
    without = {number: link for number, link in before.items() if number != crowd // 2}
    actions: list[tuple[str, Mapping[int, LinkInfo], int]] = [
        (NOTHING_DONE, before, B_LIMIT),
        ("ours: change B", with_limit(before, B, 2 * B_LIMIT), 2 * B_LIMIT),
        ("ours: add a link", {**before, **coming}, B_LIMIT),
        ("ours: delete a link", without, B_LIMIT),
        ("ours: change A itself", with_limit(before, A, A_LIMIT + 2_000), B_LIMIT),
    ]
    return [
        Situation(name, crowd, partial(_enforce, before), partial(_enforce, after), limit)
        for name, after, limit in actions
    ]


def _enforce(links: Mapping[int, LinkInfo], _: Namespace, engine: Engine) -> None:
    engine.enforce(links)


def _peers(crowd: int) -> list[Situation]:
    rebuilt = "tc -batch: remove and rebuild our classes"
    many = min(crowd, 100)
    return [
        Situation(rebuilt, crowd, partial(_enforce, _links_of(crowd)), partial(_rebuild, crowd)),
        *(
            Situation("the thesis' sequence", links, partial(_thesis, links), partial(_thesis, links))
            for links in (3, many)
        ),
        Situation(wondershaper.SCHEME, 0, _wondershaper, _wondershaper_again, b_limit=A_OFFERED + B_OFFERED),
    ]


def _links_of(links: int) -> dict[int, LinkInfo]:
    return {**make_links(links - 2, kbit=2_000), **flows()} if links > 2 else flows()


def _rebuild(links: int, host: Namespace, _: Engine) -> None:
    lines = [*(f"qdisc del dev {dev} root" for dev in IFBS), *tree.tree_lines(_links_of(links))]
    host.run("tc", "-batch", "-", stdin="\n".join(lines) + "\n", timeout_s=60)


def _shell(host: Namespace, commands: list[str]) -> None:
    host.run("sh", "-s", stdin="\n".join(commands) + "\n", timeout_s=60, check=False)


def _thesis(links: int, host: Namespace, _: Engine) -> None:
    """Its numbers are decimal words that tc reads as hexadecimal; below 9999 that only renames the classes."""
    listed = [
        thesis.ThesisLink(number, str(link.remote_ip), link.bandwidth_kbit) for number, link in _links_of(links).items()
    ]
    _shell(host, [f"{' '.join(command)} 2>/dev/null" for command in thesis.enforce_commands(DEV, listed)])


def _wondershaper(host: Namespace, _: Engine) -> None:
    """It has one pair of numbers for the interface: room for both flows, and no limit for B."""
    host.ip_batch([f"link add {thesis.IFB} type ifb", f"link set {thesis.IFB} up"])
    _shell(host, [f"tc {line}" for line in wondershaper.scheme(DEV, thesis.IFB, 2 * (A_OFFERED + B_OFFERED))])


def _wondershaper_again(host: Namespace, _: Engine) -> None:
    lines = wondershaper.clear_lines(DEV, thesis.IFB) + wondershaper.scheme(
        DEV, thesis.IFB, 2 * (A_OFFERED + B_OFFERED)
    )
    _shell(host, [f"tc {line}" for line in lines])


def _attaching() -> list[Situation]:
    """Ten other links come, or go; neither flow belongs to any, so that B is a bystander like A."""
    others = make_links(10, kbit=2_000)

    def nothing(_host: Namespace, _engine: Engine) -> None:
        """Nobody is limited."""

    def attach(_host: Namespace, engine: Engine) -> None:
        engine.enforce(others)

    def remove(_host: Namespace, engine: Engine) -> None:
        engine.enforce({})

    unlimited = A_OFFERED + B_OFFERED
    return [
        Situation(ATTACH, 10, nothing, attach, b_limit=unlimited),
        Situation(REMOVE, 10, attach, remove, b_limit=unlimited),
    ]
