"""The REST API v1: people's scripts see and change their own ASes and Links, by the same services as the pages.

What is a stranger's does not exist (404). Staff see everything.
"""

# ruff: noqa: ARG002  REST framework hands every handler the request and the parts of its URL
from __future__ import annotations

from typing import Any

from django.contrib.auth import authenticate
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import exceptions, status
from rest_framework.generics import GenericAPIView
from rest_framework.permissions import AllowAny, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

from bandwidth_config import RuleError
from scionlab.api import serializers
from scionlab.api.errors import RuleViolations
from scionlab.api.throttles import TokenThrottle
from scionlab.models import ApiToken, AttachmentPoint, Link, User, UserAS
from scionlab.selectors import open_attachment_points, policy, with_relations
from scionlab.services.api_token import api_token_create, api_token_revoke
from scionlab.services.link import link_update
from scionlab.services.user_as import (
    check_attachments,
    user_as_create,
    user_as_delete,
    user_as_set_active,
    user_as_update,
)

ERRORS = {
    400: serializers.ErrorSerializer,
    401: serializers.ErrorSerializer,
    404: serializers.ErrorSerializer,
    429: serializers.ErrorSerializer,
}


def _user(request: Request) -> User:
    assert isinstance(request.user, User)  # noqa: S101  IsAuthenticated let nobody else through; for the type checker
    return request.user


# --- Links --------------------------------------------------------------------------------------------------


def _links_of(user: User) -> QuerySet[Link]:
    links = Link.objects.filter(type=Link.Type.PROVIDER, interface_b__AS__useras__isnull=False)
    if not user.is_staff:
        links = links.filter(interface_b__AS__useras__owner=user)
    return with_relations(links).order_by("pk")


class LinkView(GenericAPIView[Link]):
    serializer_class = serializers.LinkSerializer
    permission_classes = (IsAuthenticated,)

    def get_queryset(self) -> QuerySet[Link]:
        if getattr(self, "swagger_fake_view", False):
            return Link.objects.none()
        return _links_of(_user(self.request))


class LinkListView(LinkView):
    @extend_schema(summary="Your Links", responses=serializers.LinkSerializer(many=True))
    def get(self, request: Request) -> Response:
        page = self.paginate_queryset(self.get_queryset())
        return self.get_paginated_response(self.get_serializer(page, many=True).data)


class LinkDetailView(LinkView):
    @extend_schema(summary="One of your Links", responses={200: serializers.LinkSerializer, **ERRORS})
    def get(self, request: Request, pk: int) -> Response:
        return Response(self.get_serializer(self.get_object()).data)

    @extend_schema(
        summary="Change the bandwidth of a Link, or (de)activate it",
        request=serializers.LinkChangeSerializer,
        responses={200: serializers.LinkSerializer, **ERRORS},
    )
    def patch(self, request: Request, pk: int) -> Response:
        link = self.get_object()
        change = serializers.LinkChangeSerializer(data=request.data)
        change.is_valid(raise_exception=True)
        wanted: dict[str, Any] = change.validated_data
        if not wanted:
            raise RuleError("nothing_to_change", 'Nothing is to be changed. Send "bandwidth_kbit", "active" or both.')
        try:
            link_update(link_id=link.pk, actor=_user(request), reason="API", **wanted)
        except Link.DoesNotExist as exc:
            raise exceptions.NotFound from exc  # removed meanwhile
        return Response(self.get_serializer(self.get_object()).data)


# --- user ASes ----------------------------------------------------------------------------------------------


class UserASView(GenericAPIView[UserAS]):
    serializer_class = serializers.UserASSerializer
    permission_classes = (IsAuthenticated,)

    def get_queryset(self) -> QuerySet[UserAS]:
        if getattr(self, "swagger_fake_view", False):
            return UserAS.objects.none()
        ases = UserAS.objects.select_related("isd", "owner").order_by("as_id")
        user = _user(self.request)
        return ases if user.is_staff else ases.filter(owner=user)

    def documents(self, ases: list[UserAS]) -> Any:
        """The ASes with their Links; one statement more, at any number."""
        by_as: dict[int, list[Link]] = {}
        links = Link.objects.filter(type=Link.Type.PROVIDER, interface_b__AS__in=[one.pk for one in ases])
        for link in with_relations(links).order_by("interface_b__interface_id"):
            by_as.setdefault(link.interface_b.AS_id, []).append(link)
        return self.get_serializer(ases, many=True, context={"links_by_as": by_as}).data

    def fresh(self, pk: int) -> Any:
        return self.documents(list(self.get_queryset().filter(pk=pk)))[0]


def _checked(request: Request, user_as: UserAS | None) -> serializers.UserASChangeSerializer:
    """Raises `ValidationError` for values that are none, `RuleViolations` for every broken rule at once."""
    change = serializers.UserASChangeSerializer(data=request.data)
    change.is_valid(raise_exception=True)
    errors = check_attachments(change.specs(), user_as=user_as)
    if errors:
        raise RuleViolations(errors)
    return change


