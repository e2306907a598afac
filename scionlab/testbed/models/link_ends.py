"""Links from the perspective of one host, read as plain values for its configuration.

Starts at the interfaces of the host, so that `Host` can use it without importing Links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.apps import apps
from django.conf import settings
from django.db import models

from bandwidth_config import MAX_BANDWIDTH_KBIT, TimedLimits
from contract.link_rules import with_exception
from contract.scion_files import ConfigLinkEnd
from scionlab.platform.notation.isd_as import format_isd_as
from scionlab.testbed.models.link_settings import Raises, names_raising
from scionlab.testbed.models.timed_limit import timed_of

Tests = tuple[Mapping[str, str | int], ...]
# What a border router and a limiter match a Link by, and its limits: fields of a `LocalLinkEnd`, by name.
Geometry = dict[str, Any]


class LinkType(models.TextChoices):
    PROVIDER = "provider", "provider"
    CORE = "core", "core"
    PEER = "peer", "peer"


@dataclass(frozen=True, kw_only=True)
class LocalLinkEnd(ConfigLinkEnd):
    """An active Link from the perspective of one of its hosts. Its settings are its own: those of the whole attachment
    point are not in link_info.json."""

    link_id: int
    exception_kbit: int | None


IN_DOCUMENT = names_raising(Raises.DOCUMENT, Raises.LIMIT)


class HeldLinkEnd(models.Model):
    """A Link of which a change waits for a restart of the host (`testbed.versions.restarts`): its end as the host has
    it, a `Geometry`; None if the host does not have it yet. The Link may be deleted already."""

    host = models.ForeignKey("testbed.Host", on_delete=models.CASCADE, related_name="held_link_ends")
    link_id = models.BigIntegerField()
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    end = models.JSONField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["host", "link_id"], name="held_once_per_host_and_link")]

    def __str__(self) -> str:
        return f"link {self.link_id} at host {self.host_id}"


class RestartBudget(models.Model):
    """When the budget of a person for restarts of a host is full again (`testbed.versions.restarts`)."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    host = models.ForeignKey("testbed.Host", on_delete=models.CASCADE, related_name="+")
    full_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "host"], name="restart_budget_once_per_user_and_host")]

    def __str__(self) -> str:
        return f"restarts of host {self.host_id} by {self.user_id}"


def local_link_ends(host_id: int, interfaces: models.QuerySet[Any]) -> list[LocalLinkEnd]:
    """The active Links of a host with these interfaces, ordered by id; four SQL statements for any number. Read as
    plain values, which is four times as fast as objects for thousands of Links."""
    timed, tests = timed_of(host_id), _tests_of(host_id)
    ends = [_end(row, timed, tests, is_a=is_a) for is_a in (True, False) for row in _rows(interfaces, is_a=is_a)]
    return sorted(ends, key=lambda end: end.interface_id)


# What other apps add to the Links of a host: their "tests" in link_info.json, by Link.
TESTS: list[Callable[[int], Mapping[int, Tests]]] = []


def _tests_of(host_id: int) -> Mapping[int, Tests]:
    found: dict[int, Tests] = {}
    for read in TESTS:
        found |= read(host_id)
    return found


def _rows(interfaces: models.QuerySet[Any], *, is_a: bool) -> models.QuerySet[Any, dict[str, Any]]:
    link, far = ("link_as_a", "link_as_a__interface_b") if is_a else ("link_as_b", "link_as_b__interface_a")
    provider, customer = ("AS", f"{far}__AS") if is_a else (f"{far}__AS", "AS")
    of_link = ("type", "bandwidth_kbit", "from_user_kbit", "exception_kbit", "mtu", *IN_DOCUMENT)
    return (
        interfaces.filter(**{f"{link}__active": True})
        .order_by()
        .values(
            "interface_id",
            "bind_ip",
            "bind_port",
            **{name: models.F(f"{link}__{name}") for name in of_link},
            link_id=models.F(f"{link}__pk"),
            router=models.F("border_router__number"),
            local_ip=models.F("public_ip"),
            local_port=models.F("public_port"),
            local_vpn_client=models.F("vpn_client_id"),
            remote_isd=models.F(f"{far}__AS__isd__isd_id"),
            remote_as=models.F(f"{far}__AS__as_id"),
            remote_ip=models.F(f"{far}__public_ip"),
            remote_port=models.F(f"{far}__public_port"),
            remote_vpn_client=models.F(f"{far}__vpn_client_id"),
            customer=models.F(f"{customer}__useras__pk"),
            maximum_kbit=models.F(f"{provider}__attachment_point__maximum_kbit"),
        )
    )


