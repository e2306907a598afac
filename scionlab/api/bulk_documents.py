"""What the REST API says of changes of many things at once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from scionlab.api.documents import LimitsDocument
from scionlab.models import BulkChange, Link
from scionlab.services.bulk import bulk_summary
from scionlab.services.bulk_plan import SKIPPED, Line


class BulkResultDocument(serializers.Serializer[Any]):
    """How many it concerned."""

    links = serializers.IntegerField()
    hosts = serializers.IntegerField(help_text="That get a new configuration.")
    mails = serializers.IntegerField(help_text="To owners, one for each.")


class BulkBriefDocument(serializers.Serializer[Any]):
    """A change of many limits: a preview, or once it was carried out the record of it."""

    id = serializers.IntegerField(source="pk")
    what = serializers.CharField(help_text="The change in words.")
    chosen = serializers.CharField(help_text="Which Links, in words.")
    created_at = serializers.DateTimeField()
    created_by = serializers.CharField(source="created_by_email")
    applied_at = serializers.DateTimeField(allow_null=True, help_text="null: a preview; nothing is changed.")
    reason = serializers.CharField()
    result = serializers.SerializerMethodField()
    puts_back = serializers.IntegerField(source="puts_back_id", allow_null=True, help_text="The change that it undoes.")

    @extend_schema_field(BulkResultDocument(allow_null=True))
    def get_result(self, change: BulkChange) -> dict[str, int] | None:
        return change.result or None


class LeftOutDocument(serializers.Serializer[Any]):
    """Links that stay as they are, by reason."""

    why = serializers.ChoiceField(choices=list(SKIPPED.items()))
    count = serializers.IntegerField()


class BulkDocument(BulkBriefDocument):
    """With who is affected. What happens to each Link stands at /api/v1/bulk-changes/{id}/links/."""

    links = serializers.IntegerField(help_text="Links with new limits.")
    left_out = LeftOutDocument(many=True)
    blocked = serializers.IntegerField(help_text="Links of which a direction is blocked by it.")
    owners = serializers.IntegerField(help_text="Their owners.")
    attachment_points = serializers.ListField(
        child=serializers.CharField(), help_text="ISD-ASes where something else is enforced by it."
    )
    lines_sha256 = serializers.CharField(help_text="Of what happens to each Link, so that the ETag stands for it too.")


def bulk_document(change: BulkChange) -> Any:
    """Two statements more than the row."""
    summary = bulk_summary(change)
    codes = {words: code for code, words in SKIPPED.items()}
    more = {
        "links": summary.links,
        "left_out": [{"why": codes.get(words, words), "count": count} for words, count in summary.skipped.items()],
        "blocked": summary.blocked,
        "owners": summary.owners,
        "attachment_points": summary.attachment_points,
        "lines_sha256": hashlib.sha256(json.dumps(change.lines).encode()).hexdigest(),
    }
    return {**BulkBriefDocument(change).data, **more}


class BulkLineDocument(serializers.Serializer[Any]):
    """One Link before and after."""

    link_id = serializers.IntegerField()
    isd_as = serializers.CharField(help_text="Of the user AS; empty where the Link is gone.")
    attachment_point = serializers.CharField(help_text="Its ISD-AS.")
    owner = serializers.CharField()
    active = serializers.BooleanField()
    old = LimitsDocument()
    new = LimitsDocument()
    old_enforced = LimitsDocument(help_text="At most the maximum there.")
    new_enforced = LimitsDocument()
    left_out = serializers.ChoiceField(choices=list(SKIPPED.items()), allow_null=True, help_text="null: it is changed.")


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
