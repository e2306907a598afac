"""Policies of tests."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse

from scionlab.linktests.models import TestPolicy
from scionlab.linktests.test_hours import say_hours
from scionlab.linktests.test_policy import BUILT_IN, COLUMNS, NUMBERS, hours_of, who_may_what
from scionlab.web.admin.base import AdministratorsOnly


@admin.register(TestPolicy)
class TestPolicyAdmin(AdministratorsOnly):
    """A change applies at the next request. The list page shows the effective permissions."""

    __test__ = False
    compared = ("applies_to", "group", "tool", *COLUMNS, "hours_begin", "hours_end", "hours_zone")
    fields = list(compared)
    list_display = ["__str__", "tool", *NUMBERS, "times"]
    change_list_template = "admin/linktests/test_policies.html"
    note = (
        "If several policies cover a person, the highest value of each column applies, and a test may run in the "
        "hours of any of them. If no policy covers everyone, the built-in values apply to everyone, at any time."
    )

    @admin.display(description="when")
    def times(self, policy: TestPolicy) -> str:
        load = policy.max_load_percent
        return say_hours(hours_of(policy)) + (f", load at most {load} %" if load is not None else "")

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        return BUILT_IN.columns()

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return super().changelist_view(request, {**(extra_context or {}), "lines": who_may_what()})
