"""What the REST API says of changes of many things at once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from scionlab.links.bulk import bulk_summary
from scionlab.links.bulk_defaults import affected_by, default_lines_of
from scionlab.links.bulk_plan import SKIPPED, Line
from scionlab.links.default_plan import DefaultLine
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


class LeftOutDocument(serializers.Serializer[Any]):
    """Those that stay as they are, by reason."""

    why = serializers.ChoiceField(choices=list(SKIPPED.items()))
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


def bulk_document(change: BulkChange) -> dict[str, Any]:
    """Two statements more than the row."""
    summary = bulk_summary(change)
    codes = {words: code for code, words in SKIPPED.items()}
    more = {
        "links": summary.links,
        "left_out": [{"why": codes.get(words, words), "count": count} for words, count in summary.skipped.items()],
        "blocked": summary.blocked,
        "owners": summary.owners,
        "attachment_points": summary.attachment_points,
        "lines_sha256": _digest(change),
    }
    return {**BulkBriefDocument(change).data, **more}


def _digest(change: BulkChange) -> str:
    return hashlib.sha256(json.dumps(change.lines).encode()).hexdigest()


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
    left_out = serializers.ChoiceField(
        choices=list(SKIPPED.items()), allow_null=True, help_text="Reason; null: not skipped."
    )


def bulk_line_documents(lines: list[Line], links: Mapping[int, Link]) -> list[dict[str, Any]]:
    return [_line(line, links.get(line.link_id)) for line in lines]


def _line(line: Line, link: Link | None) -> dict[str, Any]:
    limits = ("old", "new", "old_enforced", "new_enforced")
    return {
        "link_id": line.link_id,
        "isd_as": "" if link is None else link.interface_b.AS.isd_as,
        "attachment_point": "" if link is None else link.interface_a.AS.isd_as,
        "owner": "" if link is None else link.interface_b.AS.useras.owner.email,
        "active": link is not None and link.active,
        **{name: getattr(line, name)._asdict() for name in limits},
        "left_out": line.skipped or None,
    }


# --- defaults of attachment points ------------------------------------------------------------------------------


class AffectedDocument(serializers.Serializer[Any]):
    """Active Links that get another limit."""

    links = serializers.IntegerField()
    held = serializers.IntegerField(help_text="Number of these Links that are clamped.")
    owners = serializers.IntegerField()


class DefaultLineDocument(serializers.Serializer[Any]):
    """One attachment point before and after; `own` null: the site's default counts."""

    attachment_point_id = serializers.IntegerField()
    isd_as = serializers.CharField(help_text="Empty if it was deleted.")
    old_own_kbit = serializers.IntegerField(allow_null=True)
    new_own_kbit = serializers.IntegerField(allow_null=True)
    old_default_kbit = serializers.IntegerField(help_text="Default in force: initial value and maximum of the Links.")
    new_default_kbit = serializers.IntegerField()
    left_out = serializers.ChoiceField(
        choices=list(SKIPPED.items()), allow_null=True, help_text="Reason; null: not skipped."
    )


class DefaultChangeDocument(BulkBriefDocument):
    """With what happens to each attachment point, and who is affected."""

    attachment_points = DefaultLineDocument(many=True)
    lines_sha256 = serializers.CharField(help_text="Digest of the changes per attachment point.")
    status = AffectedDocument(
        allow_null=True,
        help_text="The affected Links as of now; they may change while the ETag stays valid. null: already applied.",
    )


def default_change_document(change: BulkChange) -> dict[str, Any]:
    """Three statements more than the row."""
    lines = default_lines_of(change)
    names = AttachmentPoint.objects.select_related("AS__isd").in_bulk([line.ap_id for line in lines])
    more = {
        "attachment_points": [_default_line(line, names.get(line.ap_id)) for line in lines],
        "lines_sha256": _digest(change),
        "status": None if change.applied_at else _affected(lines),
    }
    return {**BulkBriefDocument(change).data, **more}


def _default_line(line: DefaultLine, ap: AttachmentPoint | None) -> dict[str, Any]:
    return {
        "attachment_point_id": line.ap_id,
        "isd_as": "" if ap is None else ap.AS.isd_as,
        "old_own_kbit": line.old_kbit,
        "new_own_kbit": line.new_kbit,
        "old_default_kbit": line.old_maximum_kbit,
        "new_default_kbit": line.new_maximum_kbit,
        "left_out": line.skipped or None,
    }


def _affected(lines: list[DefaultLine]) -> dict[str, int]:
    found = affected_by(lines).values()
    owners: set[int] = set().union(*(one.owners for one in found))
    return {"links": sum(one.links for one in found), "held": sum(one.held for one in found), "owners": len(owners)}
