"""Bulk changes for administrators: create a preview, read it, apply it as shown. `_views` makes the URLs of both
kinds."""

# ruff: noqa: ARG002  REST framework hands every handler the request and the parts of its URL
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.db import transaction
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema_view
from rest_framework import exceptions, status
from rest_framework.request import Request
from rest_framework.response import Response

from scionlab.links.bulk import (
    BulkChangedError,
    bulk_apply,
    bulk_lock,
    bulk_preview,
    bulk_put_back,
    bulk_refresh,
    lines_of,
)
from scionlab.links.bulk_plan import LimitsLine
from scionlab.models import BulkChange, Link
from scionlab.platform.etags import Stale, check_if_match, etag_of
from scionlab.rest import bulk_bodies
from scionlab.rest.base import ApiView, StaffOnly
from scionlab.rest.bulk_documents import (
    BulkBriefDocument,
    BulkDocument,
    BulkLineDocument,
    DefaultChangeDocument,
    bulk_document,
    bulk_line_documents,
)
from scionlab.rest.queries import BulkLineQuery, BulkQuery
from scionlab.rest.schema import describe

_LINK_RELATIONS = ("interface_a__AS__isd", "interface_b__AS__isd", "interface_b__AS__useras__owner")


class IfMatchMissing(exceptions.APIException):
    """428 (RFC 6585): confirming requires the tag of the preview."""

    status_code = status.HTTP_428_PRECONDITION_REQUIRED

    def __init__(self) -> None:
        super().__init__(
            "If-Match is missing. Send the ETag of the preview that you want to apply.",
            "if_match_missing",
        )


TAG = "bulk changes"
About = BulkChange.About


@dataclass(frozen=True)
class Kind:
    """Differences between changes of limits and of defaults."""

    about: BulkChange.About
    address: str
    noun: str
    body: type[bulk_bodies.BulkLimitsBody | bulk_bodies.DefaultsBody]
    document: type[BulkBriefDocument]
    preview: str  # description of a preview
    reason: str  # an example
    examples: Mapping[str, Any]  # of the body


LIMITS: Final = Kind(
    About.LINKS,
    "/api/v1/bulk-changes/",
    "limits",
    bulk_bodies.BulkLimitsBody,
    BulkDocument,
    "Links whose new limit would exceed the maximum are skipped.",
    "The line to Zurich is full.",
    {
        "Cap all Links of one attachment point": {"kind": "cap", "bandwidth_kbit": 500, "attachment_point_id": 1},
        "Halve three": {"kind": "scale", "percent": 50, "link_ids": [7, 8, 9]},
    },
)
DEFAULTS: Final = Kind(
    About.DEFAULTS,
    "/api/v1/default-changes/",
    "defaults",
    bulk_bodies.DefaultsBody,
    DefaultChangeDocument,
    "Of attachment points, or of the site. Once it is applied, the limits follow within seconds, and owners whose "
    "limits are clamped get an email.",
    "New lines everywhere.",
    {
        "10 Mbit/s at each attachment point": {"kind": "set", "bandwidth_kbit": 10000, "every_attachment_point": True},
        "Follow the site default": {"kind": "site", "isd": 17},
        "The site default": {"kind": "set", "bandwidth_kbit": 2000, "site_default": True},
    },
)


class BulkView(ApiView):
    permission_classes = (*ApiView.permission_classes, StaffOnly)
    kind = LIMITS

    def change(self, pk: int) -> BulkChange:
        """Raises `Http404`."""
        return get_object_or_404(BulkChange, pk=pk, about=self.kind.about)

    def made(self, change: BulkChange) -> Response:
        location = self.request.build_absolute_uri(f"{self.kind.address}{change.pk}/")
        return Response(bulk_document(change), status=status.HTTP_201_CREATED, headers={"Location": location})


class ListView(BulkView):
    query = BulkQuery

    def get(self, request: Request) -> Response:
        rows = BulkChange.objects.filter(about=self.kind.about).defer("lines").order_by("-pk")
        if "applied" in self.asked:
            rows = rows.filter(applied_at__isnull=not self.asked["applied"])
        return self.page_of(rows, lambda found: BulkBriefDocument(found, many=True).data)

    def post(self, request: Request) -> Response:
        return self.once(self._create)

    def _create(self) -> Response:
        wanted = bulk_bodies.checked(self.kind.body, self.request.data)
        operation, (keys, words) = wanted.operation(), wanted.chosen()
        return self.made(
            bulk_preview(about=self.kind.about, keys=keys, operation=operation, chosen=words, actor=self.person)
        )


