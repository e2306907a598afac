"""What the demo prints: the tables, the verdicts and their arithmetic."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

from lab.demo.agent import DemoAgent
from lab.demo.site import DemoSite
from lab.demo.traffic import LinkMeasurement, Measured
from lab.demo.world import ADMIN, BYSTANDER_KBIT, PASSWORD, USER_ASES, UserAs
from measuring.judge import RATE_TOLERANCE

UNLIMITED_LOSS_TOLERANCE = 0.001  # of all packets: what is lost without any limit on two busy cores
COUNTED_TOLERANCE = 0.05  # of all packets: the first ones find room
SHARE_TOLERANCE = 0.03  # of a share of the total: it follows what the links send, every 150 ms

_HEAD = (
    ("user AS", "", ""),
    ("requested", "", "kbit/s"),
    ("enforced", "", "kbit/s"),
    ("kernel has", "to / from", "kbit/s"),
    ("measured", "to user AS", "kbit/s L2"),
    ("measured", "from user AS", "kbit/s L2"),
    ("heartbeats", "arrived", "of sent"),
    ("site says", "", ""),
)


@dataclass(frozen=True)
class Verdict:
    """One claim and whether it held."""

    claim: str
    holds: bool


def table(site: DemoSite, agent: DemoAgent, measured: Measured) -> str:
    """Per link: requested, enforced, in the kernel, measured in both directions, heartbeats kept."""
    rows = [_link_row(site, agent, one) for one in measured.links]
    return f"{aligned(_HEAD, rows)}\n{_bystander_line(measured)}"


def _bystander_line(measured: Measured) -> str:
    to, from_ = measured.bystander_to_kbit, measured.bystander_from_kbit
    return (
        f"  A bystander without a limit: {BYSTANDER_KBIT:,} kbit/s offered both ways, "
        f"{to:,.0f} and {from_:,.0f} arrived; {measured.bystander_lost} of {measured.bystander_sent:,} packets lost."
    )


def _link_row(site: DemoSite, agent: DemoAgent, one: LinkMeasurement) -> tuple[str, ...]:
    link = site.link(one.user_as)
    to_user, from_user = agent.kernel_rates_kbit(_interface_id(site, one))
    enforced = int(link["status"]["wanted_kbit"])
    return (
        one.user_as.label,
        f"{link['bandwidth_kbit']:,}",
        f"{enforced:,}",
        f"{_number(to_user)} / {_number(from_user)}",
        _measured(one.to_user_kbit, enforced),
        _measured(one.from_user_kbit, enforced),
        f"{one.heartbeats_arrived} of {one.heartbeats_sent}",
        site.words(one.user_as),
    )


def _number(value: int | None) -> str:
    return "none" if value is None else f"{value:,}"


def _measured(kbit: float, limit_kbit: int) -> str:
    if limit_kbit == 0:
        return f"{kbit:,.1f}"
    return f"{kbit:,.1f} ({kbit / limit_kbit - 1:+.2%})"


def aligned(head: Sequence[tuple[str, ...]], rows: Sequence[tuple[str, ...]]) -> str:
    lines: list[tuple[str, ...]] = [*zip(*head, strict=True), *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]

    def show(line: tuple[str, ...]) -> str:
        first = line[0].ljust(widths[0])
        middle = [cell.rjust(width) for cell, width in zip(line[1:-1], widths[1:-1], strict=True)]
        return "  " + "  ".join([first, *middle, line[-1]]).rstrip()

    shown = [show(line) for line in lines]
    head_lines = len(head[0])
    rule = "  " + "-" * (max(map(len, shown)) - 2)
    return "\n".join([*(line for line in shown[:head_lines] if line.strip()), rule, *shown[head_lines:]])


def judge(site: DemoSite, measured: Measured) -> list[Verdict]:
    """The claims of one measurement."""
    verdicts = []
    for one in measured.links:
        limit_kbit = int(site.status(one.user_as)["wanted_kbit"])
        name = one.user_as.label
        directions = (("to", one.to_user_kbit, one.to_user_beats), ("from", one.from_user_kbit, one.from_user_beats))
        for direction, kbit, beats in directions:
            if limit_kbit == 0:
                verdicts.append(
                    Verdict(f"{name}: nothing passes {direction} the user AS", kbit == 0 and beats.received == 0)
                )
                continue
            near = abs(kbit / limit_kbit - 1) <= RATE_TOLERANCE
            verdicts.append(Verdict(f"{name}: {kbit:,.1f} kbit/s {direction} the user AS, limit {limit_kbit:,}", near))
            verdicts.append(Verdict(f"{name}: three heartbeats never missed {direction} the user AS", beats.downs == 0))
        if limit_kbit:
            every = one.heartbeats_arrived == one.heartbeats_sent
            verdicts.append(Verdict(f"{name}: {one.heartbeats_arrived} of {one.heartbeats_sent} heartbeats", every))
    allowed = UNLIMITED_LOSS_TOLERANCE * measured.bystander_sent
    claim = f"bystander: {measured.bystander_lost} of {measured.bystander_sent:,} packets lost"
    verdicts.append(Verdict(claim, measured.bystander_sent > 0 and measured.bystander_lost <= allowed))
    return verdicts


def judge_idle(agent: DemoAgent) -> Verdict:
    """A further cycle on the same configuration must write nothing."""
    writes = agent.planned_writes()
    print(f"  A further pass of the limiter would make {writes} writes to the kernel.")
    return Verdict(f"second pass: {writes} writes", writes == 0)


def judge_watch(user_as: UserAs, watch: dict[str, Any]) -> Verdict:
    """Who sends far above the limit is told that the link was full."""
    text = watch["text"].replace("\N{NO-BREAK SPACE}", " ")
    print(f"  {user_as.label} watched the link meanwhile:\n    {text}")
    return Verdict(f"watch of {user_as.label}: {text}", watch["verdict"]["code"] == "full")


def judge_test(user_as: UserAs, code: int, said: str) -> Verdict:
    """What `scionlab-bw test` printed on the host of the AS; the last line is the verdict."""
    lines = said.strip().splitlines()
    print("\n".join(fill(line, 116, initial_indent="  ", subsequent_indent="    ") for line in lines))
    return Verdict(f"test of {user_as.label}: {lines[-1] if lines else 'nothing was printed'}", code == 0)


_TESTS_HEAD = (("tests of", ""), ("tool", ""), ("to user AS", "verdict"), ("from user AS", "verdict"))


def tests_table(user_as: UserAs, tests: Sequence[dict[str, Any]]) -> str:
    """What watches and tests of one link found, as the REST API shows them."""
    rows = []
    for one in tests:
        show = _watched if one["tool"] == "watch" else _tested
        verdict = one["verdict"] or one["sending_verdict"] or {}
        sides = [verdict.get(name) for name in ("to_user", "from_user")]
        rows.append((user_as.label, one["tool"], *("no result" if side is None else show(side) for side in sides)))
    return aligned(_TESTS_HEAD, rows)


def _watched(side: dict[str, Any]) -> str:
    dropped = side["dropped_percent"] or 0
    return f"full for {side['full_s']} of {side['measured_s']} s, {dropped:.0f} % dropped"


def _tested(side: dict[str, Any]) -> str:
    rates = (f"{one['received_kbit'] or 0:,.0f} of {one['limits_kbit'][0]:,} kbit/s" for one in side["steps"])
    return ", ".join([side["code"].replace("_", " "), *rates])


def change_line(user_as: UserAs, kbit: int, took_s: float) -> str:
    """How long a change took from Save to the kernel."""
    return f"  {user_as.label}: the kernel has {kbit:,} kbit/s in both directions {took_s:.2f} s after Save"


def judge_changes(took_s: Sequence[float], allowed_s: float) -> Verdict:
    """The agent's question waits at the service, so a change must not wait for a poll."""
    middle_s = statistics.median(took_s)
    print(f"  Median from Save to the kernel: {middle_s:.2f} s. The service held the agent's poll open until then.")
    return Verdict(f"Save to the kernel: median {middle_s:.2f} s, allowed {allowed_s:g} s", middle_s < allowed_s)


