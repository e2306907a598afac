"""Facts of one Link for the judgement: from the Link's rows, or by SQL for all Links.

Each fact is defined here twice, in Python and in SQL. The database cannot read the steps of timed limits: Links that
have some are read individually.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NamedTuple

from django.db.models import BooleanField, Case, Exists, F, OuterRef, Q, Value, When
from django.db.models.expressions import Expression
from django.db.models.functions import Coalesce, Greatest, Least
from django.db.models.lookups import Exact

from bandwidth_config import Limits, limits_at
from scionlab.enforcement.models import HostReceipt, LinkEnforcement
from scionlab.testbed import selectors
from scionlab.testbed.models import Link, TimedLimit

# A receipt arrives shortly after the kernel was read, by a clock that may be slightly off: within this time of a step,
# the limits before and after it both count as wanted.
STEP_GRACE: Final = timedelta(seconds=5)
# Agents send at most one receipt for steps in 10 s (their `STEP_RECEIPT_S`); doubled, as one may be lost.
STEP_REPORTED_WITHIN: Final = timedelta(seconds=20)

# State of the kernel: as wanted now; as wanted then, before a step that no receipt covers yet; different.
Kernel = Literal["wanted", "before", "other"]


class Facts(NamedTuple):
    """Facts of one Link. `is_covered`: the newest receipt is about a configuration that includes the Link as wanted.
    `is_to_observe` is the administrators' setting, `is_observed` the receipt's."""

    is_active: bool
    is_delivered: bool
    is_config_delivered: bool
    is_deployed: bool
    is_covered: bool
    is_as_wanted: bool
    is_step_open: bool
    is_to_observe: bool
    is_observed: bool
    is_clamped: bool
    is_blocked: bool


def newest_of(link: Link, receipt: HostReceipt | None) -> LinkEnforcement | None:
    """The newest receipt's row of the Link, or None."""
    row: LinkEnforcement | None = getattr(link, "enforcement", None)
    return row if receipt is not None else None


def facts_of(
    link: Link, row: LinkEnforcement | None, *, read_at: datetime, asked: Limits, wanted: Limits, now: datetime
) -> Facts:
    """`row` is from the newest receipt, received at `read_at`; `asked` and `wanted` are the current limits before and
    after clamping."""
    host = link.interface_a.host
    is_config_delivered = host.delivered_config_version >= link.wanted_config_version
    is_covered = row is not None and is_about(link, row)
    found = kernel_found(row, link, at=read_at, now=now) if row is not None and is_covered else "other"
    return Facts(
        is_active=link.active,
        is_delivered=is_config_delivered and host.delivered_limits_version >= link.wanted_limits_version,
        is_config_delivered=is_config_delivered,
        is_deployed=host.config_version_deployed >= link.wanted_config_version,
        is_covered=is_covered,
        is_as_wanted=found != "other",
        is_step_open=found == "before",
        is_to_observe=link.is_to_observe,
        is_observed=row is not None and is_covered and row.state == LinkEnforcement.State.OBSERVED,
        is_clamped=asked != wanted,
        is_blocked=max(wanted) == 0,
    )


def covers(row: LinkEnforcement, *, wanted: tuple[int, int], newest: tuple[int, int], generation: int) -> bool:
    """Whether the receipt is about a configuration (H, L) from the first that includes the wanted state of the Link to
    the newest of its host. False for another generation or a version from the future (after a restored backup)."""
    return (
        row.generation == generation
        and wanted[0] <= (row.config_version or 0) <= newest[0]
        and wanted[1] <= (row.limits_version or 0) <= newest[1]
    )


def is_about(link: Link, row: LinkEnforcement) -> bool:
    """`covers`, for a Link of `selectors.with_relations` or `limited_links`."""
    host = link.interface_a.host
    return covers(
        row,
        wanted=(link.wanted_config_version, link.wanted_limits_version),
        newest=(host.config_version, host.limits_version),
        generation=selectors.generation_beside(link),
    )


def shows_wanted(link: Link, row: LinkEnforcement, *, at: datetime) -> bool:
    """Whether the kernel, according to this receipt, had exactly the wanted limits in both directions; for a Link
    that is observed: nothing was limited."""
    if not link.active or not is_about(link, row):
        return False
    if link.is_to_observe:
        return row.state == LinkEnforcement.State.OBSERVED
    return kernel_found(row, link, at=at, now=at) == "wanted"


def is_in_kernel(row: LinkEnforcement) -> bool:
    """Whether the kernel has what the agent wanted, in both directions."""
    return row.state == LinkEnforcement.State.ENFORCED and row.in_kernel == row.wanted


