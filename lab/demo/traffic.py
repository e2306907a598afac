"""One measurement of the demo: every link in both directions at once, heartbeats on each, and a bystander."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lab.demo.world import AP_IPV4, AP_IPV6, BYSTANDER_IP, BYSTANDER_KBIT, UserAs, World
from measuring.judge import HeartbeatReport
from measuring.netns import Namespace
from measuring.traffic import Endpoint, Results, data, ends, heartbeats, run_traffic

_BYSTANDER_PORT = 40_000  # no link has it
_FULL_FRAME_BYTES = {False: 1472, True: 1452}  # the largest UDP payload that fits an MTU of 1500, by "is IPv6"


@dataclass(frozen=True)
class LinkMeasurement:
    """One link; rates are L2 [kbit/s], data and heartbeats together, as HTB counts them."""

    user_as: UserAs
    to_user_kbit: float
    from_user_kbit: float
    heartbeats_sent: int
    heartbeats_arrived: int
    to_user_beats: HeartbeatReport
    from_user_beats: HeartbeatReport
    sent: int  # data packets of both directions
    lost: int


@dataclass(frozen=True)
class Measured:
    """All of one run."""

    links: tuple[LinkMeasurement, ...]
    bystander_to_kbit: float
    bystander_from_kbit: float
    bystander_sent: int
    bystander_lost: int


def measure(world: World, user_ases: Iterable[UserAs], *, seconds: float, ap_ports: dict[str, int]) -> Measured:
    """Runs for `seconds` and a little more. `ap_ports`: the AP's own UDP port of each user AS's link, by label."""
    chosen = tuple(user_ases)
    plan: dict[Namespace, list[Endpoint]] = {world.ap: []}
    for user_as in chosen:
        streams = (heartbeats(), data(user_as.offered_kbit, _FULL_FRAME_BYTES[user_as.is_ipv6]))
        ap_ip = AP_IPV6 if user_as.is_ipv6 else AP_IPV4
        at_ap, at_user = ends(user_as.label, (ap_ip, ap_ports[user_as.label]), (user_as.ip, user_as.port), streams)
        plan[world.ap].append(at_ap)
        plan.setdefault(world.users[user_as.host_name], []).append(at_user)
    at_ap, at_bystander = ends(
        "bystander", (AP_IPV4, _BYSTANDER_PORT), (BYSTANDER_IP, _BYSTANDER_PORT), (data(BYSTANDER_KBIT),)
    )
    plan[world.ap].append(at_ap)
    plan[world.bystander] = [at_bystander]
    results = run_traffic(plan, seconds=seconds)
    both_ends = (world.ap, world.bystander)
    return Measured(
        links=tuple(_link(results, world, user_as) for user_as in chosen),
        bystander_to_kbit=results.rate_kbit(world.bystander, "bystander"),
        bystander_from_kbit=results.rate_kbit(world.ap, "bystander"),
        bystander_sent=sum(results.at(end, "bystander").sent() for end in both_ends),
        bystander_lost=sum(results.lost(end, "bystander") for end in both_ends),
    )


def _link(results: Results, world: World, user_as: UserAs) -> LinkMeasurement:
    user, name = world.users[user_as.host_name], user_as.label
    both_ends = (world.ap, user)
    return LinkMeasurement(
        user_as=user_as,
        to_user_kbit=results.rate_kbit(user, name),
        from_user_kbit=results.rate_kbit(world.ap, name),
        heartbeats_sent=sum(results.at(end, name).sent("heartbeat") for end in both_ends),
        heartbeats_arrived=sum(len(results.at(end, name).heartbeats) for end in both_ends),
        to_user_beats=results.heartbeats(user, name),
        from_user_beats=results.heartbeats(world.ap, name),
        sent=sum(results.at(end, name).sent() for end in both_ends),
        lost=sum(results.lost(end, name) for end in both_ends),
    )