_SHARE_HEAD = (
    ("user AS", ""),
    ("limit", "kbit/s"),
    ("share", "kbit/s"),
    ("to user AS", "kbit/s L2"),
    ("from user AS", "kbit/s L2"),
    ("heartbeats", "of sent"),
)


def _shares(site: DemoSite, measured: Measured, total_kbit: int) -> list[tuple[LinkMeasurement, int, float]]:
    """Each link, its limit, and its part of the total: all of them send more than that."""
    limits = [int(site.status(one.user_as)["wanted_kbit"]) for one in measured.links]
    return [(one, limit, total_kbit * limit / sum(limits)) for one, limit in zip(measured.links, limits, strict=True)]


def total_text(site: DemoSite, measured: Measured, total_kbit: int) -> str:
    """What each link got of the total, and all of them together."""
    rows = [
        (
            one.user_as.label,
            f"{limit:,}",
            f"{share:,.0f}",
            f"{one.to_user_kbit:,.1f} ({one.to_user_kbit / share - 1:+.2%})",
            f"{one.from_user_kbit:,.1f} ({one.from_user_kbit / share - 1:+.2%})",
            f"{one.heartbeats_arrived} of {one.heartbeats_sent}",
        )
        for one, limit, share in _shares(site, measured, total_kbit)
    ]
    to, from_ = (sum(getattr(one, name) for one in measured.links) for name in ("to_user_kbit", "from_user_kbit"))
    said = site.status(measured.links[0].user_as)["total"]["text"]
    together = f"  Together {to:,.0f} kbit/s to the user ASes and {from_:,.0f} from them."
    return f"{aligned(_SHARE_HEAD, rows)}\n{together}\n  The site says: {said}"


