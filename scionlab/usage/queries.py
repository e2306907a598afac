"""Query parameters of usage and traffic."""

from __future__ import annotations

from datetime import datetime
from typing import get_args

from rest_framework import serializers

from scionlab.usage.series import Step
from scionlab.web.rest.queries import Query


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
