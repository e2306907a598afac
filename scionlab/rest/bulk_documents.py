"""Documents about bulk changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from scionlab.links import bulk_defaults, bulk_limits
from scionlab.links.bulk import lines_of
from scionlab.links.bulk_plan import SITE, DefaultLine, LimitsLine
from scionlab.models import AttachmentPoint, BulkChange, Link
from scionlab.rest.documents import LimitsDocument


class BulkResultDocument(serializers.Serializer[Any]):
    """How many it concerned."""

    links = serializers.IntegerField(help_text="Number of Links with new limits.")
    hosts = serializers.IntegerField(
        required=False, help_text="Number of hosts with a new configuration. Only for limits."
    )
    mails = serializers.IntegerField(required=False, help_text="Number of emails to owners. Only for limits.")
    attachment_points = serializers.IntegerField(
        required=False, help_text="Number of attachment points with a new default. Only for defaults."
    )


class BulkBriefDocument(serializers.Serializer[Any]):
    """A change of many limits or defaults: a preview, or once it was carried out the record of it."""

    id = serializers.IntegerField(source="pk")
    what = serializers.CharField(help_text="Description of the change.")
    chosen = serializers.CharField(help_text="Description of the selection.")
    created_at = serializers.DateTimeField()
    created_by = serializers.CharField(source="created_by_email")
    applied_at = serializers.DateTimeField(allow_null=True, help_text="null: a preview that has not been applied.")
    reason = serializers.CharField()
    result = serializers.SerializerMethodField()
    puts_back = serializers.IntegerField(
        source="puts_back_id", allow_null=True, help_text="The change that this one undoes."
    )

    @extend_schema_field(BulkResultDocument(allow_null=True))
    def get_result(self, change: BulkChange) -> dict[str, int] | None:
        return change.result or None


def bulk_document(change: BulkChange) -> dict[str, Any]:
    """By subject: `BulkDocument` or `DefaultChangeDocument`. At most two statements besides the row."""
    more = _of_limits if change.about == BulkChange.About.LINKS else _of_defaults
    digest = hashlib.sha256(json.dumps(change.lines).encode()).hexdigest()
    return {**BulkBriefDocument(change).data, **more(change), "lines_sha256": digest}


def _left_out(skipped: Mapping[str, str]) -> serializers.ChoiceField:
    choices = list(skipped.items())
    return serializers.ChoiceField(choices=choices, allow_null=True, help_text="Reason; null: not skipped.")


# --- limits of Links ----------------------------------------------------------------------------------------------


class LeftOutDocument(serializers.Serializer[Any]):
    """Those that stay as they are, by reason."""

    why = serializers.ChoiceField(choices=list(bulk_limits.SKIPPED.items()))
    count = serializers.IntegerField()


class BulkDocument(BulkBriefDocument):
    """With who is affected. What happens to each Link stands at /api/v1/bulk-changes/{id}/links/."""

    links = serializers.IntegerField(help_text="Links with new limits.")
    left_out = LeftOutDocument(many=True)
    blocked = serializers.IntegerField(help_text="Links with a direction that the change blocks.")
    owners = serializers.IntegerField(help_text="Number of their owners.")
    attachment_points = serializers.ListField(
        child=serializers.CharField(), help_text="ISD-ASes of attachment points where the enforced limits change."
    )
    lines_sha256 = serializers.CharField(help_text="Digest of the changes per Link, so that the ETag covers them.")


def _of_limits(change: BulkChange) -> dict[str, Any]:
    summary = bulk_limits.summary_of(lines_of(change))
    return {
        "links": summary.links,
        "left_out": [{"why": why, "count": count} for why, count in summary.skipped.items()],
        "blocked": summary.blocked,
        "owners": summary.owners,
        "attachment_points": summary.attachment_points,
    }


class BulkLineDocument(serializers.Serializer[Any]):
    """One Link before and after."""

    link_id = serializers.IntegerField()
    isd_as = serializers.CharField(help_text="ISD-AS of the user AS; empty if the Link was deleted.")
    attachment_point = serializers.CharField(help_text="ISD-AS of the attachment point.")
    owner = serializers.CharField()
    active = serializers.BooleanField()
    old = LimitsDocument()
    new = LimitsDocument()
    old_enforced = LimitsDocument(help_text="Clamped to the maximum.")
    new_enforced = LimitsDocument()
    left_out = _left_out(bulk_limits.SKIPPED)


def bulk_line_documents(lines: list[LimitsLine], links: Mapping[int, Link]) -> list[dict[str, Any]]:
    return [_line(line, links.get(line.key)) for line in lines]


def _line(line: LimitsLine, link: Link | None) -> dict[str, Any]:
    return {
        "link_id": line.key,
        "isd_as": "" if link is None else link.interface_b.AS.isd_as,
        "attachment_point": "" if link is None else link.interface_a.AS.isd_as,
        "owner": "" if link is None else link.interface_b.AS.useras.owner.email,
        "active": link is not None and link.active,
        "old": line.old._asdict(),
        "new": line.new._asdict(),
        "old_enforced": line.old_in_force._asdict(),
        "new_enforced": line.new_in_force._asdict(),
        "left_out": line.skipped or None,
    }


# --- defaults -----------------------------------------------------------------------------------------------------


class AffectedDocument(serializers.Serializer[Any]):
    """Active Links that get another limit."""

    links = serializers.IntegerField()
    held = serializers.IntegerField(help_text="Number of these Links that are clamped, or blocked.")
    blocked = serializers.IntegerField(help_text="Number of these Links that are blocked.")
    released = serializers.IntegerField(help_text="Number of these Links that are no longer clamped.")
    owners = serializers.IntegerField()


class SiteLineDocument(serializers.Serializer[Any]):
    """The site default before and after."""

    old_default_kbit = serializers.IntegerField()
    new_default_kbit = serializers.IntegerField()
    left_out = _left_out(bulk_defaults.SKIPPED)


class DefaultLineDocument(SiteLineDocument):
    """One attachment point before and after; `own` null: the site's default counts."""

    attachment_point_id = serializers.IntegerField()
    isd_as = serializers.CharField(help_text="Empty if it was deleted.")
    old_own_kbit = serializers.IntegerField(allow_null=True)
    new_own_kbit = serializers.IntegerField(allow_null=True)
    old_default_kbit = serializers.IntegerField(help_text="Default in force: initial value and maximum of the Links.")


