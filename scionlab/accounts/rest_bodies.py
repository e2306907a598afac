"""Request bodies of the REST API about an account."""

from __future__ import annotations

from rest_framework import serializers

from scionlab.accounts.models.user import MailKind
from scionlab.web.rest.fields import Flag, StrictSerializer, Text

MAX_PASSWORD_CHARS = 4096


MAX_NAME_CHARS = 100


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
