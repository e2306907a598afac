"""Query parameters of lists."""

from __future__ import annotations

from typing import get_args

from rest_framework import serializers

from scionlab.enforcement.judgement import Stage
from scionlab.enforcement.words import State
from scionlab.web.rest.queries import PageQuery, kbit_field, key_field, sort_field


class LinkQuery(PageQuery):
    as_id = key_field("Links of this AS (its `id`).")
    attachment_point_id = key_field("Links to this attachment point.")
    active = serializers.BooleanField(required=False)
    stage = serializers.ChoiceField(
        choices=get_args(Stage), required=False, help_text="Stage of the limit on its way to the kernel."
    )
    state = serializers.ChoiceField(choices=get_args(State), required=False, help_text="State as shown on pages.")
    min_kbit = kbit_field("Minimum `bandwidth_kbit` (requested, the lower of both directions).")
    max_kbit = kbit_field("Maximum `bandwidth_kbit`.")
    owner = serializers.EmailField(
        required=False, help_text="Email address of the owner. Only for administrators, who see all accounts."
    )
    sort = sort_field("id", "bandwidth_kbit", "changed_at")


class UserASQuery(PageQuery):
    attachment_point_id = key_field("ASes attached to this attachment point.")
    active = serializers.BooleanField(required=False, help_text="With at least one active Link, or with none.")
    label = serializers.CharField(  # type: ignore[assignment]  # its name on the wire
        required=False, max_length=100, help_text="Part of the label, case-insensitive."
    )
    owner = serializers.EmailField(
        required=False, help_text="Email address of the owner. Only for administrators, who see all accounts."
    )
    sort = sort_field("as_id", "label", "created_at")


class AttachmentPointQuery(PageQuery):
    isd = serializers.IntegerField(
        required=False, min_value=1, max_value=65535, help_text="Attachment points of this isolation domain."
    )
    has_vpn = serializers.BooleanField(required=False)
    sort = sort_field("isd_as", "id")


class HistoryQuery(PageQuery):
    """Newest first."""


class TimedLimitQuery(PageQuery):
    all = serializers.BooleanField(default=False, help_text="Include ended and cancelled ones.")
