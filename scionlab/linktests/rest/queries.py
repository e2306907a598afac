"""Query parameters of tests."""

from __future__ import annotations

from rest_framework import serializers

from scionlab.web.rest.queries import PageQuery, Query

MAX_WAIT_S = 60


class LinkTestQuery(PageQuery):
    """Newest first."""


class ResultQuery(Query):
    format = serializers.ChoiceField(choices=["json", "csv"], default="json")
    wait = serializers.IntegerField(
        min_value=0,
        max_value=MAX_WAIT_S,
        default=0,
        help_text="With a token and If-None-Match: for how many seconds a 304 may be held back. It is answered as "
        "soon as the test changes.",
    )
