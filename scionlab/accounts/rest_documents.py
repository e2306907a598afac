"""Responses of the REST API about an account."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from scionlab.accounts.models import User
from scionlab.accounts.models.user import MailKind


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
