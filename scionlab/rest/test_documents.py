"""Tests of Links as the REST API shows them."""

from __future__ import annotations

from typing import Any, get_args

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from scionlab.links.test_formats import points_of
from scionlab.links.test_status import State, TestStatus
from scionlab.links.verdict import Code
from scionlab.models import LinkTest


class TestSideDocument(serializers.Serializer[Any]):
    """What one direction did."""

    code = serializers.ChoiceField(choices=get_args(Code))
    measured_s = serializers.IntegerField(help_text="Seconds in which the limit was enforced and counted.")
    full_s = serializers.IntegerField(help_text="Of these: packets were dropped, or 95 % of the limit was used.")
    peak_percent = serializers.FloatField(allow_null=True, help_text="Of the limit, in the highest second.")
    dropped_percent = serializers.FloatField(allow_null=True, help_text="Of the bytes that were offered.")
    passed_bytes = serializers.IntegerField()
    passed_packets = serializers.IntegerField()
    dropped_bytes = serializers.IntegerField()
    dropped_packets = serializers.IntegerField()


class VerdictDocument(serializers.Serializer[Any]):
    """Whether this Link is what slows the traffic: that of the worse direction."""

    code = serializers.ChoiceField(
        choices=get_args(Code),
        help_text="full: yes; at_times: in less than half of the seconds; free: no; idle: not enough was sent to tell; "
        "not_enforced: the limit was not enforced then; no_result: nothing was measured.",
    )
    text = serializers.CharField(help_text="For people.")
    to_user = TestSideDocument()
    from_user = TestSideDocument()


class LinkTestDocument(serializers.Serializer[Any]):
    """A test of a Link."""

    id = serializers.IntegerField(source="test.pk")
    link_id = serializers.IntegerField(source="test.link_id")
    kind = serializers.ChoiceField(source="test.kind", choices=LinkTest.Kind.choices)
    begins_at = serializers.DateTimeField(source="test.begins_at")
    ends_at = serializers.DateTimeField(source="test.ends_at")
    created_at = serializers.DateTimeField(source="test.created_at")
    created_by = serializers.EmailField(source="test.created_by.email", allow_null=True, default=None)
    cancelled_at = serializers.DateTimeField(source="test.cancelled_at", allow_null=True)
    state = serializers.ChoiceField(choices=get_args(State))
    text = serializers.CharField(help_text="The verdict, or why there is none, for people.")
    is_late = serializers.BooleanField(help_text="The result arrived more than a minute after the end.")
    verdict = VerdictDocument(allow_null=True, help_text="null: nothing was measured so far.")


class TestCountedDocument(serializers.Serializer[Any]):
    """What one direction did from one sample to the next."""

    limit_kbit = serializers.IntegerField()
    passed_bytes = serializers.IntegerField()
    passed_packets = serializers.IntegerField()
    dropped_bytes = serializers.IntegerField()
    dropped_packets = serializers.IntegerField()


class TestPointDocument(serializers.Serializer[Any]):
    """From one sample to the next: a second, and more only where samples are missing. null: counters began anew."""

    begins_at = serializers.DateTimeField(help_text="By the clock of the attachment point.")
    took_s = serializers.FloatField()
    in_force = serializers.BooleanField(help_text="The limit was enforced.")
    to_user = TestCountedDocument(allow_null=True)
    from_user = TestCountedDocument(allow_null=True)


class LinkTestResultDocument(LinkTestDocument):
    """A test of a Link with all that was measured."""

    points = serializers.SerializerMethodField()

    @extend_schema_field(TestPointDocument(many=True))
    def get_points(self, status: TestStatus) -> Any:
        return TestPointDocument(list(points_of(status.test)), many=True).data
