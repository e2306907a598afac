"""`Authorization: Token slbwu_...` (or `Bearer`). `request.auth` is then an `ApiToken`."""

from __future__ import annotations

from django.views.decorators.debug import sensitive_variables
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request

from scionlab.accounts.api_token import api_token_of
from scionlab.accounts.last_use import TOKENS_USED
from scionlab.accounts.models import ApiToken, User


def read_only(name: str) -> exceptions.PermissionDenied:
    """The refusal of a change with the read-only token `name`."""
    sentence = f'The API token "{name}" is read-only. Create one with read and write access.'
    return exceptions.PermissionDenied(sentence, code="token_read_only")


class ApiTokenAuthentication(BaseAuthentication):
    """Unknown, revoked and expired tokens, and those of disabled accounts, all get the same 401. Read-only tokens are
    checked here and not in a permission, which a view could forget; a view with a read-only POST sets
    `post_only_reads`."""

    keywords = (b"token", b"bearer")

    @sensitive_variables("header", "text")
    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        """None without a token. Raises `AuthenticationFailed`, `PermissionDenied` (`token_read_only`)."""
        header = get_authorization_header(request).split()
        if not header or header[0].lower() not in self.keywords:
            return None
        text = header[1] if len(header) == 2 else b""
        token = api_token_of(text)
        if token is None:
            raise exceptions.AuthenticationFailed("This API token is not valid. Create a new one on the site.")
        view = (request.parser_context or {}).get("view")
        changes = request.method not in SAFE_METHODS and not getattr(view, "post_only_reads", False)
        if not token.may_write and changes:
            raise read_only(token.name)
        TOKENS_USED.note_once_a_minute(token.pk)
        return token.user, token

    def authenticate_header(self, request: Request) -> str:  # noqa: ARG002  the framework's signature
        return "Token"
