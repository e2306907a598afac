"""What tests of `manage.py import_scionlab` share. Keys of hosts and Links are those of `tests.upstream_dump.small`."""

from __future__ import annotations

from typing import Any

from scionlab.accounts.models import Mail, User
from scionlab.importer.importer import import_scionlab
from scionlab.importer.network import read_network
from scionlab.importer.report import Report
from scionlab.platform.notation.isd_as import parse_as_id
from scionlab.testbed.models import (
    AS,
    ISD,
    VPN,
    AttachmentPoint,
    BandwidthChange,
    BorderRouter,
    Host,
    InstalledFiles,
    Interface,
    Link,
    UserAS,
    VPNClient,
)
from tests.support.counters import Counters
from tests.upstream_dump import Dump

KBIT = 500
MODELS = (User, ISD, AS, UserAS, Host, InstalledFiles, BorderRouter, VPN, AttachmentPoint, VPNClient, Interface, Link)


def run(dump: Dump, **options: Any) -> Report:
    return import_scionlab(network=read_network(dump.content()), **{"kbit": KBIT, **options})


def everything() -> list[Any]:
    """All rows, and what was noted of them."""
    return [list(model._default_manager.order_by("pk").values()) for model in (*MODELS, BandwidthChange, Mail)]


def counted(report: Report) -> dict[str, tuple[int, int, int]]:
    """Made, changed and same, of the kinds of which there are any."""
    found = {kind: (count.made, count.changed, count.same) for kind, count in report.counts.items()}
    return {kind: numbers for kind, numbers in found.items() if any(numbers)}


def host_of(pk: int) -> Host:
    return Host.objects.get(uid=f"{pk:032x}")


def link_at(as_text: str, interface_id: int) -> Link:
    """By its end A."""
    return Link.objects.get(interface_a__AS__as_id=parse_as_id(as_text), interface_a__interface_id=interface_id)


def risen(counters: Counters) -> dict[int, tuple[int, int]]:
    """By the host's key in the dump."""
    return {int(host.uid, 16): numbers for host, numbers in counters.risen().items()}
