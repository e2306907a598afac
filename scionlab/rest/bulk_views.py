"""Many limits changed at once, for administrators: a preview is made, looked at, and carried out as it was shown."""

# ruff: noqa: ARG002  REST framework hands every handler the request and the parts of its URL
from __future__ import annotations

from typing import Any

from django.db import transaction
from django.shortcuts import get_object_or_404
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
from scionlab.links.bulk_plan import Line
from scionlab.models import BulkChange, Link
from scionlab.platform.etags import Stale, check_if_match, etag_of
from scionlab.rest import bulk_bodies
from scionlab.rest.base import ApiView, StaffOnly
from scionlab.rest.bulk_documents import (
    BulkBriefDocument,
    BulkDocument,
    BulkLineDocument,
    bulk_document,
    bulk_line_documents,
)
from scionlab.rest.queries import BulkLineQuery, BulkQuery
from scionlab.rest.schema import describe

_LINK_RELATIONS = ("interface_a__AS__isd", "interface_b__AS__isd", "interface_b__AS__useras__owner")


class IfMatchMissing(exceptions.APIException):
    """428 (RFC 6585): to confirm is to say what was looked at."""

    status_code = status.HTTP_428_PRECONDITION_REQUIRED

    def __init__(self) -> None:
        super().__init__(
            "If-Match is missing. Send the ETag of the preview that you want to apply.",
            "if_match_missing",
        )


class BulkView(ApiView):
    """What changes of Links' limits and of defaults do alike."""

    permission_classes = (*ApiView.permission_classes, StaffOnly)
    about = BulkChange.About.LINKS
    address = "/api/v1/bulk-changes/"

    def change(self, pk: int) -> BulkChange:
        """Raises `Http404`."""
        return get_object_or_404(BulkChange, pk=pk, about=self.about)

    def document(self, change: BulkChange) -> dict[str, Any]:
        return bulk_document(change)

    def apply(self, pk: int, reason: str) -> BulkChange:
        """Raises `BulkChangedError`, `RuleError`."""
        return bulk_apply(bulk_id=pk, actor=self.person, reason=reason)

    def refresh(self, pk: int) -> None:
        bulk_refresh(bulk_id=pk)

    # --- the same for both ------------------------------------------------------------------------------------

    def listed(self) -> Response:
        rows = BulkChange.objects.filter(about=self.about).defer("lines").order_by("-pk")
        if "applied" in self.asked:
            rows = rows.filter(applied_at__isnull=not self.asked["applied"])
        return self.page_of(rows, lambda found: BulkBriefDocument(found, many=True).data)

    def made(self, change: BulkChange) -> Response:
        location = self.request.build_absolute_uri(f"{self.address}{change.pk}/")
        return Response(self.document(change), status=status.HTTP_201_CREATED, headers={"Location": location})

    def confirmed(self, pk: int) -> Response:
        """Raises `Stale` with the preview made anew where somebody changed what it showed."""
        self.change(pk)
        reason = bulk_bodies.checked(bulk_bodies.ReasonBody, self.request.data).validated_data["reason"]
        header = self.request.headers.get("If-Match")
        if header is None:
            raise IfMatchMissing
        try:
            return Response(self.document(self._apply(pk, header, reason)))
        except BulkChangedError as exc:
            self.refresh(pk)
            current = self.document(self.change(pk))
            raise Stale(current=current, etag=etag_of(current)) from exc

    @transaction.atomic
    def _apply(self, pk: int, header: str, reason: str) -> BulkChange:
        change = bulk_lock(bulk_id=pk, about=self.about)
        if change.applied_at is None:
            check_if_match(header, self.document(change))
        return self.apply(pk, reason)


class BulkListView(BulkView):
    query = BulkQuery

    @describe("bulk changes", "Bulk changes of limits", "Newest first.", answer=BulkBriefDocument, is_list=True)
    def get(self, request: Request) -> Response:
        return self.listed()

    @describe(
        "bulk changes",
        "Preview a bulk change of limits",
        "Changes nothing. Links whose new limit would exceed the maximum are skipped. A preview that is not "
        "applied is deleted after a day.",
        body=bulk_bodies.BulkLimitsBody,
        answer=BulkDocument,
        success=status.HTTP_201_CREATED,
        examples={
            "Cap all Links of one attachment point": {"kind": "cap", "bandwidth_kbit": 500, "attachment_point_id": 1},
            "Halve three": {"kind": "scale", "percent": 50, "link_ids": [7, 8, 9]},
        },
    )
    def post(self, request: Request) -> Response:
        return self.once(self._create)

    def _create(self) -> Response:
        wanted: bulk_bodies.BulkLimitsBody = bulk_bodies.checked(bulk_bodies.BulkLimitsBody, self.request.data)
        operation, choice = wanted.operation(), wanted.choice()
        made = bulk_preview(link_ids=choice.link_ids(), operation=operation, chosen=choice.words, actor=self.person)
        return self.made(made)


class BulkDetailView(BulkView):
    @describe("bulk changes", "One bulk change of limits and the affected Links", answer=BulkDocument)
    def get(self, request: Request, pk: int) -> Response:
        return Response(self.document(self.change(pk)))


class BulkLinksView(BulkView):
    query = BulkLineQuery

    @describe("bulk changes", "Changes per Link", "Sorted by Link.", answer=BulkLineDocument, is_list=True)
    def get(self, request: Request, pk: int) -> Response:
        lines = lines_of(self.change(pk))
        if "left_out" in self.asked:
            lines = [line for line in lines if bool(line.skipped) == self.asked["left_out"]]
        return self.page_of(lines, _documents)


def _documents(lines: list[Line]) -> list[dict[str, Any]]:
    links = Link.objects.select_related(*_LINK_RELATIONS).in_bulk([line.link_id for line in lines])
    return bulk_line_documents(lines, links)


class BulkApplyView(BulkView):
    @describe(
        "bulk changes",
        "Apply a preview",
        "Applies all of it or nothing. If-Match with the ETag of the preview is required (otherwise 428). If the "
        "previewed Links were changed since, nothing is applied and the response is 412 with a new preview. "
        "Applying a change again does nothing and returns it.",
        body=bulk_bodies.ReasonBody,
        answer=BulkDocument,
        examples={"With a reason": {"reason": "The line to Zurich is full."}},
    )
    def post(self, request: Request, pk: int) -> Response:
        return self.confirmed(pk)


class BulkPutBackView(BulkView):
    @describe(
        "bulk changes",
        "Preview undoing a change",
        "Creates a preview. Links that have been changed since are skipped.",
        answer=BulkDocument,
        success=status.HTTP_201_CREATED,
    )
    def post(self, request: Request, pk: int) -> Response:
        self.change(pk)
        return self.once(lambda: self.made(bulk_put_back(bulk_id=pk, actor=self.person)))
