"""User ASes with several Links that are enforced, and results of the parts of a joint test as both ends report them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils import timezone

from scionlab.accounts.models import User
from scionlab.enforcement.models import HostReceipt, LinkEnforcement
from scionlab.linktests.models import JointTest, LinkTest, TestResult
from scionlab.testbed.models import Host, Link, UserAS
from scionlab.user_ases.attachments import AttachmentSpec
from station.plan import frame_bytes
from tests.factories import HostReceiptFactory, LinkEnforcementFactory, attach

FRAME = frame_bytes(1452, 4)


def enforced(owner: User, *specs: AttachmentSpec, label: str = "") -> UserAS:
    """An AS with these Links. The agents of their attachment points report now, and let tests send."""
    user_as = attach(owner, *specs, label=label)
    confirm()
    return UserAS.objects.get(pk=user_as.pk)


def confirm() -> None:
    """Each attachment point has what it is to have."""
    HostReceipt.objects.all().delete()
    LinkEnforcement.objects.all().delete()
    now = timezone.now()
    hosts = Host.objects.filter(attachment_point__isnull=False)
    Host.objects.filter(pk__in=hosts).update(last_seen_at=now, delivered_at=now)
    for host in hosts:
        HostReceiptFactory(host=host, received_at=now, says_tests=True, sending_tests="on")
    for link in Link.objects.filter(interface_a__host__in=hosts):
        LinkEnforcementFactory(
            link=link,
            received_at=now,
            to_user_rate_kbit=link.enforced.to_user_kbit,
            from_user_rate_kbit=link.enforced.from_user_kbit,
        )


def links_of(user_as: UserAS) -> list[Link]:
    return list(Link.objects.filter(interface_b__AS=user_as.pk).order_by("pk"))


def measured(joint: JointTest, *, arrived: int | None = None) -> None:
    """Each Link passes its limit; `arrived` kbit/s of it come to the other end (None: all)."""
    for part in joint.parts.select_related("link"):
        _report(part, part.link.enforced.to_user_kbit, arrived)


def _report(test: LinkTest, limit_kbit: int, arrived: int | None) -> None:
    """What both ends report: each phase of `test` began half a second late, and the class passed its limit of what was
    sent."""
    began_ms = round(test.begins_at.timestamp() * 1000)
    phases: dict[str, list[dict[str, Any]]] = {"ap": [], "user": []}
    sent = {planned["direction"]: planned["kbit"] * 125 // FRAME for planned in test.phases or ()}
    count = limit_kbit * 125 // FRAME  # that pass in a second
    windows, begins_s = {}, 0
    for planned in test.phases or ():
        length_s = planned["duration_ms"] // 1000
        windows[planned["direction"]] = range(begins_s, begins_s + length_s + 1)
        came = [count if arrived is None else arrived * 125 // FRAME] * length_s
        for side, reports in phases.items():
            reports.append(_phase(side, planned, began_ms + begins_s * 1000 + 500, came))
        begins_s += length_s + 1
    samples = []
    counted = {"to_user": [0, 0], "from_user": [0, 0]}  # packets
    for second in range(test.duration_s + 1):
        both = [["0" * 16, limit_kbit, p * FRAME, p, d * FRAME, d, 0] for p, d in counted.values()]
        samples.append([began_ms + second * 1000, second * 1000, True, *both])
        for direction, seconds in windows.items():
            if second in seconds:
                before = counted[direction]
                counted[direction] = [before[0] + count, before[1] + sent[direction] - count]
    for side, reports in phases.items():
        report = {"schema": 1, "side": side, "outcome": "completed", "why": "", "peer": None, "phases": reports}
        rows = samples if side == "ap" else []
        TestResult.objects.create(
            test=test, side=side, samples=rows, report=report, received_at=test.ends_at, is_final=True
        )
    LinkTest.objects.filter(pk=test.pk).update(armed_at=test.begins_at)


def _phase(side: str, planned: Mapping[str, Any], begins_at_ms: int, arrived: list[int]) -> dict[str, Any]:
    """`arrived`: packets of each second."""
    sends = planned["direction"] == ("to_user" if side == "ap" else "from_user")
    sent = planned["kbit"] * 125 // FRAME
    counts = {"sent_packets": sent * len(arrived) * sends, "received_packets": sum(arrived) * (not sends)}
    zeros = dict.fromkeys(("sent_bytes", "received_bytes", "lost_packets", "reordered_packets"), 0)
    known = {key: planned[key] for key in ("number", "kind", "direction", "kbit", "payload_bytes")}
    seconds = [[sent, sent, 0, 0] if sends else [0, 0, one, one] for one in arrived]
    return {**known, **zeros, **counts, "begins_at_ms": begins_at_ms, "seconds": seconds, "rtt_us": None, "mtu": None}
