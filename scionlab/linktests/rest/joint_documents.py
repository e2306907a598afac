"""Joint tests in the REST API."""

from __future__ import annotations

from typing import Any, get_args

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from scionlab.enforcement.directions import DIRECTIONS
from scionlab.linktests.joint_plan import DEFAULT_S, MAX_S, MIN_S
from scionlab.linktests.joint_report import JointStatus, Sum
from scionlab.linktests.rest.test_documents import LinkTestDocument
from scionlab.linktests.test_status import State
from scionlab.web.rest.derived import DerivedSerializer
from scionlab.web.rest.fields import StrictSerializer, Whole


class JointTestBody(StrictSerializer):
    """How long all active Links of an AS are tested, and when."""

    seconds = Whole(
        min_value=1, required=False, help_text=f"For each direction, {MIN_S} to {MAX_S}. Default: {DEFAULT_S}."
    )
    begins_at = serializers.DateTimeField(
        required=False, allow_null=True, default=None, help_text="With an offset from UTC. Default: now."
    )


class SumDocument(DerivedSerializer):
    """Means over the seconds in which all of these Links were loaded; null: not counted."""

    of = Sum
    passed_percent = serializers.FloatField(allow_null=True, help_text="Of the limits.")


class LoadDocument(serializers.Serializer[Any]):
    """One Link under load."""

    link_id = serializers.IntegerField()
    attachment_point = serializers.CharField()
    test_id = serializers.IntegerField(source="part.test.pk")
    sum = SumDocument()


class JointSideDocument(serializers.Serializer[Any]):
    """One direction."""

    text = serializers.CharField(help_text="For people.")
    total = SumDocument(help_text="Of all Links together.")
    links = LoadDocument(source="loads", many=True, help_text="Each Link, while all were tested together.")
    alone = LoadDocument(many=True, help_text="Each Link, tested alone.")
    alone_kbit = serializers.FloatField(allow_null=True, help_text="Sum of what passed of each Link alone.")


class JointTestDocument(serializers.Serializer[Any]):
    """A joint test."""

    id = serializers.IntegerField(source="joint.pk")
    as_id = serializers.IntegerField(source="joint.user_as_id")
    begins_at = serializers.DateTimeField(source="joint.begins_at")
    ends_at = serializers.DateTimeField(source="joint.ends_at")
    created_at = serializers.DateTimeField(source="joint.created_at")
    created_by = serializers.EmailField(source="joint.created_by.email", allow_null=True, default=None)
    cancelled_at = serializers.DateTimeField(source="joint.cancelled_at", allow_null=True)
    state = serializers.ChoiceField(choices=get_args(State))
    is_good = serializers.BooleanField(
        help_text="All parts found their limit enforced, and together the Links passed 95 % of their limits at least."
    )
    text = serializers.CharField(help_text="What was found, or why there is nothing, for people.")
    parts = LinkTestDocument(many=True, help_text="The tests of single Links, by their time.")


class JointSeriesDocument(serializers.Serializer[Any]):
    """One Link in one direction: a value for each second since the beginning; null: nothing was measured then."""

    link_id = serializers.IntegerField()
    direction = serializers.ChoiceField(choices=DIRECTIONS)
    passed_kbit = serializers.ListField(child=serializers.FloatField(allow_null=True))
    limit_kbit = serializers.ListField(child=serializers.IntegerField(allow_null=True))
    dropped_bytes = serializers.ListField(child=serializers.IntegerField())


class JointTestReportDocument(JointTestDocument):
    """A joint test with all that was measured."""

    to_user = JointSideDocument()
    from_user = JointSideDocument()
    series = serializers.SerializerMethodField()

    @extend_schema_field(JointSeriesDocument(many=True))
    def get_series(self, status: JointStatus) -> Any:
        found = []
        for direction in DIRECTIONS:
            for link_id, seconds in status.series(direction).items():
                columns = zip(("passed_kbit", "limit_kbit", "dropped_bytes"), zip(*seconds, strict=True), strict=True)
                found.append({"link_id": link_id, "direction": direction} | {name: [*row] for name, row in columns})
        return JointSeriesDocument(found, many=True).data
