"""Links over the REST API: limits, timed limits, and history.

Those of other users are 404, except for administrators.
"""

# ruff: noqa: ARG002  REST framework hands every handler the request and the parts of its URL
from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.shortcuts import get_object_or_404
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from bandwidth_config import Limits
from scionlab.accounts.models import User
from scionlab.enforcement.census import Census, attachment_points, take_census
from scionlab.limits.timed_limit import timed_limit_cancel, timed_limit_create
from scionlab.limits.update import link_update
from scionlab.platform.clock import database_now
from scionlab.platform.field_errors import FieldRuleError
from scionlab.testbed.locks import lock_link
from scionlab.testbed.models import BandwidthChange, Link, TimedLimit
from scionlab.testbed.models.link_settings import LINK_SETTINGS
from scionlab.testbed.selectors import LOWEST_KBIT, with_relations
from scionlab.user_ases.rest import bodies, documents
from scionlab.user_ases.rest.queries import HistoryQuery, LinkQuery, TimedLimitQuery
from scionlab.web.rest.base import ApiView
from scionlab.web.rest.schema import describe

REASON = "API"  # in the history, if a script gives none


def links_of(user: User) -> QuerySet[Link]:
    links = Link.objects.filter(type=Link.Type.PROVIDER, interface_b__AS__useras__isnull=False)
    return links if user.is_staff else links.filter(interface_b__AS__useras__owner=user)


class LinkView(ApiView):
    def link(self, pk: int) -> Link:
        """Raises `Http404`."""
        return get_object_or_404(with_relations(links_of(self.person)), pk=pk)

    def document(self, pk: int) -> Any:
        return documents.link_documents([self.link(pk)])[0]


class LinkListView(LinkView):
    query = LinkQuery

    @describe("links", "Your Links", answer=documents.LinkDocument, is_list=True)
    def get(self, request: Request) -> Response:
        links = with_relations(_filtered(links_of(self.person), self.asked))
        if "stage" in self.asked or "state" in self.asked:
            census = _census_for(self.person)
            links = census.only(links, stage=self.asked.get("stage"), state=self.asked.get("state"))
        return self.page_of(links, documents.link_documents)


def _census_for(person: User) -> Census:
    """Of the Links that this person may read."""
    if person.is_staff:
        return take_census(now=database_now())
    own = Q(interface_b__AS__useras__owner=person)
    ids = links_of(person).values("interface_a__AS__attachment_point")
    return take_census(now=database_now(), aps=attachment_points().filter(pk__in=ids), of=own)


def _filtered(links: QuerySet[Link], asked: dict[str, Any]) -> QuerySet[Link]:
    columns = {
        "as_id": "interface_b__AS",
        "attachment_point_id": "interface_a__AS__attachment_point",
        "active": "active",
        "min_kbit": "lowest_kbit__gte",
        "max_kbit": "lowest_kbit__lte",
        "owner": "interface_b__AS__useras__owner__email__iexact",
    }
    wanted = {column: asked[name] for name, column in columns.items() if name in asked}
    sort = asked["sort"].replace("bandwidth_kbit", "lowest_kbit")  # field name of what is shown
    return links.alias(lowest_kbit=LOWEST_KBIT).filter(**wanted).order_by(sort, "pk")


class LinkDetailView(LinkView):
    @describe("links", "One of your Links", answer=documents.LinkDocument)
    def get(self, request: Request, pk: int) -> Response:
        return Response(self.document(pk))

    @describe(
        "links",
        "Change the bandwidth of a Link, or (de)activate it",
        "Omitted fields keep their values. While a timed limit is running, a new bandwidth takes effect when it ends.",
        body=bodies.LinkBody,
        answer=documents.LinkDocument,
        examples={
            "Both directions": {"bandwidth_kbit": 500},
            "Separately": {"to_user_kbit": 1000, "from_user_kbit": 200},
        },
    )
    def patch(self, request: Request, pk: int) -> Response:
        self.link(pk)
        change = self.sent(bodies.LinkBody)
        with self.changing(lambda: lock_link(pk), lambda: self.document(pk)), transaction.atomic():
            lock_link(pk)  # concurrent changes of the other direction are kept
            try:
                link_update(
                    link_id=pk,
                    actor=self.person,
                    limits=change.limits(_requested(pk)),
                    reason=REASON,
                    **{name: value for name, value in change.validated_data.items() if name in LINK_SETTINGS},
                )
            except FieldRuleError as exc:
                raise _as_sent(exc, change.validated_data) from exc
        return Response(self.document(pk))


