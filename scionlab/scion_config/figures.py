"""Metrics of keys and certificates."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from django.db.models import Exists, Max, Min, OuterRef

from scionlab.platform.metrics.figures import Figure, seconds
from scionlab.scion_config.models import TRC, ASKeys, Certificate
from scionlab.testbed.models import Host
from scionlab.testbed.selectors import isds_of_others

_NAME: Final = "scionlab_trust_end_timestamp_seconds"


def _read(_now: datetime) -> Iterator[tuple[str, tuple[str, ...], float]]:
    others = isds_of_others()
    newest = TRC.objects.exclude(isd__in=others).order_by().values("isd").annotate(end=Max("not_after"))
    core = Certificate.objects.filter(replaced_at=None).exclude(isd__in=others)
    own = ASKeys.objects.filter(Exists(Host.objects.filter(AS=OuterRef("AS"), limits_only=False)))
    yield _NAME, ("trc",), seconds(newest.aggregate(first=Min("end"))["first"])
    yield _NAME, ("core",), seconds(core.aggregate(first=Min("not_after"))["first"])
    yield _NAME, ("as",), seconds(own.aggregate(first=Min("not_after"))["first"])


TRUST_END: Final = Figure(
    _NAME, "Earliest expiry of TRCs, certificates of core ASes and AS certificates; 0: none.", ("what",), _read
)
