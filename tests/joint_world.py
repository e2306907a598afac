"""User ASes with several Links that are enforced, and results of the parts of a joint test as both ends report them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from django.utils import timezone

from scionlab.links.attachments import AttachmentSpec
from scionlab.models import (
    Host,
    HostReceipt,
    JointTest,
    Link,
    LinkEnforcement,
    LinkTest,
    TestResult,
    TimedLimit,
    User,
    UserAS,
)
from station.plan import frame_bytes
from tests.factories import HostReceiptFactory, LinkEnforcementFactory, attach

Rate = Callable[[int], int]  # kbit/s in the second since the beginning of a test


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


def measured(joint: JointTest, **more: int) -> None:
    """Each Link passes its limit; a congested one keeps to its steps a second late."""
    steps = {one.link_id: one for one in joint.timed_limits.all()}
    for part in joint.parts.select_related("link"):
        standing = part.link.enforced.to_user_kbit
        timed = steps.get(part.link_id)

        def limit(second: int, part: LinkTest = part, timed: TimedLimit | None = timed, kbit: int = standing) -> int:
            moment = part.begins_at + timedelta(seconds=second)
            if timed is None or not timed.begins_at <= moment < timed.ends_at:
                return kbit
            return timed.limits.at(moment).to_user_kbit

        found(part, limit=limit, passed=lambda second, limit=limit: limit(max(0, second - 1)), **more)


def found(test: LinkTest, *, limit: Rate, passed: Rate, arrived: int | None = None) -> None:
    """What both ends report: each phase of `test` began half a second late, the class passed so much of what it
    dropped a third of, and `arrived` kbit/s came to the other end (None: what passed)."""
    began_ms = round(test.begins_at.timestamp() * 1000)
    frame = frame_bytes(1452, 4)
    phases: dict[str, list[dict[str, Any]]] = {"ap": [], "user": []}
    begins_s = 0.5
    windows = {}
    for planned in test.phases or ():
        seconds = planned["duration_ms"] // 1000
        windows[planned["direction"]] = range(int(begins_s), int(begins_s) + seconds + 1)
        rate = arrived if arrived is not None else passed(int(begins_s) + 1)
        for side in ("ap", "user"):
            phases[side].append(_phase(side, planned, began_ms + round(begins_s * 1000), rate, frame))
        begins_s += seconds + 1
    samples = []
    counted = {"to_user": [0, 0, 0, 0], "from_user": [0, 0, 0, 0]}
    for second in range(test.duration_s + 1):
        row: list[Any] = [began_ms + second * 1000, second * 1000, True]
        for direction in ("to_user", "from_user"):
            row.append(["0" * 16, limit(second), *counted[direction]])
            if second in windows.get(direction, ()):
                count = passed(second) * 1000 // (8 * frame)
                counted[direction] = [
                    value + more
                    for value, more in zip(
                        counted[direction], [count * frame, count, count // 2 * frame, count // 2], strict=True
                    )
                ]
        samples.append(row)
    values = {"received_at": test.ends_at, "is_final": True}
    for side, report in phases.items():
        content = {"schema": 1, "side": side, "outcome": "completed", "why": "", "peer": None, "phases": report}
        TestResult.objects.create(
            test=test, side=side, samples=samples if side == "ap" else [], report=content, **values
        )
    LinkTest.objects.filter(pk=test.pk).update(armed_at=test.begins_at)


def _phase(side: str, planned: Mapping[str, Any], begins_at_ms: int, kbit: int, frame: int) -> dict[str, Any]:
    seconds = planned["duration_ms"] // 1000
    sends = planned["direction"] == ("to_user" if side == "ap" else "from_user")
    sent, received = planned["kbit"] * 125 // frame, kbit * 125 // frame
    row = [sent, sent, 0, 0] if sends else [0, 0, received, received]
    keys = ("number", "kind", "direction", "kbit", "payload_bytes")
    zeros = dict.fromkeys(("sent_bytes", "received_bytes", "lost_packets", "reordered_packets"), 0)
    counts = {"sent_packets": sent * seconds * sends, "received_packets": received * seconds * (not sends)}
    known = {key: planned[key] for key in keys}
    return {
        **known,
        **zeros,
        **counts,
        "begins_at_ms": begins_at_ms,
        "seconds": [row] * seconds,
        "rtt_us": None,
        "mtu": None,
    }
