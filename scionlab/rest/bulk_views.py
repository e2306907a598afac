"""Many limits or defaults changed at once, for administrators: a preview is made, looked at, and carried out as it was
shown. What both kinds do alike is in the first half; the second describes the addresses of each."""

# ruff: noqa: ARG002  REST framework hands every handler the request and the parts of its URL
from __future__ import annotations

from typing import Any

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
    """428 (RFC 6585): to confirm is to say what was looked at."""

    status_code = status.HTTP_428_PRECONDITION_REQUIRED

    def __init__(self) -> None:
        super().__init__(
            "If-Match is missing. Send the ETag of the preview that you want to apply.",
            "if_match_missing",
        )


class BulkView(ApiView):
    permission_classes = (*ApiView.permission_classes, StaffOnly)
    about = BulkChange.About.LINKS
    address = "/api/v1/bulk-changes/"

    def change(self, pk: int) -> BulkChange:
        """Raises `Http404`."""
        return get_object_or_404(BulkChange, pk=pk, about=self.about)

    def made(self, change: BulkChange) -> Response:
        location = self.request.build_absolute_uri(f"{self.address}{change.pk}/")
        return Response(bulk_document(change), status=status.HTTP_201_CREATED, headers={"Location": location})


class ListView(BulkView):
    query = BulkQuery
    body: type[bulk_bodies.OperationBody]

    def get(self, request: Request) -> Response:
        rows = BulkChange.objects.filter(about=self.about).defer("lines").order_by("-pk")
        if "applied" in self.asked:
            rows = rows.filter(applied_at__isnull=not self.asked["applied"])
        return self.page_of(rows, lambda found: BulkBriefDocument(found, many=True).data)

    def post(self, request: Request) -> Response:
        return self.once(self._create)

    def _create(self) -> Response:
        wanted = bulk_bodies.checked(self.body, self.request.data)
        operation, (keys, words) = wanted.operation(), wanted.chosen()
        return self.made(
            bulk_preview(about=self.about, keys=keys, operation=operation, chosen=words, actor=self.person)
        )


class DetailView(BulkView):
    def get(self, request: Request, pk: int) -> Response:
        return Response(bulk_document(self.change(pk)))


class ApplyView(BulkView):
    def post(self, request: Request, pk: int) -> Response:
        """Raises `Stale` with the preview made anew where somebody changed what it showed."""
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


# --- limits of Links ----------------------------------------------------------------------------------------------

TAG = "bulk changes"


@extend_schema_view(
    get=describe(TAG, "Bulk changes of limits", "Newest first.", answer=BulkBriefDocument, is_list=True),
    post=describe(
        TAG,
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
    ),
)
class BulkListView(ListView):
    body = bulk_bodies.BulkLimitsBody


@extend_schema_view(get=describe(TAG, "One bulk change of limits and the affected Links", answer=BulkDocument))
class BulkDetailView(DetailView):
    pass


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


@extend_schema_view(
    post=describe(
        TAG,
        "Apply a preview",
        "Applies all of it or nothing. If-Match with the ETag of the preview is required (otherwise 428). If the "
        "previewed Links were changed since, nothing is applied and the response is 412 with a new preview. "
        "Applying a change again does nothing and returns it.",
        body=bulk_bodies.ReasonBody,
        answer=BulkDocument,
        examples={"With a reason": {"reason": "The line to Zurich is full."}},
    )
)
class BulkApplyView(ApplyView):
    pass


@extend_schema_view(
    post=describe(
        TAG,
        "Preview undoing a change",
        "Creates a preview. Links that have been changed since are skipped.",
        answer=BulkDocument,
        success=status.HTTP_201_CREATED,
    )
)
class BulkPutBackView(PutBackView):
    pass


# --- defaults -----------------------------------------------------------------------------------------------------


class OfDefaults(BulkView):
    about = BulkChange.About.DEFAULTS
    address = "/api/v1/default-changes/"


@extend_schema_view(
    get=describe(TAG, "Bulk changes of defaults", "Newest first.", answer=BulkBriefDocument, is_list=True),
    post=describe(
        TAG,
        "Preview a bulk change of defaults",
        "Of attachment points, or of the site. Changes nothing. A preview that is not applied is deleted after a day.",
        body=bulk_bodies.DefaultsBody,
        answer=DefaultChangeDocument,
        success=status.HTTP_201_CREATED,
        examples={
            "10 Mbit/s at each attachment point": {
                "kind": "set",
                "bandwidth_kbit": 10000,
                "every_attachment_point": True,
            },
            "Follow the site default": {"kind": "site", "isd": 17},
            "The site default": {"kind": "set", "bandwidth_kbit": 2000, "site_default": True},
        },
    ),
)
class DefaultChangeListView(OfDefaults, ListView):
    body = bulk_bodies.DefaultsBody


@extend_schema_view(get=describe(TAG, "One bulk change of defaults", answer=DefaultChangeDocument))
class DefaultChangeDetailView(OfDefaults, DetailView):
    pass


@extend_schema_view(
    post=describe(
        TAG,
        "Apply a preview of defaults",
        "As for limits: applies all of it or nothing, If-Match is required, and applying it again does nothing. "
        "The limits follow within seconds. Owners whose limits are clamped get an email.",
        body=bulk_bodies.ReasonBody,
        answer=DefaultChangeDocument,
        examples={"With a reason": {"reason": "New lines everywhere."}},
    )
)
class DefaultChangeApplyView(OfDefaults, ApplyView):
    pass


@extend_schema_view(
    post=describe(
        TAG,
        "Preview undoing a change of defaults",
        "Creates a preview. What has been changed since is skipped.",
        answer=DefaultChangeDocument,
        success=status.HTTP_201_CREATED,
    )
)
class DefaultChangePutBackView(OfDefaults, PutBackView):
    pass
