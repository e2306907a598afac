"""Defaults of many attachment points changed at once, for administrators: as `rest.bulk_views` does it with limits."""

# ruff: noqa: ARG002  REST framework hands every handler the request and the parts of its URL
from __future__ import annotations

from typing import Any

from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from scionlab.links.bulk_defaults import defaults_apply, defaults_preview, defaults_put_back, defaults_refresh
from scionlab.models import BulkChange
from scionlab.rest import bulk_bodies
from scionlab.rest.bulk_documents import BulkBriefDocument, DefaultChangeDocument, default_change_document
from scionlab.rest.bulk_views import BulkView
from scionlab.rest.queries import BulkQuery
from scionlab.rest.schema import describe


class DefaultChangeView(BulkView):
    about = BulkChange.About.DEFAULTS
    address = "/api/v1/default-changes/"

    def document(self, change: BulkChange) -> dict[str, Any]:
        return default_change_document(change)

    def apply(self, pk: int, reason: str) -> BulkChange:
        return defaults_apply(bulk_id=pk, actor=self.person, reason=reason)

    def refresh(self, pk: int) -> None:
        defaults_refresh(bulk_id=pk)


class DefaultChangeListView(DefaultChangeView):
    query = BulkQuery

    @describe("bulk changes", "Bulk changes of defaults", "Newest first.", answer=BulkBriefDocument, is_list=True)
    def get(self, request: Request) -> Response:
        return self.listed()

    @describe(
        "bulk changes",
        "Preview a bulk change of defaults",
        "Changes nothing. A preview that is not applied is deleted after a day.",
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
        },
    )
    def post(self, request: Request) -> Response:
        return self.once(self._create)

    def _create(self) -> Response:
        wanted: bulk_bodies.DefaultsBody = bulk_bodies.checked(bulk_bodies.DefaultsBody, self.request.data)
        operation, (ap_ids, words) = wanted.operation(), wanted.choice()
        return self.made(defaults_preview(ap_ids=ap_ids, operation=operation, chosen=words, actor=self.person))


class DefaultChangeDetailView(DefaultChangeView):
    @describe("bulk changes", "One bulk change of defaults", answer=DefaultChangeDocument)
    def get(self, request: Request, pk: int) -> Response:
        return Response(self.document(self.change(pk)))


class DefaultChangeApplyView(DefaultChangeView):
    @describe(
        "bulk changes",
        "Apply a preview of defaults",
        "As for limits: applies all of it or nothing, If-Match is required, and applying it again does nothing. "
        "The limits follow within seconds. Owners whose limits are clamped get an email.",
        body=bulk_bodies.ReasonBody,
        answer=DefaultChangeDocument,
        examples={"With a reason": {"reason": "New lines everywhere."}},
    )
    def post(self, request: Request, pk: int) -> Response:
        return self.confirmed(pk)


class DefaultChangePutBackView(DefaultChangeView):
    @describe(
        "bulk changes",
        "Preview undoing a change of defaults",
        "Creates a preview. Attachment points that have been changed since are skipped.",
        answer=DefaultChangeDocument,
        success=status.HTTP_201_CREATED,
    )
    def post(self, request: Request, pk: int) -> Response:
        self.change(pk)
        return self.once(lambda: self.made(defaults_put_back(bulk_id=pk, actor=self.person)))
