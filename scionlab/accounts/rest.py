"""The user's own account over the REST API: profile and tokens."""

# ruff: noqa: ARG002  REST framework hands every handler the request and the parts of its URL
from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.contrib.auth import authenticate
from django.db import transaction
from django.shortcuts import get_object_or_404
from rest_framework import exceptions, serializers, status
from rest_framework.permissions import AllowAny, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

from scionlab.accounts.account import profile_update
from scionlab.accounts.api_token import api_token_create, api_token_revoke
from scionlab.accounts.locks import lock_user
from scionlab.accounts.models import ApiToken, MailKind, User
from scionlab.accounts.second_factor import has_second_factor, lacks_required_factor
from scionlab.platform.throttles import TokenThrottle
from scionlab.web.rest.base import ApiView
from scionlab.web.rest.fields import Flag, StrictSerializer, Text
from scionlab.web.rest.queries import PageQuery
from scionlab.web.rest.schema import describe

MAX_PASSWORD_CHARS = 4096
MAX_NAME_CHARS = 100


# --- bodies -----------------------------------------------------------------------------------------------------------


class CredentialsBody(StrictSerializer):
    email = Text(max_length=254)
    password = Text(max_length=MAX_PASSWORD_CHARS, trim_whitespace=False, write_only=True)
    name = Text(
        max_length=MAX_NAME_CHARS,
        default="password login",
        help_text="Name of the token, such as the program that uses it.",
    )


class ProfileBody(StrictSerializer):
    """Omitted fields are kept."""

    full_name = Text(required=False, allow_blank=True, max_length=150)
    time_zone = Text(required=False, max_length=64, help_text="For example Europe/Zurich.")
    mail_opt_outs = serializers.ListField(
        child=serializers.ChoiceField(choices=MailKind.choices), required=False, max_length=len(MailKind.choices)
    )


class ApiTokenBody(StrictSerializer):
    name = Text(
        max_length=MAX_NAME_CHARS, help_text="Name of the token, such as the program or machine that will use it."
    )
    may_write = Flag(default=True, help_text="false: read-only.")
    expires_at = serializers.DateTimeField(
        required=False,
        allow_null=True,
        default=None,
        help_text="null: until it is revoked, or until the creating token expires.",
    )


# --- answers ----------------------------------------------------------------------------------------------------------


class TokenDocument(serializers.Serializer[Any]):
    token = serializers.CharField(help_text='Send it as "Authorization: Token ..." with every request.')


class ProfileDocument(serializers.Serializer[User]):
    """Your account."""

    email = serializers.EmailField()
    full_name = serializers.CharField()
    time_zone = serializers.CharField(help_text="For times on pages and in emails; this API uses UTC.")
    mail_opt_outs = serializers.ListField(
        child=serializers.ChoiceField(choices=MailKind.choices), help_text="Kinds of emails you are unsubscribed from."
    )
    is_administrator = serializers.BooleanField(source="is_staff")
    as_quota = serializers.IntegerField(help_text="Maximum number of your ASes.")
    date_joined = serializers.DateTimeField()


class ApiTokenDocument(serializers.Serializer[Any]):
    """An API token, without what is secret of it."""

    id = serializers.IntegerField(source="pk")
    name = serializers.CharField()
    may_write = serializers.BooleanField()
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True, help_text="May lag by two minutes.")


class NewApiTokenDocument(ApiTokenDocument):
    token = serializers.CharField(help_text='Send it as "Authorization: Token ...". Shown only once.')


# --- views ------------------------------------------------------------------------------------------------------------


