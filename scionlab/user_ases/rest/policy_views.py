"""Attachment points and defaults. Everyone can read them, administrators can set them."""

# ruff: noqa: ARG002  REST framework hands every handler the request and the parts of its URL
from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from scionlab.limits.defaults import ap_default_set, site_default_set
from scionlab.testbed import locks
from scionlab.testbed.models import AttachmentPoint
from scionlab.testbed.selectors import open_attachment_points, policy
from scionlab.user_ases.rest import bodies, documents
from scionlab.user_ases.rest.queries import AttachmentPointQuery
from scionlab.web.rest.base import ApiView, StaffWrites
from scionlab.web.rest.schema import describe


class AttachmentPointView(ApiView):
    permission_classes = (*ApiView.permission_classes, StaffWrites)

    def documents(self, rows: list[AttachmentPoint]) -> Any:
        return documents.AttachmentPointDocument(rows, many=True, context={"policy": policy()}).data

    def document(self, pk: int) -> Any:
        return self.documents([get_object_or_404(open_attachment_points(), pk=pk)])[0]


class AttachmentPointListView(AttachmentPointView):
    query = AttachmentPointQuery

    @describe("attachment points", "Attachment points", answer=documents.AttachmentPointDocument, is_list=True)
    def get(self, request: Request) -> Response:
        return self.page_of(_filtered(open_attachment_points(), self.asked), self.documents)


def _filtered(rows: QuerySet[AttachmentPoint], asked: dict[str, Any]) -> QuerySet[AttachmentPoint]:
    if "isd" in asked:
        rows = rows.filter(AS__isd__isd_id=asked["isd"])
    if "has_vpn" in asked:
        rows = rows.filter(host__vpn__isnull=not asked["has_vpn"])
    sign = "-" if asked["sort"].startswith("-") else ""
    columns = ("pk",) if asked["sort"].endswith("id") else ("AS__isd__isd_id", "AS__as_id")
    return rows.order_by(*(sign + column for column in columns))


class AttachmentPointDetailView(AttachmentPointView):
    @describe("attachment points", "One attachment point", answer=documents.AttachmentPointDocument)
    def get(self, request: Request, pk: int) -> Response:
        return Response(self.document(pk))

    @describe(
        "attachment points",
        "Set the default bandwidth of an attachment point",
        "For administrators. Initial value and maximum of the Links; applied within seconds.",
        body=bodies.OwnDefaultBody,
        answer=documents.AttachmentPointDocument,
        examples={
            "Own default": {"own_default_bandwidth_kbit": 2000},
            "Site default": {"own_default_bandwidth_kbit": None},
        },
    )
    def patch(self, request: Request, pk: int) -> Response:
        self.document(pk)
        wanted = self.sent(bodies.OwnDefaultBody).validated_data
        with self.changing(lambda: locks.lock_attachment_points([pk]), lambda: self.document(pk)):
            ap_default_set(
                attachment_point_id=pk,
                default_bandwidth_kbit=wanted["own_default_bandwidth_kbit"],
                actor=self.person,
                reason=wanted["reason"],
            )
        return Response(self.document(pk))


class PolicyView(ApiView):
    permission_classes = (*ApiView.permission_classes, StaffWrites)

    def document(self) -> Any:
        return documents.PolicyDocument(policy()).data

    @describe("attachment points", "Site default bandwidth", answer=documents.PolicyDocument)
    def get(self, request: Request) -> Response:
        return Response(self.document())

    @describe(
        "attachment points",
        "Set the site default bandwidth",
        "For administrators. Applies to every attachment point without a default of its own.",
        body=bodies.DefaultBody,
        answer=documents.PolicyDocument,
        examples={"10 Mbit/s": {"default_bandwidth_kbit": 10000}},
    )
    def patch(self, request: Request) -> Response:
        wanted = self.sent(bodies.DefaultBody).validated_data
        with self.changing(locks.lock_policy, self.document):
            site_default_set(actor=self.person, **wanted)
        return Response(self.document())