def _end(
    row: dict[str, Any],
    timed: Mapping[int, tuple[TimedLimits, ...]],
    tests: Mapping[int, tuple[Mapping[str, str | int], ...]],
    *,
    is_a: bool,
) -> LocalLinkEnd:
    is_provider = row["type"] == LinkType.PROVIDER and is_a
    is_limited = is_provider and row["customer"] is not None and row["maximum_kbit"] is not None
    provider_view = "CHILD" if is_provider else "PARENT"
    return LocalLinkEnd(
        link_id=row["link_id"],
        interface_id=row["interface_id"],
        exception_kbit=row["exception_kbit"],
        remote_isd_as=format_isd_as(row["remote_isd"], row["remote_as"]),
        is_limited=is_limited,
        bandwidth_kbit=row["bandwidth_kbit"],
        from_user_kbit=row["from_user_kbit"],
        timed=timed.get(row["link_id"], ()) if is_limited else (),
        tests=tests.get(row["link_id"], ()) if is_limited else (),
        maximum_kbit=with_exception(row["maximum_kbit"], row["exception_kbit"]) if is_limited else MAX_BANDWIDTH_KBIT,
        remote_ip=row["remote_ip"],
        remote_port=row["remote_port"],
        local_ip=row["bind_ip"] or row["local_ip"],
        local_port=row["bind_port"] or row["local_port"],
        is_vpn=row["local_vpn_client"] is not None or row["remote_vpn_client"] is not None,
        public_port=row["local_port"],
        mtu=row["mtu"],
        link_to={LinkType.CORE: "CORE", LinkType.PEER: "PEER"}.get(row["type"], provider_view),
        border_router=row["router"],
        **({name: row[name] for name in IN_DOCUMENT} if is_limited else {}),
    )


# What changes with L or needs no restart comes from the Link while it is active, even if its end is held.
STANDING = {"bandwidth_kbit", "from_user_kbit", "exception_kbit", *IN_DOCUMENT}


def with_held_ends(host_id: int, ends: Iterable[LocalLinkEnd]) -> list[LocalLinkEnd]:
    """These ends of an attachment point's host, those of which a change waits as the host has them: moved, removed or
    deactivated ones where they were, new ones not at all. Limits of an active Link are the newest."""
    held = dict(HeldLinkEnd.objects.filter(host=host_id).values_list("link_id", "end"))
    found = [end for end in ends if end.link_id not in held]
    active = {end.link_id: end for end in ends}
    maximum_kbit = (
        apps.get_model("testbed", "AttachmentPoint")
        .objects.filter(host=host_id)
        .values_list("maximum_kbit", flat=True)
        .first()
    )
    for link_id, values in held.items():
        if values is None:
            continue
        if link_id in active:
            moved = {name: value for name, value in values.items() if name not in STANDING}
            found.append(replace(active[link_id], **moved))
            continue
        highest = None if maximum_kbit is None else with_exception(maximum_kbit, values["exception_kbit"])
        found.append(
            LocalLinkEnd(
                **values,
                link_id=link_id,
                is_limited=highest is not None,
                maximum_kbit=MAX_BANDWIDTH_KBIT if highest is None else highest,
            )
        )
    return sorted(found, key=lambda end: end.interface_id)
