"""Judges all Links of user ASes in a constant number of SQL statements.

The database groups Links by equal facts; each group is judged once, like a single Link. The few Links with a timed
limit are read and judged individually.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Case, CharField, Count, F, Min, Q, QuerySet, Sum, Value, When

from bandwidth_config import Limits
from scionlab.enforcement.agents import Agent, agent_of
from scionlab.enforcement.facts import IS_TIMED, Facts, fact_columns, standing_column
from scionlab.enforcement.judgement import Stage, Verdict, judge
from scionlab.enforcement.status import link_status
from scionlab.enforcement.words import State
from scionlab.testbed import selectors
from scionlab.testbed.models import AttachmentPoint, Link

_AP = "interface_a__AS__attachment_point"


@dataclass(frozen=True)
class Group:
    """Links of one attachment point with the same verdict. `standing` sums their limits without timed limits, `clamped`
    counts those with a higher request, `changed_at` is the oldest change. For a Link that was judged individually,
    `facts` is None and `link_id` its key."""

    ap_id: int
    verdict: Verdict
    count: int
    standing: Limits
    clamped: int
    changed_at: datetime
    facts: Facts | None = None
    link_id: int | None = None
    is_timed: bool = False


@dataclass(frozen=True)
class Census:
    """`agents` by primary key of the attachment point."""

    agents: Mapping[int, Agent]
    groups: Sequence[Group]
    generation: int

    def judged(self, links: QuerySet[Link], value: Callable[[Verdict], str], name: str) -> QuerySet[Link]:
        """Annotate `links` with a column `name`: `value` of the verdict on each. No SQL statement; infrastructure is
        inactive."""
        cases: dict[tuple[Facts, str], list[int]] = {}
        single: dict[str, list[int]] = {}
        for group in self.groups:
            if group.facts is None:
                single.setdefault(value(group.verdict), []).append(group.link_id or 0)
            else:
                cases.setdefault((group.facts, value(group.verdict)), []).append(group.ap_id)
        # First, because the facts in the database do not include the steps of their timed limits.
        whens = [When(Q(pk__in=keys), then=Value(word)) for word, keys in single.items()]
        for (facts, word), aps in cases.items():
            which = {f"fact_{fact}": known for fact, known in facts._asdict().items()}
            whens.append(When(Q(**which, **{f"{_AP}__in": aps}), then=Value(word)))
        columns: Any = {f"fact_{fact}": column for fact, column in fact_columns(self.generation).items()}
        inactive = Value(value(Verdict("inactive", "inactive")))
        return links.alias(**columns).annotate(**{name: Case(*whens, default=inactive, output_field=CharField())})

    def only(self, links: QuerySet[Link], *, stage: Stage | None = None, state: State | None = None) -> QuerySet[Link]:
        """Filter by stage and state; None: any."""
        if stage is not None:
            of_stage: Any = self.judged(links, lambda verdict: verdict.stage, "judged_stage")
            links = of_stage.filter(judged_stage=stage)
        if state is not None:
            of_state: Any = self.judged(links, lambda verdict: verdict.state, "judged_state")
            links = of_state.filter(judged_state=state)
        return links


def attachment_points() -> QuerySet[AttachmentPoint]:
    """Attachment points with everything that the census reads."""
    return AttachmentPoint.objects.select_related("AS__isd", "host__receipt", "host__installed_files").annotate(
        **selectors.GENERATION
    )


def take_census(*, now: datetime, aps: Iterable[AttachmentPoint] | None = None, of: Q | None = None) -> Census:
    """Judge all Links; two statements, one if `aps` (of `attachment_points`) are given; two more if Links have timed
    limits. `of`: only these Links."""
    found: Any = list(attachment_points() if aps is None else aps)
    agents = {ap.pk: agent_of(ap.host, ap.AS.isd_as, now=now) for ap in found}
    generation = next((ap.service_generation for ap in found), None) or 0
    links = Link.objects.filter(selectors.USER_LINKS, **{f"{_AP}__in": agents})
    groups = list(_counted(links if of is None else links.filter(of), agents, generation)) if agents else []
    timed = [group for group in groups if group.is_timed]
    if timed:
        groups = [group for group in groups if not group.is_timed]
        groups += _one_by_one(links.filter(IS_TIMED) if of is None else links.filter(of, IS_TIMED), now)
    return Census(agents, groups, generation)


def _counted(links: QuerySet[Link], agents: Mapping[int, Agent], generation: int) -> Iterable[Group]:
    columns: Any = {f"fact_{fact}": column for fact, column in fact_columns(generation).items()}
    rows = (
        links.annotate(**columns, is_timed=IS_TIMED)
        .values(*columns, "is_timed", ap_key=F(_AP))
        .annotate(
            n=Count("pk"),
            to_user=Sum(standing_column("to_user")),
            from_user=Sum(standing_column("from_user")),
            changed=Min("changed_at"),
        )
    )
    for row in rows.order_by():
        facts = Facts(*(bool(row[column]) for column in columns))
        yield Group(
            ap_id=row["ap_key"],
            verdict=judge(agents[row["ap_key"]], facts),
            count=row["n"],
            standing=Limits(row["to_user"], row["from_user"]),
            clamped=row["n"] if facts.is_clamped else 0,
            changed_at=row["changed"],
            facts=facts,
            is_timed=row["is_timed"],
        )


def _one_by_one(links: QuerySet[Link], now: datetime) -> Iterable[Group]:
    for link in selectors.with_relations(links).order_by("pk"):
        assert link.attachment_point is not None  # noqa: S101  it is one of `USER_LINKS`
        yield Group(
            ap_id=link.attachment_point.pk,
            verdict=link_status(link, now=now).verdict,
            count=1,
            standing=link.enforced,
            clamped=int(link.requested != link.enforced),
            changed_at=link.changed_at,
            link_id=link.pk,
        )
