"""REST: usage of a Link, and the month's traffic."""

# ruff: noqa: ARG002  REST framework hands every handler the request and the parts of its URL

from __future__ import annotations

from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from scionlab.platform.clock import database_now
from scionlab.platform.throttles import one_of_few
from scionlab.usage.documents import TrafficDocument, UsageDocument
from scionlab.usage.formats import file_name, usage_csv, usage_document
from scionlab.usage.queries import TrafficQuery, UsageQuery
from scionlab.usage.report import monthly_traffic
from scionlab.usage.series import usage_of_link
from scionlab.usage.span import USUAL
from scionlab.user_ases.rest.link_views import LinkView
from scionlab.web.rest.base import ApiView, StaffOnly
from scionlab.web.rest.schema import describe


class LinkUsageView(LinkView):
    query = UsageQuery

    @describe(
        "links",
        "Usage of a Link",
        "Resolution: 10 s for two days, 5 minutes for 90 days, then days. Missing data is null (an empty cell in "
        "CSV), not 0.",
        answer=UsageDocument,
        also_csv=True,
    )
    def get(self, request: Request, pk: int) -> HttpResponse:
        link, asked = self.link(pk), self.asked
        ends_at = asked.get("ends_at") or database_now()
        begins_at = asked.get("begins_at") or ends_at - USUAL
        with one_of_few(self.person.pk):
            usage = usage_of_link(link.pk, begins_at=begins_at, ends_at=ends_at, step=asked.get("step"))
            if asked["format"] == "json":
                return Response(usage_document(usage))
            text = "".join(usage_csv(usage))
        name = file_name(link.interface_b.AS.isd_as, link.interface_a.AS.isd_as, usage, "csv")
        response = HttpResponse(text, content_type="text/csv; charset=utf-8; header=present")
        response["Content-Disposition"] = f'attachment; filename="{name}"'
        return response


class TrafficView(ApiView):
    permission_classes = (*ApiView.permission_classes, StaffOnly)
    query = TrafficQuery

    @describe(
        "attachment points",
        "Monthly traffic",
        "For administrators: bytes and 95th percentiles by attachment point and by AS, including deleted ones.",
        answer=TrafficDocument,
    )
    def get(self, request: Request) -> Response:
        now = database_now()
        year, month = map(int, self.asked.get("month", f"{now:%Y-%m}").split("-"))
        return Response(TrafficDocument(monthly_traffic(year, month)).data)