class DefaultChangeDocument(BulkBriefDocument):
    """With what happens to each attachment point, and who is affected."""

    site_default = SiteLineDocument(
        allow_null=True, help_text="null: not of the site default. Else attachment_points are those that follow it."
    )
    attachment_points = DefaultLineDocument(many=True)
    lines_sha256 = serializers.CharField(help_text="Digest of the changes per attachment point.")
    status = AffectedDocument(
        allow_null=True,
        help_text="The affected Links as of now; they may change while the ETag stays valid. null: already applied.",
    )


def _of_defaults(change: BulkChange) -> dict[str, Any]:
    lines = lines_of(change)
    aps = {line.key: line for line in lines if line.key != SITE}
    names = AttachmentPoint.objects.select_related("AS__isd").in_bulk(aps)
    return {
        "site_default": next((_in_force(line) for line in lines if line.key == SITE), None),
        "attachment_points": [_default_line(line, names.get(key)) for key, line in aps.items()],
        "status": None if change.applied_at else _affected(lines),
    }


def _in_force(line: DefaultLine) -> dict[str, Any]:
    return {
        "old_default_kbit": line.old_in_force,
        "new_default_kbit": line.new_in_force,
        "left_out": line.skipped or None,
    }


def _default_line(line: DefaultLine, ap: AttachmentPoint | None) -> dict[str, Any]:
    return {
        "attachment_point_id": line.key,
        "isd_as": "" if ap is None else ap.AS.isd_as,
        "old_own_kbit": line.old,
        "new_own_kbit": line.new,
        **_in_force(line),
    }


def _affected(lines: list[DefaultLine]) -> dict[str, int]:
    found = bulk_defaults.total_of(bulk_defaults.affected_by(lines).values())
    return {**asdict(found), "owners": len(found.owners)}