def kernel_found(row: LinkEnforcement, link: Link, *, at: datetime, now: datetime) -> Kernel:
    """Compare the kernel at the time of the receipt (`at`, this service's clock) with the wanted limits."""
    found = row.in_kernel
    if found is None or not is_in_kernel(row):
        return "other"
    timed = link.timed_in_configuration
    if not timed:
        return "wanted" if found == link.enforced else "other"
    if found not in _limits_between(link, timed, at - STEP_GRACE, at + STEP_GRACE):
        return "other"
    is_open = found not in _limits_between(link, timed, now - STEP_REPORTED_WITHIN, now + STEP_GRACE)
    return "before" if is_open else "wanted"


def _limits_between(link: Link, timed: Sequence[TimedLimit], begins: datetime, ends: datetime) -> Iterator[Limits]:
    """All limits wanted at any time from `begins` until `ends`."""
    yield link.limits_at(begins)
    for one in timed:
        moment = one.limits.next_change(begins)
        while moment is not None and moment <= ends:
            yield link.limits_at(moment)
            moment = one.limits.next_change(moment)


def asked_at(link: Link, timed: Sequence[TimedLimit], when: datetime) -> Limits:
    """The user's choice at this time, before clamping."""
    return limits_at(link.requested, (one.limits for one in timed), when) if timed else link.requested


# --- the same in SQL ----------------------------------------------------------------------------------------------

_HOST: Final = "interface_a__host__"
MAXIMUM: Final = Greatest(F("interface_a__AS__attachment_point__maximum_kbit"), Coalesce("exception_kbit", 0))
_ASKED: Final = {"to_user": F("bandwidth_kbit"), "from_user": Coalesce("from_user_kbit", "bandwidth_kbit")}
IS_TIMED: Final = Exists(TimedLimit.objects.filter(link=OuterRef("pk"), cancelled_at=None, retired_at=None))


def standing_column(direction: str) -> Expression:
    """The limit in force without timed limits [kbit/s]."""
    return Least(_ASKED[direction], MAXIMUM)


def fact_columns(generation: int) -> dict[str, Expression]:
    """SQL expressions for `Facts` of Links without timed limits, by field name."""
    is_config_delivered = Q(**{f"{_HOST}delivered_config_version__gte": F("wanted_config_version")})
    found = {
        "is_active": Q(active=True),
        "is_delivered": is_config_delivered
        & Q(**{f"{_HOST}delivered_limits_version__gte": F("wanted_limits_version")}),
        "is_config_delivered": is_config_delivered,
        "is_deployed": Q(**{f"{_HOST}config_version_deployed__gte": F("wanted_config_version")}),
        "is_covered": _is_covered(generation),
        "is_as_wanted": _is_covered(generation) & _is_as_wanted(),
        "is_to_observe": Q(observe_only=True) | Q(interface_a__AS__attachment_point__observe_only=True),
        "is_observed": _is_covered(generation) & Q(enforcement__state=LinkEnforcement.State.OBSERVED),
        "is_clamped": Q(bandwidth_kbit__gt=MAXIMUM) | Q(from_user_kbit__gt=MAXIMUM),
        "is_blocked": Q(bandwidth_kbit=0) & (Q(from_user_kbit=None) | Q(from_user_kbit=0)) | Q(Exact(MAXIMUM, 0)),
    }
    columns: dict[str, Expression] = {name: _boolean(which) for name, which in found.items()}
    return {name: columns.get(name) or Value(False) for name in Facts._fields}


def _boolean(which: Q) -> Expression:
    return Case(When(which, then=Value(True)), default=Value(False), output_field=BooleanField())


def _is_covered(generation: int) -> Q:
    return Q(
        enforcement__generation=generation,
        enforcement__config_version__gte=F("wanted_config_version"),
        enforcement__config_version__lte=F(f"{_HOST}config_version"),
        enforcement__limits_version__gte=F("wanted_limits_version"),
        enforcement__limits_version__lte=F(f"{_HOST}limits_version"),
    )


def _is_as_wanted() -> Q:
    said = Q(enforcement__state=LinkEnforcement.State.ENFORCED)
    for direction in ("to_user", "from_user"):
        rate: Any = f"enforcement__{direction}_rate_kbit"
        agents_wish = Coalesce(f"enforcement__{direction}_kbit", "enforcement__kbit")
        said &= Q(**{rate: agents_wish}) & Q(**{rate: standing_column(direction)})
    return said
