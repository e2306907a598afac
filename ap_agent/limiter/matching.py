"""Keys of each link's packets on this host: links of a document -> wanted state of the kernel. Pure.

A link whose packets cannot be identified is a problem of that link; the others are enforced anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ap_agent.common.problem import Problem
from ap_agent.common.settings import Settings
from ap_agent.dataplane.devices import Device, Host, lowest_devices
from ap_agent.dataplane.program import Key
from ap_agent.dataplane.wanted import LimitedLink, Wanted
from bandwidth_config import Limits
from contract.link_info import LinkInfo
from contract.link_rules import IPAddress
from contract.link_tests import FIRST_TEST_PORT, TEST_LANES

Keys = tuple[Key, ...]
_NAMED = 5  # addresses in a message
_TEST_PORTS = range(FIRST_TEST_PORT, FIRST_TEST_PORT + TEST_LANES)


@dataclass(frozen=True)
class Matching:
    """`errors`: link -> why it is not enforced, or not as requested. Each is among `problems` too. `tests`: keys of
    tests that send, by link; they are among its keys in `wanted`. `alone` has the other keys of each link without
    errors that shares none, `barred` those of any link that a test could want."""

    wanted: Wanted
    errors: Mapping[int, str]
    problems: tuple[Problem, ...]
    tests: Mapping[int, Keys] = field(default_factory=dict)
    alone: Mapping[int, Keys] = field(default_factory=dict)
    barred: frozenset[Key] = frozenset()


class _NoKeyError(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def match(links: Mapping[int, LinkInfo], host: Host, settings: Settings, *, is_observe_only: bool = False) -> Matching:
    result = _Result()
    if _is_of_another_host(links.values(), host):
        result.refuse_host(links.values())
        return Matching(Wanted(), result.errors, tuple(result.problems))
    keys = result.keys_of([one for _, one in sorted(links.items()) if one.is_user_as], host, settings)
    limited: dict[int, LimitedLink] = {}
    alone: dict[int, Keys] = {}
    is_observing = is_observe_only or settings.observe_only
    for group in _groups(links, keys):
        winner, limits = _strictest(group)
        result.add_ambiguous(group, winner, limits)
        everywhere = tuple(dict.fromkeys(key for one in group for key in keys[one.interface_id]))
        is_observed = is_observing or all(one.is_observed for one in group)
        limited[winner.interface_id] = LimitedLink(winner.interface_id, everywhere, *limits, is_observed)
        if len(group) == 1 and winner.interface_id not in result.errors:
            alone[winner.interface_id] = everywhere
    # Without a link the host is left untouched.
    unmatched_kbit = settings.unmatched_kbit if limited and not is_observing else None
    wanted = Wanted(dict(sorted(limited.items())), unmatched_kbit, settings.interfaces)
    barred = frozenset(key for several in keys.values() for key in several if _is_like_a_tests(key))
    found = Matching(wanted, result.errors, tuple(result.problems), alone=alone, barred=barred)
    return _with_tests(found, links)


def _is_of_another_host(links: Iterable[LinkInfo], host: Host) -> bool:
    """Whether the links have local addresses, and none is here. (A document without them is that of no host.)"""
    local = {one.local_ip for one in links} - {None}
    return bool(local) and local.isdisjoint(host.addresses)


class Matcher:
    """Incremental `match`, for few changes among thousands of links; returns equal values. Unchanged results are the
    same objects, so that later comparisons are cheap."""

    def __init__(self) -> None:
        self._asked: tuple[Host, Settings, bool] | None = None
        self._links: Mapping[int, LinkInfo] = {}
        self._matching = Matching(Wanted(), {}, ())
        self._addresses_in_error: set[IPAddress] = set()

    def match(
        self, links: Mapping[int, LinkInfo], host: Host, settings: Settings, *, is_observe_only: bool = False
    ) -> Matching:
        asked = (host, settings, is_observe_only)
        changed = [link for number, link in links.items() if self._links.get(number) is not link]
        is_alike = asked == self._asked and len(links) == len(self._links) and all(map(self._has_keys_of, changed))
        if not is_alike:
            self._matching = match(links, host, settings, is_observe_only=is_observe_only)
            self._addresses_in_error = {links[number].remote_ip for number in self._matching.errors}
        elif changed:
            self._take_limits_of(changed, links, is_observe_only=is_observe_only or settings.observe_only)
        self._asked, self._links = asked, links
        return self._matching

    def _has_keys_of(self, link: LinkInfo) -> bool:
        """Whether only limits and tests of this link changed, without effect on others."""
        former = self._links.get(link.interface_id)
        is_alone = link.remote_ip not in self._addresses_in_error  # links in error share it with those they hit
        return former is not None and is_alone and _said_of_packets(former) == _said_of_packets(link)

    def _take_limits_of(
        self, changed: Iterable[LinkInfo], links: Mapping[int, LinkInfo], *, is_observe_only: bool
    ) -> None:
        before = self._matching
        found = {
            one.interface_id: LimitedLink(
                one.interface_id, before.alone[one.interface_id], *one.limits, is_observe_only or one.is_observed
            )
            for one in changed
            if one.is_user_as
        }
        self._matching = _with_tests(before, links, found)


def _said_of_packets(link: LinkInfo) -> tuple[object, ...]:
    return link.is_user_as, link.remote_ip, link.remote_port, link.local_ip, link.local_port


# --- tests that send ------------------------------------------------------------------------------------------------


def _is_like_a_tests(key: Key) -> bool:
    return key.local_port in _TEST_PORTS and key.remote_port is None and key.local is None


def _with_tests(
    before: Matching, links: Mapping[int, LinkInfo], changed: Mapping[int, LimitedLink] | None = None
) -> Matching:
    """With the keys of the tests of `links` instead of the previous ones, and these links changed."""
    limited = {**before.wanted.links, **(changed or {})}
    tests = _keys_of_tests(links, before, limited)
    for number in before.tests.keys() | tests.keys():
        keys = before.alone[number] + tests.get(number, ())
        if limited[number].keys != keys:
            limited[number] = limited[number]._replace(keys=keys)
    return replace(before, wanted=replace(before.wanted, links=limited), tests=tests)


def _keys_of_tests(
    links: Mapping[int, LinkInfo], matching: Matching, limited: Mapping[int, LimitedLink]
) -> dict[int, Keys]:
    """By link, with any remote port: behind a NAT it is unknown before the test. A test sends more than the limit, so
    only a link with a limit in force has one. A key that two links want is not used."""
    asked: dict[int, Keys] = {}
    for number, link in links.items():
        if not link.tests or number not in matching.alone:
            continue
        one = limited[number]
        if one.is_observed or not (one.to_user_kbit and one.from_user_kbit):
            continue
        ports = dict.fromkeys(test.port for test in link.tests if test.port is not None)
        asked[number] = tuple(
            dict.fromkeys(
                Key(key.remote, None, None, port, key.ifindex) for port in ports for key in matching.alone[number]
            )
        )
    times = Counter(key for keys in asked.values() for key in keys)
    return {
        number: keys
        for number, keys in asked.items()
        if keys and all(times[key] == 1 and key not in matching.barred for key in keys)
    }


# --- errors ---------------------------------------------------------------------------------------------------------


class _Result:
    def __init__(self) -> None:
        self.errors: dict[int, str] = {}
        self.problems: list[Problem] = []

    def _add(self, code: str, link: LinkInfo, message: str, in_error: Iterable[int]) -> None:
        self.problems.append(Problem(code, f"link {link.interface_id}", message))
        for number in in_error:
            self.errors.setdefault(number, message)

    def keys_of(self, links: Iterable[LinkInfo], host: Host, settings: Settings) -> dict[int, Keys]:
        """Keys of each link. Packets never carry a local address that this host lacks. Such a link is matched by the
        rest, so that its packets are limited whatever happened to the address, and has a problem: nobody knows whether
        they are its packets. If the rest is ambiguous it keeps its key: the address may come back."""
        found: dict[int, Keys] = {}
        reduced: dict[int, LinkInfo] = {}
        for link in links:
            is_here = link.local_ip is None or link.local_ip in host.addresses
            try:
                found[link.interface_id] = _keys(link, link.local_ip if is_here else None, host, settings)
            except _NoKeyError as exc:
                self._add(exc.code, link, exc.message, [link.interface_id])
                continue
            if not is_here:
                reduced[link.interface_id] = link
        times = Counter(key for keys in found.values() for key in keys) if reduced else {}
        for number, link in reduced.items():
            if any(times[key] > 1 for key in found[number]):
                found[number] = tuple(key._replace(local=link.local_ip) for key in found[number])
            message = (
                f"The local address {link.local_ip} of link {number} to {link.remote_ip} is not an address of this "
                "host; add the address, or correct the bind IP in the service."
            )
            self._add("local_address_missing", link, message, [number])
        return found

    def refuse_host(self, links: Iterable[LinkInfo]) -> None:
        """All links are those of another host."""
        several = sorted({str(one.local_ip) for one in links})
        message = (
            f"None of the local addresses of the links ({', '.join(several[:_NAMED])}) is an address of this host, so "
            "no link is limited: the configuration is that of another host. Enrol this host with its own token; behind "
            "NAT, set its bind IP in the service."
        )
        self.problems.append(Problem("wrong_host", "host", message))
        self.errors.update({one.interface_id: message for one in links if one.is_user_as})

    def add_ambiguous(self, group: list[LinkInfo], winner: LinkInfo, limits: Limits) -> None:
        first = group[0]
        for later in group[1:]:
            port = "every port" if later.remote_port is None else f"UDP port {later.remote_port}"
            message = (
                f"Links {first.interface_id} and {later.interface_id} match the same packets of "
                f"{later.remote_ip}, {port}; the stricter limit of {limits} (link {winner.interface_id}) is enforced "
                f"for both. Change the port of one of them."
            )
            in_error = {later.interface_id} | ({first.interface_id} if winner is not first else set())
            if winner.limits != limits:
                in_error.add(winner.interface_id)
            self._add("ambiguous_match", later, message, sorted(in_error))


def _groups(links: Mapping[int, LinkInfo], keys: Mapping[int, Keys]) -> list[list[LinkInfo]]:
    """Groups of links that share a key; mostly single ones."""
    group_of: dict[Key, list[LinkInfo]] = {}
    groups: list[list[LinkInfo]] = []
    for number, several in keys.items():
        group = next((group_of[key] for key in several if key in group_of), None)
        if group is None:
            group = []
            groups.append(group)
        group.append(links[number])
        for key in several:
            group_of.setdefault(key, group)
    return groups


def _strictest(group: list[LinkInfo]) -> tuple[LinkInfo, Limits]:
    """The enforced link, and its limits. Blocking is the strictest."""
    winner = min(group, key=lambda one: (one.bandwidth_kbit, one.interface_id))
    to_user, from_user = zip(*(one.limits for one in group), strict=True)
    return winner, Limits(min(to_user), min(from_user))


def _keys(link: LinkInfo, local_ip: IPAddress | None, host: Host, settings: Settings) -> Keys:
    remote = link.remote_ip
    if remote in host.addresses:
        message = (
            f"Link {link.interface_id} to {remote} cannot be limited because that is an address of this host; correct "
            "it in the user AS."
        )
        raise _NoKeyError("own_address", message)
    key = Key(remote, link.remote_port, local_ip, link.local_port)
    if remote.version == 4 or not remote.is_link_local:  # the program distinguishes interfaces only for fe80::/10
        return (key,)
    return tuple(key._replace(ifindex=one.ifindex) for one in _link_local_devices(link, host, settings))


def _link_local_devices(link: LinkInfo, host: Host, settings: Settings) -> tuple[Device, ...]:
    """The interface of a link-local address: by the local address, or a single configured one. Packets are classified
    on the lowest devices below it."""
    indexes = host.addresses.get(link.local_ip, frozenset()) if link.local_ip is not None else frozenset()
    names = [one.name for one in host.devices if one.ifindex in indexes]
    if len(names) != 1 and len(settings.interfaces) == 1:
        names = list(settings.interfaces)
    devices, _ = lowest_devices(host.devices, names[:1]) if len(names) == 1 else ((), ())
    if devices:
        return devices
    message = (
        f"Link {link.interface_id} has the link-local address {link.remote_ip}, and its interface is ambiguous; "
        f"give the link a local address of this host, or configure exactly one interface."
    )
    raise _NoKeyError("ambiguous_interface", message)
