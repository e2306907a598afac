"""Tests of Links in the REST API."""

from __future__ import annotations

from typing import Any, get_args

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from contract.link_tests import KINDS, WATCH
from scionlab.linktests.sending_steps import Code as SendingCode
from scionlab.linktests.sending_steps import Step
from scionlab.linktests.sending_verdict import Echo, SendingVerdict
from scionlab.linktests.tcp_found import Moment, TcpFound
from scionlab.linktests.test_formats import points_of
from scionlab.linktests.test_status import State, TestStatus
from scionlab.linktests.verdict import Code, Interval, Side, Verdict
from scionlab.web.rest.derived import DerivedSerializer
from station.tools import TOOLS


class TestSideDocument(DerivedSerializer):
    """What one direction did."""

    of = Side
    left_out = frozenset({"direction"})


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


class TcpMomentDocument(DerivedSerializer):
    """One connection of TCP since the moment before. null: the sending end did not report."""

    of = Moment


class TcpDocument(DerivedSerializer):
    """What TCP got in one phase. Rates are of payload."""

    of = TcpFound
    connections = serializers.ListField(
        child=TcpMomentDocument(many=True), help_text="The progress of each connection, every 250 ms."
    )


class TestStepDocument(DerivedSerializer):
    """One phase of one direction. Rates are of frames, as limits count them; null: not counted."""

    of = Step
    left_out = frozenset({"direction", "why"})
    tcp = TcpDocument(allow_null=True, help_text="null of other tools, and where no connection came about.")


class SendingSideDocument(serializers.Serializer[Any]):
    """One direction."""

    code = serializers.ChoiceField(choices=get_args(SendingCode))
    text = serializers.CharField(help_text="For people.")
    steps = TestStepDocument(many=True)


class EchoDocument(DerivedSerializer):
    """Packets that were to come back."""

    of = Echo


class SendingVerdictDocument(serializers.Serializer[Any]):
    """Whether the limit was enforced, in both directions: the code of the worse one."""

    code = serializers.ChoiceField(
        choices=get_args(SendingCode),
        help_text="enforced; limited_elsewhere: less arrived, and the limit dropped nothing; over_the_limit: more "
        "passed; not_enough: too little was sent to tell; mixed: differs from phase to phase; no_result.",
    )
    is_good = serializers.BooleanField(help_text="Enforced; of a test without load: the ends reach each other.")
    text = serializers.CharField(help_text="For people.")
    to_user = SendingSideDocument()
    from_user = SendingSideDocument()
    echo = EchoDocument(allow_null=True)


class LinkTestDocument(serializers.Serializer[Any]):
    """A test of a Link."""

    id = serializers.IntegerField(source="test.pk")
    link_id = serializers.IntegerField(source="test.link_id")
    joint_test_id = serializers.IntegerField(source="test.joint_id", allow_null=True, help_text="Whose part it is.")
    tool = serializers.ChoiceField(source="test.tool", choices=[WATCH, *TOOLS])
    kind = serializers.ChoiceField(
        source="test.kind", choices=sorted(KINDS), help_text="As the attachment point has it."
    )
    parameters = serializers.DictField(
        child=serializers.IntegerField(), source="test.parameters", allow_null=True, help_text="null of a watch."
    )
    port = serializers.IntegerField(
        source="test.port", allow_null=True, help_text="Of the attachment point's end; null of a watch."
    )
    begins_at = serializers.DateTimeField(source="test.begins_at")
    ends_at = serializers.DateTimeField(source="test.ends_at")
    created_at = serializers.DateTimeField(source="test.created_at")
    created_by = serializers.EmailField(source="test.created_by.email", allow_null=True, default=None)
    cancelled_at = serializers.DateTimeField(source="test.cancelled_at", allow_null=True)
    state = serializers.ChoiceField(choices=get_args(State))
    text = serializers.CharField(help_text="The verdict, or why there is none, for people.")
    is_late = serializers.BooleanField(help_text="The result arrived more than a minute after the end.")
    verdict = serializers.SerializerMethodField()
    sending_verdict = serializers.SerializerMethodField()

    @extend_schema_field(VerdictDocument(allow_null=True, help_text="Of a watch. null: nothing was measured so far."))
    def get_verdict(self, status: TestStatus) -> Any:
        return VerdictDocument(status.verdict).data if isinstance(status.verdict, Verdict) else None

    @extend_schema_field(
        SendingVerdictDocument(allow_null=True, help_text="Of a test that sends. null: nothing came so far.")
    )
    def get_sending_verdict(self, status: TestStatus) -> Any:
        found = status.verdict
        return SendingVerdictDocument(found).data if isinstance(found, SendingVerdict) else None


class TestCountedDocument(DerivedSerializer):
    """What one direction did from one sample to the next."""

    of = Interval
    left_out = frozenset({"begins_at_ms", "took_ms", "in_force", "next_limit_kbit"})


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
