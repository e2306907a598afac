"""User ASes over the REST API, with the same services as the pages."""

# ruff: noqa: ARG002  REST framework hands every handler the request and the parts of its URL
from __future__ import annotations

from typing import Any

from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from rest_framework import exceptions, status
from rest_framework.request import Request
from rest_framework.response import Response

from scionlab.platform.api_errors import RuleViolations
from scionlab.testbed.locks import lock_user_as
from scionlab.testbed.models import Link, UserAS
from scionlab.testbed.selectors import hosts_of, links_by_as
from scionlab.user_ases.attachment_rules import check_attachments
from scionlab.user_ases.download import UNAVAILABLE, download_of
from scionlab.user_ases.rest import bodies, documents
from scionlab.user_ases.rest.queries import UserASQuery
from scionlab.user_ases.user_as import user_as_change, user_as_create, user_as_delete, user_as_update
from scionlab.web.rest.base import ApiView, HoldsSecret
from scionlab.web.rest.schema import BINARY, describe

_ATTACHMENT = {"attachment_point_id": 1, "public_ip": "198.51.100.30", "public_port": 50000, "bandwidth_kbit": 250}
EXAMPLE = {"label": "Lab", "installation_type": "dedicated", "attachments": [_ATTACHMENT]}
KEEP_AND_ADD = {
    "label": "Lab",
    "installation_type": "dedicated",
    "attachments": [{"link_id": 7, **_ATTACHMENT}, {"attachment_point_id": 2, "use_vpn": True}],
}


class NotRenderable(exceptions.APIException):
    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_code = "configuration_unavailable"
    default_detail = UNAVAILABLE
    headers = {"Retry-After": "60"}


class UserASView(ApiView):
    def rows(self) -> QuerySet[UserAS]:
        ases = UserAS.objects.select_related("isd", "owner")
        return ases if self.person.is_staff else ases.filter(owner=self.person)

    def user_as(self, pk: int) -> UserAS:
        """Raises `Http404`."""
        return get_object_or_404(self.rows(), pk=pk)

    def documents(self, ases: list[UserAS]) -> Any:
        """The ASes with their Links; three additional statements for any number."""
        by_as = links_by_as(ases)
        documents.with_fields([link for links in by_as.values() for link in links])
        return documents.UserASDocument(ases, many=True, context={"links_by_as": by_as, "hosts": hosts_of(ases)}).data

    def document(self, pk: int) -> Any:
        return self.documents([self.user_as(pk)])[0]

    def checked(self, user_as: UserAS | None) -> dict[str, Any]:
        """Arguments of the service. Raises `ValidationError` for malformed values, `RuleViolations` with all broken
        rules."""
        values = self.sent(bodies.UserASBody).values()
        kind = values["installation_type"]
        errors = check_attachments(values["attachments"], user_as=user_as, installation_type=kind, reader=self.person)
        if errors:
            raise RuleViolations(errors)
        return values


class UserASListView(UserASView):
    query = UserASQuery

    @describe("ASes", "Your ASes", answer=documents.UserASDocument, is_list=True)
    def get(self, request: Request) -> Response:
        return self.page_of(_filtered(self.rows(), self.asked), self.documents)

    @describe(
        "ASes",
        "Create an AS",
        "With its host and one Link per attachment. Over the VPN (`use_vpn`) no address is needed.",
        body=bodies.UserASBody,
        answer=documents.UserASDocument,
        success=status.HTTP_201_CREATED,
        examples={"One attachment": EXAMPLE},
    )
    def post(self, request: Request) -> Response:
        return self.once(self._create)

    def _create(self) -> Response:
        made = user_as_create(owner=self.person, actor=self.person, **self.checked(None))
        return self.created(f"/api/v1/ases/{made.pk}/", self.document(made.pk))


def _filtered(ases: QuerySet[UserAS], asked: dict[str, Any]) -> QuerySet[UserAS]:
    links = Link.objects.filter(type=Link.Type.PROVIDER, interface_b__AS=OuterRef("pk"))
    if "attachment_point_id" in asked:
        ases = ases.filter(Exists(links.filter(interface_a__AS__attachment_point=asked["attachment_point_id"])))
    if "active" in asked:
        has_active = Exists(links.filter(active=True))
        ases = ases.filter(has_active if asked["active"] else ~has_active)
    columns = {"label": "label__icontains", "owner": "owner__email__iexact"}
    ases = ases.filter(**{column: asked[name] for name, column in columns.items() if name in asked})
    return ases.order_by(asked["sort"], "pk")


class UserASDetailView(UserASView):
    @describe("ASes", "One of your ASes", answer=documents.UserASDocument)
    def get(self, request: Request, pk: int) -> Response:
        return Response(self.document(pk))

    @describe(
        "ASes",
        "Replace an AS",
        "Attachments with a `link_id` are kept or edited, others added, missing ones removed. Send If-Match so "
        "that concurrent changes are not overwritten.",
        body=bodies.UserASBody,
        answer=documents.UserASDocument,
        examples={"Keep one, add one": KEEP_AND_ADD},
    )
    def put(self, request: Request, pk: int) -> Response:
        values = self.checked(self.user_as(pk))
        joins = {spec.attachment_point_id for spec in values["attachments"]}
        with self.changing(lambda: lock_user_as(pk, joins=joins), lambda: self.document(pk)):
            user_as_update(user_as_id=pk, actor=self.person, **values)
        return Response(self.document(pk))

    @describe(
        "ASes",
        "Rename an AS, limit or (de)activate all its attachments, or set the packages of its host",
        "Omitted fields keep their values. A label is for people only: it changes no configuration.",
        body=bodies.UserASChangeBody,
        answer=documents.UserASDocument,
        examples={"Rename": {"label": "Lab, second floor"}, "One limit for all Links": {"bandwidth_kbit": 500}},
    )
    def patch(self, request: Request, pk: int) -> Response:
        self.user_as(pk)
        wanted = self.sent(bodies.UserASChangeBody).validated_data
        with self.changing(lambda: lock_user_as(pk), lambda: self.document(pk)):
            user_as_change(user_as_id=pk, actor=self.person, **wanted)
        return Response(self.document(pk))

    @describe("ASes", "Delete an AS", "With its host and Links.", success=status.HTTP_204_NO_CONTENT)
    def delete(self, request: Request, pk: int) -> Response:
        self.user_as(pk)
        with self.changing(lambda: lock_user_as(pk), lambda: self.document(pk)):
            user_as_delete(user_as_id=pk, actor=self.person)
        return Response(status=status.HTTP_204_NO_CONTENT)


class UserASConfigurationView(UserASView):
    permission_classes = (*UserASView.permission_classes, HoldsSecret)

    @describe(
        "ASes",
        "Download the configuration of an AS",
        "The configuration folder of the host as tar.gz. It contains the secret of the host, so a read-only token "
        "is rejected.",
        answer=BINARY,
    )
    def get(self, request: Request, pk: int) -> HttpResponse:
        response = download_of(self.user_as(pk))
        if response is None:
            raise NotRenderable
        return response