class TokenView(ApiView):
    """For programs with a password; a token of the profile page works without it."""

    throttle_classes = (TokenThrottle,)

    def get_permissions(self) -> list[Any]:
        return [AllowAny()] if self.request.method == "POST" else [IsAuthenticated()]

    @describe(
        "account",
        "Exchange email address and password for a token",
        "The new token replaces an older one of the same name. Accounts with a second factor get none for a password "
        "(403 `second_factor_required`): create one on the site.",
        body=CredentialsBody,
        answer=TokenDocument,
        examples={"Log in": {"email": "you@example.org", "password": "correct horse battery", "name": "night job"}},
        is_public=True,
    )
    def post(self, request: Request) -> Response:
        given = self.sent(CredentialsBody).validated_data
        # Django's request: the login guard marks it, and responds 429 (scionlab.platform.login_guard).
        user = authenticate(request._request, username=given["email"], password=given["password"])
        if user is None:
            raise exceptions.AuthenticationFailed("The email address or the password is wrong.")
        if has_second_factor(user) or lacks_required_factor(user):
            text = "A password alone gets no token of this account. Create one on the site, at /account/tokens/."
            raise exceptions.PermissionDenied(text, "second_factor_required")
        issued = api_token_create(user_id=user.pk, name=given["name"], replaces=True)
        return Response({"token": issued.text})

    @describe("account", "Revoke the current token", success=status.HTTP_204_NO_CONTENT)
    def delete(self, request: Request) -> Response:
        if isinstance(request.auth, ApiToken):
            with suppress(ApiToken.DoesNotExist):  # revoked meanwhile
                api_token_revoke(user_id=self.person.pk, token_id=request.auth.pk)
        return Response(status=status.HTTP_204_NO_CONTENT)


class ProfileView(ApiView):
    def document(self) -> Any:
        return ProfileDocument(User.objects.get(pk=self.person.pk)).data

    @describe("account", "Your account", answer=ProfileDocument)
    def get(self, request: Request) -> Response:
        return Response(self.document())

    @describe(
        "account",
        "Change your account",
        "Email address and password are changed on the pages.",
        body=ProfileBody,
        answer=ProfileDocument,
        examples={"Time zone and emails": {"time_zone": "Europe/Zurich", "mail_opt_outs": ["enforced"]}},
    )
    def patch(self, request: Request) -> Response:
        wanted = self.sent(ProfileBody).validated_data
        with self.changing(lambda: lock_user(self.person.pk), self.document), transaction.atomic():
            now = lock_user(self.person.pk)
            values = {name: getattr(now, name) for name in ("full_name", "time_zone", "mail_opt_outs")}
            profile_update(user_id=now.pk, **values | wanted)
        return Response(self.document())


class TokenListView(ApiView):
    query = PageQuery

    @describe("account", "Your API tokens", "The token values are not shown.", answer=ApiTokenDocument, is_list=True)
    def get(self, request: Request) -> Response:
        rows = ApiToken.objects.filter(user=self.person).order_by("pk")
        return self.page_of(rows, lambda found: ApiTokenDocument(found, many=True).data)

    @describe(
        "account",
        "Create an API token",
        "`token` is shown only in this response. A token cannot create one with more access or a later end than "
        "its own; its own end is the default. Revoking a token also revokes the tokens it created.",
        body=ApiTokenBody,
        answer=NewApiTokenDocument,
        success=status.HTTP_201_CREATED,
        examples={"For a monitor": {"name": "monitor", "may_write": False, "expires_at": "2027-01-01T00:00:00Z"}},
    )
    def post(self, request: Request) -> Response:
        return self.once(self._create, is_secret=True)

    def _create(self) -> Response:
        wanted = self.sent(ApiTokenBody).validated_data
        made_by = self.request.auth if isinstance(self.request.auth, ApiToken) else None
        issued = api_token_create(user_id=self.person.pk, made_by=made_by, **wanted)
        document = {**ApiTokenDocument(issued.token).data, "token": issued.text}
        return self.created(f"/api/v1/tokens/{issued.token.pk}/", document)


class TokenDetailView(ApiView):
    def document(self, pk: int) -> Any:
        return ApiTokenDocument(get_object_or_404(ApiToken, pk=pk, user=self.person)).data

    @describe("account", "One of your API tokens", answer=ApiTokenDocument)
    def get(self, request: Request, pk: int) -> Response:
        return Response(self.document(pk))

    @describe("account", "Revoke an API token", success=status.HTTP_204_NO_CONTENT)
    def delete(self, request: Request, pk: int) -> Response:
        self.document(pk)
        with self.changing(lambda: lock_user(self.person.pk), lambda: self.document(pk)):
            api_token_revoke(user_id=self.person.pk, token_id=pk)
        return Response(status=status.HTTP_204_NO_CONTENT)
