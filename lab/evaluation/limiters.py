"""Who limits: the names of all limiters, a link as each of them needs it, and the commands of those that are not ours.

`Bed` (lab.evaluation.bed) gives each limiter an attachment point of its own; ours is `lab.bench.engines.Engine`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bandwidth_config import FROM_USER_KEY, TESTS_KEY, TO_USER_KEY, Limits
from contract.link_tests import LinkTest
from lab.bench.engines import Entry
from lab.bench.peers import thesis, wondershaper
from measuring.netns import Namespace
from measuring.traffic import Address

OURS = "ours"
THESIS = "the thesis' sequence"
WONDERSHAPER = "wondershaper's scheme"
NO_LIMIT = "no limit"
WRONG = "a wrong limit"
# The negative controls: a judge that lets one of them pass judges nothing.
CONTROLS = (WRONG, NO_LIMIT)
OWN = (OURS, WRONG)  # have our engine

WRONG_SHARE = 1.1  # of the limit that is asked for; beyond every tolerance of a run of three seconds or more


@dataclass(frozen=True)
class Link:
    """A link and its limit: through which device of the attachment point it goes, and both its ends. `tests` are those
    that send; no limiter but ours knows them."""

    interface_id: int
    dev: str
    local: Address
    remote: Address
    limits: Limits
    tests: tuple[LinkTest, ...] = ()

    @property
    def ifb(self) -> str:
        """The IFB of a tool that needs one per device."""
        return self.dev.replace("eth", "ifb")

    def entry(self, *, four_keys: bool) -> Entry:
        """As the service would write it. With `four_keys` it is one of the thesis: matched by its address alone,
        whatever the protocol."""
        entry: Entry = {
            "AS_ID": self.interface_id,
            "IsUserAS": True,
            "Bandwidth": self.limits.lowest_kbit,
            "IP-Address": self.remote[0],
        }
        if not four_keys:
            (local, local_port), (_, port) = self.local, self.remote
            entry |= {"Port": port, "Local-IP": local, "Local-Port": local_port, "VPN": False}
        if self.tests:
            entry[TESTS_KEY] = [one.statement() for one in self.tests]
        if not self.limits.is_symmetric:
            entry |= {TO_USER_KEY: self.limits.to_user_kbit, FROM_USER_KEY: self.limits.from_user_kbit}
        return entry


def wrong(link: Link) -> Link:
    """The same link with a limit that nobody asked for."""
    return replace(link, limits=Limits(*(round(one * WRONG_SHARE) for one in link.limits)))


def install_peer(limiter: str, ap: Namespace, links: Iterable[Link]) -> None:
    """Limit these links with the thesis' sequence or wondershaper's scheme, in place of what was there; or not at all
    (`NO_LIMIT`). Neither knows directions: both get the lower one. Raises `LabError`; `ValueError` for another name."""
    if limiter == NO_LIMIT:
        return
    of_devices: dict[str, list[Link]] = {}
    for link in links:
        of_devices.setdefault(link.dev, []).append(link)
    for behind in of_devices.values():
        if limiter == THESIS:
            _install_thesis(ap, behind)
        elif limiter == WONDERSHAPER:
            _install_wondershaper(ap, behind[0])
        else:
            raise ValueError(f"{limiter!r} is none of {THESIS!r}, {WONDERSHAPER!r}, {NO_LIMIT!r}")


def thesis_commands(links: Sequence[Link]) -> list[thesis.Command]:
    """Of Listing 5.2, for links behind one device."""
    known = [thesis.ThesisLink(one.interface_id, one.remote[0], one.limits.lowest_kbit) for one in links]
    return thesis.enforce_commands(links[0].dev, known, ifb=links[0].ifb)


def rebuild_thesis(ap: Namespace, links: Sequence[Link]) -> None:
    """Run them as the original does: nobody looks, also not when tc refuses a rate of 0."""
    for command in thesis_commands(links):
        ap.run(*command, check=False)


def _install_thesis(ap: Namespace, links: Sequence[Link]) -> None:
    """Remove everything, whatever that says, then build; each command a process of its own."""
    removing = len(thesis.remove_commands("", ""))
    lines = [shlex.join(command) for command in thesis_commands(links)]
    script = ["set +e", *lines[:removing], "set -e", *lines[removing:]]
    ap.run("sh", "-c", "\n".join(script))


def _install_wondershaper(ap: Namespace, link: Link) -> None:
    """It limits an interface, so the first link behind it says how much."""
    dev, ifb = link.dev, link.ifb
    ap.run("tc", "-force", "-batch", "-", stdin="\n".join(wondershaper.clear_lines(dev, ifb)) + "\n", check=False)
    ap.ip("link", "add", ifb, "type", "ifb", check=False)
    ap.ip("link", "set", ifb, "up")
    lines = wondershaper.scheme(dev, ifb, link.limits.lowest_kbit)
    ap.run("tc", "-batch", "-", stdin="\n".join(lines) + "\n")
