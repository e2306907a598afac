"""Policies of tests."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.models import Group
from django.http import HttpRequest, HttpResponse

from scionlab.accounts.models import User
from scionlab.linktests.models import TestPolicy
from scionlab.linktests.test_hours import say_hours
from scionlab.linktests.test_policy import BUILT_IN, COLUMNS, NUMBERS, hours_of, who_may_what
from scionlab.web.admin.base import AdministratorsOnly, ServiceForm


class GroupForm(ServiceForm):
    members = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"class": "vLargeTextField", "rows": 8, "spellcheck": "false"}),
        help_text="Email addresses of accounts, one on each line.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk is not None:
            emails = User.objects.filter(groups=self.instance).values_list("email", flat=True)
            self.fields["members"].initial = "\n".join(emails)

    def clean_members(self) -> list[User]:
        emails = {line.strip().lower() for line in self.cleaned_data["members"].splitlines()} - {""}
        found = list(User.objects.filter(email__in=emails))
        unknown = sorted(emails - {one.email for one in found})
        if unknown:
            text = f"No account has the email address {unknown[0][:100]}. Correct it, or remove the line."
            raise forms.ValidationError(text, code="member_unknown")
        return found

    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"])
        if Group.objects.filter(name=name).exclude(pk=self.instance.pk).exists():
            raise forms.ValidationError(f"There is a group {name}. Choose another name.", code="unique")
        return name


admin.site.unregister(Group)


@admin.register(Group)
class GroupAdmin(AdministratorsOnly):
    """Groups of people to whom a policy of tests applies."""

    form = GroupForm
    compared = ("name",)
    fields = ["name", "members"]
    add_fieldsets = [(None, {"fields": ["name", "members"]})]
    search_fields = ["name"]
    note = "A group gives no rights. Policies of tests name groups."

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return ()

    def save_model(self, request: HttpRequest, obj: Group, form: Any, change: bool) -> None:
        obj.save()
        obj.user_set.set(form.cleaned_data["members"])


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
