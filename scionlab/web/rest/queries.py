"""Query parameters of lists. Unknown ones are rejected: a misspelt filter would otherwise return everything."""

from __future__ import annotations

from datetime import datetime
from typing import Any, get_args

from django.http import QueryDict
from rest_framework import serializers

from bandwidth_config import MAX_BANDWIDTH_KBIT
from scionlab.enforcement.judgement import Stage
from scionlab.enforcement.words import State
from scionlab.usage.series import Step

MAX_ID = 2**63 - 1  # range of a primary key
PAGE_ITEMS, MAX_PAGE_ITEMS = 100, 1000
MAX_WAIT_S = 60


class Query(serializers.Serializer[Any]):
    """The parameters of one operation; none by default."""

    @classmethod
    def read(cls, given: QueryDict) -> dict[str, Any]:
        """Validated values by name, without omitted ones that have no default. Raises `serializers.ValidationError`
        (`unknown_parameter`, `parameter_twice`, or those of a field)."""
        query = cls(data=given.dict())
        known = sorted(query.fields)
        errors: dict[str, Any] = {}
        for name in given:
            if name not in query.fields:
                text = f"Known parameters: {', '.join(known)}." if known else "This operation has none."
                errors[name[:100]] = [serializers.ErrorDetail(f"Unknown parameter. {text}", "unknown_parameter")]
            elif len(given.getlist(name)) > 1:
                errors[name] = [serializers.ErrorDetail("Send this parameter once.", "parameter_twice")]
        if errors:
            raise serializers.ValidationError(errors)
        query.is_valid(raise_exception=True)
        return dict(query.validated_data)


def _key(help_text: str) -> serializers.IntegerField:
    return serializers.IntegerField(required=False, min_value=1, max_value=MAX_ID, help_text=help_text)


def _kbit(help_text: str) -> serializers.IntegerField:
    return serializers.IntegerField(required=False, min_value=0, max_value=MAX_BANDWIDTH_KBIT, help_text=help_text)


def _sort(*names: str) -> serializers.ChoiceField:
    both = [sign + name for name in names for sign in ("", "-")]
    text = "Sort by this field, in descending order with a minus before it. Ties are sorted by id."
    return serializers.ChoiceField(choices=both, default=names[0], help_text=text)


class PageQuery(Query):
    """Which part of a list."""

    limit = serializers.IntegerField(
        min_value=1, max_value=MAX_PAGE_ITEMS, default=PAGE_ITEMS, help_text="Maximum number of results."
    )
    offset = serializers.IntegerField(
        min_value=0, max_value=2**31 - 1, default=0, help_text="Number of results to skip."
    )


class LinkQuery(PageQuery):
    as_id = _key("Links of this AS (its `id`).")
    attachment_point_id = _key("Links to this attachment point.")
    active = serializers.BooleanField(required=False)
    stage = serializers.ChoiceField(
        choices=get_args(Stage), required=False, help_text="Stage of the limit on its way to the kernel."
    )
    state = serializers.ChoiceField(choices=get_args(State), required=False, help_text="State as shown on pages.")
    min_kbit = _kbit("Minimum `bandwidth_kbit` (requested, the lower of both directions).")
    max_kbit = _kbit("Maximum `bandwidth_kbit`.")
    owner = serializers.EmailField(
        required=False, help_text="Email address of the owner. Only for administrators, who see all accounts."
    )
    sort = _sort("id", "bandwidth_kbit", "changed_at")


class UserASQuery(PageQuery):
    attachment_point_id = _key("ASes attached to this attachment point.")
    active = serializers.BooleanField(required=False, help_text="With at least one active Link, or with none.")
    label = serializers.CharField(  # type: ignore[assignment]  # its name on the wire
        required=False, max_length=100, help_text="Part of the label, case-insensitive."
    )
    owner = serializers.EmailField(
        required=False, help_text="Email address of the owner. Only for administrators, who see all accounts."
    )
    sort = _sort("as_id", "label", "created_at")


class AttachmentPointQuery(PageQuery):
    isd = serializers.IntegerField(
        required=False, min_value=1, max_value=65535, help_text="Attachment points of this isolation domain."
    )
    has_vpn = serializers.BooleanField(required=False)
    sort = _sort("isd_as", "id")


class HistoryQuery(PageQuery):
    """Newest first."""


class BulkQuery(PageQuery):
    """Newest first."""

    applied = serializers.BooleanField(required=False, help_text="true: applied; false: previews.")


class BulkLineQuery(PageQuery):
    left_out = serializers.BooleanField(required=False, help_text="true: skipped Links; false: changed Links.")


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


class LinkTestQuery(PageQuery):
    """Newest first."""


class ResultQuery(Query):
    format = serializers.ChoiceField(choices=["json", "csv"], default="json")
    wait = serializers.IntegerField(
        min_value=0,
        max_value=MAX_WAIT_S,
        default=0,
        help_text="With a token and If-None-Match: for how many seconds a 304 may be held back. It is answered as "
        "soon as the test changes.",
    )


class TimedLimitQuery(PageQuery):
    all = serializers.BooleanField(default=False, help_text="Include ended and cancelled ones.")