def _as_sent(error: FieldRuleError, sent: dict[str, Any]) -> FieldRuleError:
    """The column of the direction to the user AS is also the field name for both directions."""
    is_one_way = error.field == "bandwidth_kbit" and "to_user_kbit" in sent
    return FieldRuleError(error.code, error.message, "to_user_kbit") if is_one_way else error


def _requested(pk: int) -> Limits:
    return Link.objects.get(pk=pk).requested


class LinkHistoryView(LinkView):
    query = HistoryQuery

    @describe("links", "History of a Link", "Newest first.", answer=documents.ChangeDocument, is_list=True)
    def get(self, request: Request, pk: int) -> Response:
        changes = BandwidthChange.objects.filter(link=self.link(pk)).order_by("-at", "-pk")
        return self.page_of(changes, lambda rows: documents.ChangeDocument(rows, many=True).data)


# --- limits for a time --------------------------------------------------------------------------------------


class LinkTimedLimitsView(LinkView):
    query = TimedLimitQuery

    @describe(
        "timed limits", "Timed limits of a Link", "Sorted by start.", answer=documents.TimedLimitDocument, is_list=True
    )
    def get(self, request: Request, pk: int) -> Response:
        rows = TimedLimit.objects.filter(link=self.link(pk)).select_related("created_by").order_by("begins_at", "pk")
        if not self.asked["all"]:
            rows = rows.filter(cancelled_at=None, ends_at__gt=database_now())
        return self.page_of(rows, lambda found: documents.TimedLimitDocument(found, many=True).data)

    @describe(
        "timed limits",
        "Create a timed limit",
        "The attachment point receives the end of the timed limit with it and restores the regular limits on "
        "time, even if this service is down. Times are whole seconds.",
        body=bodies.TIMED_BODIES,
        answer=documents.TimedLimitDocument,
        success=status.HTTP_201_CREATED,
        examples={
            "Two hours slow": {"kind": "constant", "limits": 200, "duration_s": 7200},
            "Stair": {"kind": "stair", "start": 100, "end": 500, "count": 5, "step_s": 60},
            "Square wave": {"kind": "square", "low": 100, "high": 500, "half_period_s": 30, "cycles": 10},
            "Outage": {"kind": "outage", "duration_s": 30},
        },
    )
    def post(self, request: Request, pk: int) -> Response:
        self.link(pk)
        return self.once(lambda: self._create(pk))

    def _create(self, pk: int) -> Response:
        wanted = bodies.timed_body(self.request.data)
        with self.changing(lambda: lock_link(pk), lambda: self.document(pk)):
            made = timed_limit_create(
                link_id=pk,
                profile=wanted.profile(),
                begins_at=wanted.validated_data["begins_at"],
                ends_at=wanted.validated_data.get("ends_at"),
                actor=self.person,
                reason=wanted.validated_data["reason"] or REASON,
            )
        return self.created(f"/api/v1/timed-limits/{made.pk}/", documents.TimedLimitDocument(made).data)


class TimedLimitDetailView(ApiView):
    def timed(self, pk: int) -> TimedLimit:
        rows = TimedLimit.objects.filter(link__in=links_of(self.person)).select_related("created_by")
        return get_object_or_404(rows, pk=pk)

    @describe("timed limits", "One timed limit", answer=documents.TimedLimitDocument)
    def get(self, request: Request, pk: int) -> Response:
        return Response(documents.TimedLimitDocument(self.timed(pk)).data)

    @describe(
        "timed limits",
        "Cancel a timed limit",
        "The regular limits of the Link apply again within about a second. Cancelling one that has ended has no "
        "effect.",
        success=status.HTTP_204_NO_CONTENT,
    )
    def delete(self, request: Request, pk: int) -> Response:
        link_id = self.timed(pk).link_id
        document = lambda: documents.TimedLimitDocument(self.timed(pk)).data  # noqa: E731  evaluated with the lock held
        with self.changing(lambda: lock_link(link_id), document):
            timed_limit_cancel(timed_limit_id=pk, actor=self.person)
        return Response(status=status.HTTP_204_NO_CONTENT)
