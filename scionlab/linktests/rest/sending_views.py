"""The user's end of a test that sends: its start and its report. Only for the creator of the test; 404 for others."""

# ruff: noqa: ARG002  REST framework hands every handler the request and the parts of its URL
from __future__ import annotations

import json
from typing import Any

from django.shortcuts import get_object_or_404
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from bandwidth_config import RuleError
from scionlab.linktests.models import LinkTest
from scionlab.linktests.test_results import user_report_store
from scionlab.linktests.test_start import Start, link_test_start
from scionlab.linktests.test_status import with_results
from scionlab.platform.clock import database_now
from scionlab.platform.field_errors import FieldRuleError
from scionlab.user_ases.rest.link_views import links_of
from scionlab.web.rest.base import ApiView
from scionlab.web.rest.derived import DerivedSerializer
from scionlab.web.rest.schema import describe
from station.plan import USER
from station.report import MAX_REPORT_BYTES, read_report
from station.tools import TOOLS


class StartDocument(DerivedSerializer):
    """What the user's end needs. Times are milliseconds since 1970 by the service's clock; `now_ms` tells how far the
    own one is off."""

    of = Start
    ip = serializers.IPAddressField(help_text="Of the attachment point's end.")
    remote_ip = serializers.IPAddressField(help_text="The only address that the attachment point answers.")
    tool = serializers.ChoiceField(choices=list(TOOLS))


class ReportBody(serializers.Serializer[Any]):
    """What the user's end counted (docs/api.md)."""

    schema = serializers.IntegerField()
    side = serializers.ChoiceField(choices=[USER])
    outcome = serializers.CharField()
    why = serializers.CharField(allow_blank=True)
    peer = serializers.CharField(allow_null=True)
    phases = serializers.ListField(child=serializers.DictField())


class ReportedDocument(serializers.Serializer[Any]):
    stored = serializers.BooleanField(help_text="false: a report was already stored, and is kept.")


class _OwnTestView(ApiView):
    def test(self, pk: int) -> LinkTest:
        """Raises `Http404`."""
        rows = with_results(LinkTest.objects.filter(link__in=links_of(self.person), created_by=self.person))
        found: LinkTest = get_object_or_404(rows, pk=pk)
        return found


class LinkTestStartView(_OwnTestView):
    @describe(
        "tests",
        "Start the user's end of a test",
        "For its creator. 409 `test_not_armed` with the reason, and Retry-After: the attachment point has not "
        "confirmed the test; `test_over`: it has ended. 400 `test_load`: its links carry too much for your policies. "
        "Nothing is stored; it can be repeated.",
        answer=StartDocument,
    )
    def post(self, request: Request, pk: int) -> Response:
        started = link_test_start(self.test(pk), now=database_now())
        return Response(StartDocument(started).data, headers={"Cache-Control": "no-store"})


class LinkTestReportView(_OwnTestView):
    @describe(
        "tests",
        "Report what the user's end of a test counted",
        "For its creator. 201: stored. 200: a report was already stored, and is kept.",
        body=ReportBody,
        answer=ReportedDocument,
        success=(status.HTTP_200_OK, status.HTTP_201_CREATED),
        examples={
            "No answer": {
                "schema": 1,
                "side": "user",
                "outcome": "nobody",
                "why": "The attachment point did not answer.",
                "peer": None,
                "phases": [],
            }
        },
    )
    def post(self, request: Request, pk: int) -> Response:
        test = self.test(pk)
        report = _read(request.data)
        if not test.sends:
            raise FieldRuleError("test_sends_nothing", "A watch sends nothing, so there is no report of it.", "tool")
        if database_now() < test.begins_at:
            raise RuleError("test_not_begun", "This test has not begun, so there is nothing to report.")
        is_first = user_report_store(test_id=test.pk, report=report)
        location = request.build_absolute_uri(f"/api/v1/tests/{test.pk}/")
        return Response(
            ReportedDocument({"stored": is_first}).data,
            status=status.HTTP_201_CREATED if is_first else status.HTTP_200_OK,
            headers={"Location": location} if is_first else None,
        )


def _read(value: object) -> dict[str, Any]:
    """Raises `RuleError` (`report_invalid`, `report_large`) with the place."""
    if len(json.dumps(value)) > MAX_REPORT_BYTES:
        raise RuleError("report_large", f"A report has at most {MAX_REPORT_BYTES} bytes.")
    try:
        report = read_report(value)
    except ValueError as exc:
        raise RuleError("report_invalid", f"The report: {exc}.") from exc
    if report.side != USER:
        raise FieldRuleError("report_invalid", f'This is where the user\'s end reports: "side" is "{USER}".', "side")
    return report.to_json()
