"""Responses of the REST API about usage and traffic."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from scionlab.user_ases.rest.documents import UsagePointDocument


class UsageDocument(serializers.Serializer[Any]):
    """What a Link carried."""

    link_id = serializers.IntegerField()
    begins_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField()
    step_s = serializers.IntegerField()
    points = UsagePointDocument(many=True)


class TrafficRowDocument(serializers.Serializer[Any]):
    """A month of an attachment point (`isd_as` and `owner_email` empty), or of one AS there."""

    attachment_point_id = serializers.IntegerField(allow_null=True, help_text="null: deleted.")
    ap_isd_as = serializers.CharField()
    isd_as = serializers.CharField()
    owner_email = serializers.CharField()
    to_user_bytes = serializers.IntegerField(help_text="Egress, billed to the operator.")
    from_user_bytes = serializers.IntegerField()
    to_user_p95_kbit = serializers.IntegerField(allow_null=True, help_text="95th percentile of 5-minute values.")
    from_user_p95_kbit = serializers.IntegerField(allow_null=True)


class TrafficDocument(serializers.Serializer[Any]):
    """Each list with the most egress first."""

    year = serializers.IntegerField()
    month = serializers.IntegerField()
    computed_at = serializers.DateTimeField(
        allow_null=True, help_text="Time of the newest percentile; they are computed daily."
    )
    attachment_points = TrafficRowDocument(many=True)
    ases = TrafficRowDocument(many=True)