def judge_total(site: DemoSite, measured: Measured, total_kbit: int) -> list[Verdict]:
    verdicts = []
    for one, _, share in _shares(site, measured, total_kbit):
        name = one.user_as.label
        for direction, kbit in (("to", one.to_user_kbit), ("from", one.from_user_kbit)):
            claim = f"{name}: {kbit:,.1f} kbit/s {direction} the user AS, share of the total {share:,.0f}"
            verdicts.append(Verdict(claim, abs(kbit / share - 1) <= SHARE_TOLERANCE))
        every = one.heartbeats_arrived == one.heartbeats_sent
        claim = f"{name}: {one.heartbeats_arrived} of {one.heartbeats_sent} heartbeats below the total"
        verdicts.append(Verdict(claim, every))
    return verdicts


def observed_text(site: DemoSite, agent: DemoAgent, measured: Measured, counted: int) -> str:
    """What arrived, what the site says, and the link's rows of `show`. `counted`: packets above the limit."""
    (one,) = measured.links
    limit_kbit = int(site.status(one.user_as)["wanted_kbit"])
    arrived = f"{one.to_user_kbit:,.0f} arrived at the user AS, {one.from_user_kbit:,.0f} from it"
    return "\n".join(
        [
            f"  Limit {limit_kbit:,} kbit/s, {one.user_as.offered_kbit:,} offered each way: {arrived};",
            f"  {one.lost:,} of {one.sent:,} packets lost, {counted:,} counted as above the limit.",
            f"  The site says: {site.status(one.user_as)['text']}",
            "  `scionlab-bw-limiter show`, which counts since the link had its first limit:",
            *(f"    {line}" for line in agent.shown(_interface_id(site, one))),
        ]
    )


def judge_observed(site: DemoSite, agent: DemoAgent, measured: Measured, counted: int) -> list[Verdict]:
    (one,) = measured.links
    name = one.user_as.label
    lost = f"{name}, observed: {one.lost:,} of {one.sent:,} packets lost"
    above = 1 - int(site.status(one.user_as)["wanted_kbit"]) / one.user_as.offered_kbit
    said = " ".join(agent.shown(_interface_id(site, one)))
    return [
        Verdict(lost, one.sent > 0 and one.lost <= UNLIMITED_LOSS_TOLERANCE * one.sent),
        Verdict(
            f"{name}, observed: {counted:,} of {one.sent:,} packets counted as above the limit",
            abs(counted / one.sent - above) <= COUNTED_TOLERANCE,
        ),
        Verdict(f'{name}: `show` says "observed"', "observed" in said),
        Verdict(f'{name}: the page says "Observed"', "Observed" in site.words(one.user_as)),
    ]


def _interface_id(site: DemoSite, one: LinkMeasurement) -> int:
    return int(site.link(one.user_as)["attachment_point_interface_id"])


def summary(verdicts: Sequence[Verdict]) -> str:
    """The end of the story: how many claims held, and each that did not."""
    failed = [verdict.claim for verdict in verdicts if not verdict.holds]
    tolerance = f"{RATE_TOLERANCE:.0%}"
    lines = [
        "",
        "  Figures are L2: bytes of the Ethernet frame without its checksum, as HTB counts them; 1472 bytes of payload",
        "  over IPv4 are 1514 of them. Rates are those at the receiver, from 1 s after the start until sending ends.",
        "",
    ]
    if failed:
        lines += [f"{len(failed)} of {len(verdicts)} checks FAILED:", *(f"  - {claim}" for claim in failed)]
    else:
        lines.append(
            f"All {len(verdicts)} checks passed: each limit within {tolerance} both ways, every heartbeat, the "
            "bystander,\nthe time from Save to the kernel, the total, and the observed link."
        )
    return "\n".join(lines)


def keep_open_text(port: int) -> str:
    """Where to look and who to be."""
    owners = ", ".join(sorted({user_as.owner for user_as in USER_ASES}))
    return (
        f"\nThe site is at http://127.0.0.1:{port} until Ctrl-C. Password of all accounts: {PASSWORD}\n"
        f"  users: {owners}\n  administrator: {ADMIN} (http://127.0.0.1:{port}/admin/)"
    )
