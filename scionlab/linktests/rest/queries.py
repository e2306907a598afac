"""Query parameters of tests."""

from __future__ import annotations

from rest_framework import serializers

from scionlab.web.rest.queries import PageQuery, Query


class LinkTestQuery(PageQuery):
    """Newest first."""


class ResultQuery(Query):
    format = serializers.ChoiceField(choices=["json", "csv"], default="json")
