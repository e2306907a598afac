"""Combined capacity of a user AS's Links, over the REST API."""

# ruff: noqa: ARG002  REST framework hands every handler the request and the parts of its URL
from __future__ import annotations

from typing import Any, get_args

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from scionlab.enforcement.words import State
from scionlab.paths.as_paths import Bottleneck, paths_report
from scionlab.paths.rest.documents import MeasuredDocument
from scionlab.platform.clock import database_now
from scionlab.user_ases.rest.as_views import UserASView
from scionlab.user_ases.rest.documents import LimitsDocument, UsagePointDocument
from scionlab.web.rest.derived import DerivedSerializer
from scionlab.web.rest.schema import describe


class PathLineDocument(MeasuredDocument):
    """One active Link of the AS."""

    link_id = serializers.IntegerField(source="status.link.pk")
    attachment_point = serializers.CharField(source="attachment_point.AS.isd_as")
    uplink_kbit = serializers.IntegerField(
        source="attachment_point.uplink_kbit", allow_null=True, help_text="Of the attachment point; null: not known."
    )
    total_kbit = serializers.IntegerField(
        source="attachment_point.total_kbit", allow_null=True, help_text="Of all Links there together; null: no total."
    )
    wanted = LimitsDocument(source="status.wanted", help_text="The limits now.")
    requested = LimitsDocument(source="status.requested", help_text="The limits when no temporary limit holds.")
    enforced = LimitsDocument(source="status.enforced", allow_null=True, help_text="In the kernel; null: not known.")
    published_kbit = serializers.IntegerField(allow_null=True, help_text="In SCION's path metadata; null: none.")
    state = serializers.ChoiceField(choices=get_args(State), source="status.state")
    weights = LimitsDocument(help_text="Shares of a transfer over all Links: whole numbers up to 50.")
    used = UsagePointDocument(allow_null=True, help_text="In the last hour; null: not known.")


class BottleneckDocument(DerivedSerializer):
    """Links that share a capacity, or one that exceeds it."""

    of = Bottleneck
    most = LimitsDocument(allow_null=True, help_text="What they carry together at most; null: not known.")


class PathsReportDocument(serializers.Serializer[Any]):
    """All active Links of the AS."""

    links = PathLineDocument(source="lines", many=True)
    bottlenecks = BottleneckDocument(many=True)
    total = LimitsDocument(help_text="Sum of the limits.")
    most = LimitsDocument(help_text="What remains of it behind the known bottlenecks.")
    text = serializers.CharField(help_text="For people.")


class UserASPathsView(UserASView):
    @describe(
        "ASes",
        "What the Links of an AS carry together",
        "Limits, weights and shared bottlenecks, from what the service knows; nothing is probed.",
        answer=PathsReportDocument,
    )
    def get(self, request: Request, pk: int) -> Response:
        return Response(PathsReportDocument(paths_report(self.user_as(pk), now=database_now())).data)