class DetailView(BulkView):
    def get(self, request: Request, pk: int) -> Response:
        return Response(bulk_document(self.change(pk)))


class ApplyView(BulkView):
    def post(self, request: Request, pk: int) -> Response:
        """Raises `Stale` with the refreshed preview if its values changed."""
        self.change(pk)
        reason = bulk_bodies.checked(bulk_bodies.ReasonBody, request.data).validated_data["reason"]
        header = request.headers.get("If-Match")
        if header is None:
            raise IfMatchMissing
        try:
            return Response(bulk_document(self._apply(pk, header, reason)))
        except BulkChangedError as exc:
            bulk_refresh(bulk_id=pk)
            current = bulk_document(self.change(pk))
            raise Stale(current=current, etag=etag_of(current)) from exc

    @transaction.atomic
    def _apply(self, pk: int, header: str, reason: str) -> BulkChange:
        change = bulk_lock(bulk_id=pk)
        if change.applied_at is None:
            check_if_match(header, bulk_document(change))
        return bulk_apply(bulk_id=pk, actor=self.person, reason=reason)


class PutBackView(BulkView):
    def post(self, request: Request, pk: int) -> Response:
        self.change(pk)
        return self.once(lambda: self.made(bulk_put_back(bulk_id=pk, actor=self.person)))


View = type[BulkView]


def _views(of: Kind) -> tuple[View, View, View, View]:
    """The four views of one kind: list, detail, apply and undo."""

    @extend_schema_view(
        get=describe(TAG, f"Bulk changes of {of.noun}", "Newest first.", answer=BulkBriefDocument, is_list=True),
        post=describe(
            TAG,
            f"Preview a bulk change of {of.noun}",
            f"Changes nothing. {of.preview} A preview that is not applied is deleted after a day.",
            body=of.body,
            answer=of.document,
            success=status.HTTP_201_CREATED,
            examples=of.examples,
        ),
    )
    class All(ListView):
        kind = of

    @extend_schema_view(get=describe(TAG, f"One bulk change of {of.noun}, and what it affects", answer=of.document))
    class One(DetailView):
        kind = of

    @extend_schema_view(
        post=describe(
            TAG,
            f"Apply a preview of {of.noun}",
            "Applies all of it or nothing. If-Match with the ETag of the preview is required (otherwise 428). If what "
            "it shows was changed since, nothing is applied and the response is 412 with a new preview. "
            "Applying a change again does nothing and returns it.",
            body=bulk_bodies.ReasonBody,
            answer=of.document,
            examples={"With a reason": {"reason": of.reason}},
        )
    )
    class Apply(ApplyView):
        kind = of

    @extend_schema_view(
        post=describe(
            TAG,
            f"Preview undoing a change of {of.noun}",
            "Creates a preview. Values that have changed since then are skipped.",
            answer=of.document,
            success=status.HTTP_201_CREATED,
        )
    )
    class PutBack(PutBackView):
        kind = of

    return All, One, Apply, PutBack


BulkListView, BulkDetailView, BulkApplyView, BulkPutBackView = _views(LIMITS)
DefaultChangeListView, DefaultChangeDetailView, DefaultChangeApplyView, DefaultChangePutBackView = _views(DEFAULTS)


class BulkLinksView(BulkView):
    query = BulkLineQuery

    @describe(TAG, "Changes per Link", "Sorted by Link.", answer=BulkLineDocument, is_list=True)
    def get(self, request: Request, pk: int) -> Response:
        lines = lines_of(self.change(pk))
        if "left_out" in self.asked:
            lines = [line for line in lines if bool(line.skipped) == self.asked["left_out"]]
        return self.page_of(lines, _documents)


def _documents(lines: list[LimitsLine]) -> list[dict[str, Any]]:
    links = Link.objects.select_related(*_LINK_RELATIONS).in_bulk([line.key for line in lines])
    return bulk_line_documents(lines, links)
