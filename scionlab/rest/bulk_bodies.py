"""Request bodies of bulk changes. The services check all rules."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from scionlab.links.bulk import MAX_LINKS
from scionlab.links.bulk_choice import Choice
from scionlab.links.bulk_defaults import FOLLOWERS
from scionlab.links.bulk_plan import DIRECTIONS, MAX_PERCENT, SITE, Operation
from scionlab.models import AttachmentPoint
from scionlab.models.locks import storable_ids
from scionlab.platform.field_errors import FieldRuleError
from scionlab.rest.fields import BandwidthField, Flag, StrictSerializer, Text, Whole

MAX_REASON_CHARS = 200


class OperationBody(StrictSerializer):
    """How new numbers follow from old ones: `bandwidth_kbit` for set and cap, `percent` for scale."""

    kind = serializers.ChoiceField(choices=["set", "cap", "scale"])
    bandwidth_kbit = BandwidthField(required=False, help_text="For set and cap.")
    percent = Whole(required=False, min_value=0, max_value=MAX_PERCENT, help_text="For scale: 50 halves the limits.")

    def operation(self) -> Operation:
        """Raises `FieldRuleError` (`bulk_value`) if the kind's number is missing, or another is given."""
        values = self.validated_data
        kind, given = values["kind"], {"percent", "bandwidth_kbit"} & set(values)
        if kind == "site":
            if given:
                raise FieldRuleError("bulk_value", '"site" accepts neither bandwidth_kbit nor percent.', "kind")
            return Operation(kind)
        needed, other = ("percent", "bandwidth_kbit") if kind == "scale" else ("bandwidth_kbit", "percent")
        if given != {needed}:
            text = f'"{kind}" requires {needed} and does not accept {other}.'
            raise FieldRuleError("bulk_value", text, needed if needed not in values else other)
        return Operation(kind, values[needed], values.get("direction", "both"))


class BulkLimitsBody(OperationBody):
    """New limits for the Links that match all of the last six fields."""

    direction = serializers.ChoiceField(choices=list(DIRECTIONS), default="both")
    attachment_point_id = Whole(required=False, min_value=1, help_text="Links at this attachment point.")
    user_as = Text(required=False, max_length=100, help_text="ISD-AS, AS number or part of the label.")
    owner = Text(required=False, max_length=254, help_text="Part of the email address of the owner.")
    above_kbit = BandwidthField(
        required=False, help_text="Links with a requested limit above this in either direction."
    )
    link_ids = serializers.ListField(
        child=Whole(min_value=1), required=False, allow_empty=False, max_length=MAX_LINKS, help_text="Only these."
    )
    every_link = Flag(default=False, help_text="Required if no filter is given.")

    def chosen(self) -> tuple[list[int], str]:
        """Keys, and a description of the selection. Raises `FieldRuleError` (`bulk_which`,
        `attachment_point_unknown`)."""
        values = self.validated_data
        names = {"attachment_point_id", "user_as", "owner", "above_kbit", "link_ids"} & set(values)
        if values["every_link"] == bool(names):
            text = "Select Links with at least one filter or link_ids, or send every_link alone for all of them."
            raise FieldRuleError("bulk_which", text, "every_link")
        ap = None
        if "attachment_point_id" in values:
            ap = _attachment_point(values["attachment_point_id"])
        only = frozenset(values["link_ids"]) if "link_ids" in values else None
        user_as, owner = values.get("user_as", ""), values.get("owner", "")
        choice = Choice(ap, user_as, owner, values.get("above_kbit"), only)
        return choice.link_ids(), choice.words


def _attachment_point(pk: int) -> AttachmentPoint:
    found = AttachmentPoint.objects.filter(pk=pk).first() if pk < 2**63 else None
    if found is None:
        text = f"There is no attachment point {pk}. GET /api/v1/attachment-points/ lists them."
        raise FieldRuleError("attachment_point_unknown", text, "attachment_point_id")
    return found


class DefaultsBody(OperationBody):
    """New defaults: of the site, or of the attachment points that match all of the last three fields."""

    kind = serializers.ChoiceField(choices=["set", "cap", "scale", "site"], help_text="site: follow the site default.")
    site_default = Flag(default=False, help_text="The site default, and so all attachment points that follow it.")
    isd = Whole(required=False, min_value=1, max_value=65535, help_text="Attachment points of this isolation domain.")
    attachment_point_ids = serializers.ListField(
        child=Whole(min_value=1), required=False, allow_empty=False, max_length=MAX_LINKS, help_text="Only these."
    )
    every_attachment_point = Flag(default=False, help_text="Required if nothing else is selected.")

    def chosen(self) -> tuple[list[int], str]:
        """As for Links. Raises `FieldRuleError` (`bulk_which`)."""
        values = self.validated_data
        ways = [values["site_default"], values["every_attachment_point"], {"isd", "attachment_point_ids"} & set(values)]
        if sum(map(bool, ways)) != 1:
            text = (
                "Select attachment points with isd or attachment_point_ids, or send every_attachment_point "
                "alone for all of them, or site_default alone."
            )
            raise FieldRuleError("bulk_which", text, "every_attachment_point")
        if values["site_default"]:
            return [SITE], FOLLOWERS
        found, words = AttachmentPoint.objects.all(), "all attachment points"
        if "attachment_point_ids" in values:
            found = found.filter(pk__in=storable_ids(values["attachment_point_ids"]))
            words = "selected attachment points"
        if "isd" in values:
            found, words = found.filter(AS__isd__isd_id=values["isd"]), f"{words} of ISD {values['isd']}"
        return list(found.values_list("pk", flat=True)), words


class ReasonBody(StrictSerializer):
    reason = Text(max_length=MAX_REASON_CHARS, help_text="Included in the email to the owners and kept in the history.")


def checked(body: type[StrictSerializer], data: Any) -> Any:
    """The body, validated. Raises `serializers.ValidationError`, `RuleError`."""
    found = body(data=data)
    found.is_valid(raise_exception=True)
    return found
