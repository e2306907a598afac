"""REST: usage of a Link, and the month's traffic."""

# ruff: noqa: ARG002  REST framework hands every handler the request and the parts of its URL
from __future__ import annotations

from datetime import datetime
from typing import get_args

from django.http import HttpResponse
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from scionlab.platform.clock import database_now
from scionlab.platform.throttles import one_of_few
from scionlab.usage.formats import file_name, usage_csv, usage_document
from scionlab.usage.report import MonthlyTraffic, TrafficRow, monthly_traffic
from scionlab.usage.series import USUAL, Step, Usage, usage_of_link
from scionlab.user_ases.rest.documents import UsagePointDocument
from scionlab.user_ases.rest.link_views import LinkView
from scionlab.web.csv_files import csv_file
from scionlab.web.rest.base import ApiView, StaffOnly
from scionlab.web.rest.derived import DerivedSerializer
from scionlab.web.rest.queries import Query
from scionlab.web.rest.schema import describe


def _movable(moment: datetime) -> None:
    """Must leave room for a day before and after it."""
    if not 1970 <= moment.year < 9999:
        raise serializers.ValidationError("Send a time between 1970 and 9998.", "time_invalid")


class UsageQuery(Query):
    """Without a time: the last day."""

    begins_at = serializers.DateTimeField(
        required=False, validators=[_movable], help_text="With an offset from UTC, between 1970 and 9998."
    )
    ends_at = serializers.DateTimeField(required=False, validators=[_movable])
    step = serializers.ChoiceField(choices=get_args(Step), required=False, help_text="Default: depends on the period.")
    format = serializers.ChoiceField(choices=["json", "csv"], default="json")


class TrafficQuery(Query):
    month = serializers.RegexField(
        r"^20[0-9]{2}-(0[1-9]|1[0-2])\Z",
        required=False,
        help_text="For example 2026-11, in UTC. Default: the current month.",
    )


class UsageDocument(DerivedSerializer):
    """What a Link carried."""

    of = Usage
    points = UsagePointDocument(many=True)


class TrafficRowDocument(DerivedSerializer):
    """A month of an attachment point (`isd_as` and `owner_email` empty), or of one AS there."""

    of = TrafficRow
    left_out = frozenset({"to_user_slots", "from_user_slots"})


class TrafficDocument(DerivedSerializer):
    """Each list with the most egress first."""

    of = MonthlyTraffic
    attachment_points = TrafficRowDocument(many=True)
    ases = TrafficRowDocument(many=True)


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
            text = usage_csv(usage)
        return csv_file(text, file_name(link.interface_b.AS.isd_as, link.interface_a.AS.isd_as, usage, "csv"))


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