class UserASListView(UserASView):
    @extend_schema(summary="Your ASes", responses=serializers.UserASSerializer(many=True))
    def get(self, request: Request) -> Response:
        page = self.paginate_queryset(self.get_queryset())
        return self.get_paginated_response(self.documents(list(page or [])))

    @extend_schema(
        summary="Create an AS",
        request=serializers.UserASChangeSerializer,
        responses={201: serializers.UserASSerializer, **ERRORS},
    )
    def post(self, request: Request) -> Response:
        change = _checked(request, None)
        user = _user(request)
        made = user_as_create(
            owner=user,
            actor=user,
            label=change.validated_data["label"],
            installation_type=change.validated_data["installation_type"],
            attachments=change.specs(),
        )
        return Response(self.fresh(made.pk), status=status.HTTP_201_CREATED)


class UserASDetailView(UserASView):
    @extend_schema(summary="One of your ASes", responses={200: serializers.UserASSerializer, **ERRORS})
    def get(self, request: Request, pk: int) -> Response:
        return Response(self.documents([self.get_object()])[0])

    @extend_schema(
        summary="Make an AS what is sent: attachments with a link_id are kept or edited, others added, missing removed",
        request=serializers.UserASChangeSerializer,
        responses={200: serializers.UserASSerializer, **ERRORS},
    )
    def put(self, request: Request, pk: int) -> Response:
        user_as = self.get_object()
        change = _checked(request, user_as)
        try:
            user_as_update(
                user_as_id=user_as.pk,
                actor=_user(request),
                label=change.validated_data["label"],
                installation_type=change.validated_data["installation_type"],
                attachments=change.specs(),
            )
        except UserAS.DoesNotExist as exc:
            raise exceptions.NotFound from exc  # deleted meanwhile
        return Response(self.fresh(user_as.pk))

    @extend_schema(
        summary="(De)activate all attachments of an AS",
        request=serializers.ActiveSerializer,
        responses={200: serializers.UserASSerializer, **ERRORS},
    )
    def patch(self, request: Request, pk: int) -> Response:
        user_as = self.get_object()
        change = serializers.ActiveSerializer(data=request.data)
        change.is_valid(raise_exception=True)
        try:
            user_as_set_active(user_as_id=user_as.pk, actor=_user(request), active=change.validated_data["active"])
        except UserAS.DoesNotExist as exc:
            raise exceptions.NotFound from exc  # deleted meanwhile
        return Response(self.fresh(user_as.pk))

    @extend_schema(summary="Delete an AS", responses={204: None, **ERRORS})
    def delete(self, request: Request, pk: int) -> Response:
        try:
            user_as_delete(user_as_id=self.get_object().pk, actor=_user(request))
        except UserAS.DoesNotExist as exc:
            raise exceptions.NotFound from exc  # deleted meanwhile
        return Response(status=status.HTTP_204_NO_CONTENT)


# --- what one needs besides ---------------------------------------------------------------------------------


class AttachmentPointListView(GenericAPIView[AttachmentPoint]):
    serializer_class = serializers.AttachmentPointSerializer
    permission_classes = (IsAuthenticated,)

    def get_queryset(self) -> QuerySet[AttachmentPoint]:
        return open_attachment_points()

    @extend_schema(
        summary="Where ASes may attach, with the default bandwidth in force there",
        responses=serializers.AttachmentPointSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        page = self.paginate_queryset(self.get_queryset())
        return self.get_paginated_response(self.get_serializer(page, many=True, context={"policy": policy()}).data)


class TokenView(GenericAPIView[ApiToken]):
    """Tokens do not expire: DELETE withdraws one."""

    serializer_class = serializers.CredentialsSerializer
    throttle_classes = (TokenThrottle,)

    def get_permissions(self) -> list[Any]:
        return [AllowAny()] if self.request.method == "POST" else [IsAuthenticated()]

    @extend_schema(
        summary="E-mail address and password for a token",
        auth=[],
        responses={200: serializers.TokenSerializer, **ERRORS},
    )
    def post(self, request: Request) -> Response:
        credentials = self.get_serializer(data=request.data)
        credentials.is_valid(raise_exception=True)
        given = credentials.validated_data
        # Django's request: the guard of log-ins marks it, and answers 429 in our place (scionlab.login_guard).
        user = authenticate(request._request, username=given["email"], password=given["password"])
        if user is None:
            raise exceptions.AuthenticationFailed("This e-mail address and password do not go together.")
        assert isinstance(user, User)  # noqa: S101  our backends know no others; for the type checker
        issued = api_token_create(user_id=user.pk, name=f"made {timezone.now():%Y-%m-%d %H:%M:%S.%f}")
        return Response({"token": issued.text})

    @extend_schema(summary="Withdraw your token", request=None, responses={204: None, **ERRORS})
    def delete(self, request: Request) -> Response:
        if isinstance(request.auth, ApiToken):
            api_token_revoke(user_id=_user(request).pk, token_id=request.auth.pk)
        return Response(status=status.HTTP_204_NO_CONTENT)
