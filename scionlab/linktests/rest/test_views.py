"""Tests of Links over the REST API. Those of other users are 404, except for administrators."""

# ruff: noqa: ARG002  REST framework hands every handler the request and the parts of its URL
from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from contract.link_tests import MAX_WATCH_S, WATCH
from scionlab.linktests.link_test import link_test_cancel, link_test_create
from scionlab.linktests.models import LinkTest
from scionlab.linktests.rest.test_documents import LinkTestDocument, LinkTestResultDocument
from scionlab.linktests.test_formats import points_csv
from scionlab.linktests.test_status import TestStatus, status_of_test, with_results
from scionlab.platform.clock import database_now
from scionlab.testbed.locks import lock_link, lock_user_as
from scionlab.user_ases.rest.link_views import LinkView, links_of
from scionlab.web.rest.base import ApiView
from scionlab.web.rest.fields import ParametersField, StrictSerializer, Whole
from scionlab.web.rest.queries import PageQuery, Query
from scionlab.web.rest.schema import describe
from station.tools import TOOLS


class LinkTestBody(StrictSerializer):
    """A test of a Link: tool and time."""

    tool = serializers.ChoiceField(
        choices=[WATCH, *TOOLS],
        default=WATCH,
        help_text="\n".join(f"{one.name}: {one.question}" for one in TOOLS.values()),
    )
    duration_s = Whole(min_value=1, max_value=MAX_WATCH_S, required=False, help_text="Of a watch, which needs it.")
    parameters = ParametersField(required=False, help_text="Of the other tools; what is left out has its default.")
    begins_at = serializers.DateTimeField(
        required=False, allow_null=True, default=None, help_text="With an offset from UTC. Default: now."
    )


class ResultQuery(Query):
    format = serializers.ChoiceField(choices=["json", "csv"], default="json")


class LinkTestsView(LinkView):
    query = PageQuery

    @describe("tests", "Tests of a Link", "Newest first.", answer=LinkTestDocument, is_list=True)
    def get(self, request: Request, pk: int) -> Response:
        rows = with_results(LinkTest.objects.filter(link=self.link(pk))).order_by("-begins_at", "-pk")
        now = database_now()
        return self.page_of(
            rows, lambda found: LinkTestDocument([status_of_test(one, now=now) for one in found], many=True).data
        )

    @describe(
        "tests",
        "Watch or test a Link",
        "`watch` counts each second what is offered, passed and dropped in both directions, and sends nothing. The "
        "other tools send between the attachment point and the host of the user AS; their user's end begins with "
        "`/start/`. 409 `test_slot_taken`: another test has that time; `next_free_at` is the next beginning that is "
        "free. 400 `test_hours`: your policies let you test at other hours; `next_allowed_at` is the next beginning.",
        body=LinkTestBody,
        answer=LinkTestDocument,
        success=status.HTTP_201_CREATED,
        examples={
            "Watch it for a minute from now on": {"duration_s": 60},
            "Send in both directions": {"tool": "quick", "parameters": {"seconds": 3}},
        },
    )
    def post(self, request: Request, pk: int) -> Response:
        self.link(pk)
        return self.once(lambda: self._create(pk))

    def _create(self, pk: int) -> Response:
        wanted = self.sent(LinkTestBody).validated_data
        with self.changing(lambda: lock_link(pk), lambda: self.document(pk)):
            made = link_test_create(link_id=pk, actor=self.person, **wanted)
        found = status_of_test(with_results(LinkTest.objects.all()).get(pk=made.pk), now=database_now())
        return self.created(f"/api/v1/tests/{made.pk}/", LinkTestDocument(found).data)


class LinkTestDetailView(ApiView):
    query = ResultQuery

    def test(self, pk: int) -> TestStatus:
        rows = with_results(LinkTest.objects.filter(link__in=links_of(self.person)))
        return status_of_test(get_object_or_404(rows, pk=pk), now=database_now())

    @describe("tests", "One test, with what was measured", answer=LinkTestResultDocument, also_csv=True)
    def get(self, request: Request, pk: int) -> HttpResponse:
        found = self.test(pk)
        if self.asked["format"] == "json":
            return Response(LinkTestResultDocument(found).data)
        return points_csv(found.test)

    @describe(
        "tests",
        "Cancel a test",
        "Cancelling one that has ended has no effect. Of a joint test all parts are cancelled.",
        success=status.HTTP_204_NO_CONTENT,
    )
    def delete(self, request: Request, pk: int) -> Response:
        as_id = self.test(pk).test.link.interface_b.AS_id  # for a joint test all Links are locked
        document: Any = lambda: LinkTestResultDocument(self.test(pk)).data  # noqa: E731  evaluated with the lock held
        with self.changing(lambda: lock_user_as(as_id), document):
            link_test_cancel(link_test_id=pk, actor=self.person)
        return Response(status=status.HTTP_204_NO_CONTENT)
