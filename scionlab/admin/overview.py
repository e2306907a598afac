"""The first page: how many Links are enforced, how many are not and why, and who is silent."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from django.urls import reverse
from django.utils.safestring import SafeString

from bandwidth_config import format_kbit
from scionlab import selectors
from scionlab.admin.base import badge
from scionlab.admin.host import last_seen, receipt_of
from scionlab.admin.link import STAGES, USER_LINKS, with_status_rows
from scionlab.admin.policy import with_usage
from scionlab.models import AttachmentPoint, BandwidthPolicy, Link


@dataclass(frozen=True)
class Count:
    """So many Links are in this stage; `url` lists them."""

    badge: SafeString
    count: int
    url: str


@dataclass(frozen=True)
class Point:
    """An attachment point, in the words of the first page."""

    ap: AttachmentPoint
    url: str
    agent: SafeString
    problems: int
    maximum: str
    active_links: int
    clamped_links: int
    sum_kbit: str


@dataclass(frozen=True)
class Overview:
    policy: BandwidthPolicy
    site_default: str
    stages: list[Count]
    total: int
    clamped: int
    points: list[Point]


def overview(*, now: datetime) -> Overview:
    """Three SQL statements, whatever there is."""
    links = list(with_status_rows(Link.objects.filter(USER_LINKS).order_by()))
    statuses = [selectors.link_status(link, now=now) for link in links]
    counts: Counter[str] = Counter(status.stage for status in statuses)
    related = ("AS__isd", "host__receipt")
    aps = with_usage(AttachmentPoint.objects.select_related(*related)).order_by("AS__isd__isd_id", "AS__as_id")
    policy = selectors.policy()
    return Overview(
        policy=policy,
        site_default=format_kbit(policy.default_bandwidth_kbit),
        stages=[
            Count(badge(kind, words), counts[stage], reverse("admin:scionlab_link_changelist", query={"stage": stage}))
            for stage, (kind, words) in STAGES.items()
            if counts[stage]
        ],
        total=len(links),
        clamped=sum(
            link.active and status.requested_kbit > status.wanted_kbit
            for link, status in zip(links, statuses, strict=True)
        ),
        points=[_point(ap, now) for ap in aps],
    )


def _point(ap: AttachmentPoint, now: datetime) -> Point:
    usage: dict[str, int] = {name: getattr(ap, name) for name in ("active_links", "clamped_links", "sum_kbit")}
    receipt = receipt_of(ap.host)
    return Point(
        ap=ap,
        url=reverse("admin:scionlab_attachmentpoint_change", args=[ap.pk]),
        agent=last_seen(ap.host, now=now),
        problems=len(receipt.problems) if receipt is not None else 0,
        maximum=format_kbit(ap.maximum_kbit),
        active_links=usage["active_links"],
        clamped_links=usage["clamped_links"],
        sum_kbit=format_kbit(usage["sum_kbit"]),
    )
