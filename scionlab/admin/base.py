"""What all administrators' pages share: who may use them, how a change reaches its service, how values are shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.db import models, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.timesince import timesince

from bandwidth_config import RuleError, format_kbit, parse_bandwidth
from scionlab.forms import RuleField
from scionlab.models import User
from scionlab.services.errors import FieldRuleError

if TYPE_CHECKING:  # generic for the type checker only
    _ModelAdmin = admin.ModelAdmin[Any]
    _ModelForm = forms.ModelForm[Any]
else:
    _ModelAdmin = admin.ModelAdmin
    _ModelForm = forms.ModelForm

NOTHING = "\N{EN DASH}"


# --- values -----------------------------------------------------------------------------------------------


def link_to(obj: models.Model | None, text: object = None) -> str:
    """A link to the administrators' page of `obj`."""
    if obj is None:
        return NOTHING
    opts = obj._meta
    url = reverse(f"admin:{opts.app_label}_{opts.model_name}_change", args=[obj.pk])
    return format_html('<a href="{}">{}</a>', url, text if text is not None else obj)


def link_to_list(model: type[models.Model], text: object, **filters: object) -> SafeString:
    """A link to the list page of `model` with `filters` set."""
    opts = model._meta
    query = {name: str(value) for name, value in filters.items()}
    url = reverse(f"admin:{opts.app_label}_{opts.model_name}_changelist", query=query)
    return format_html('<a href="{}">{}</a>', url, text)


def kbit(value: int | None) -> str:
    return NOTHING if value is None else format_kbit(value)


def badge(kind: str, text: str, title: str = "") -> SafeString:
    """`kind` is one of good, wait, bad, idle; colours are in static/scionlab/admin.css, the words say the same."""
    return format_html('<span class="slb-badge slb-{}" title="{}">{}</span>', kind, title, text)


def ago(at: datetime | None, *, now: datetime | None = None) -> str:
    """`3 minutes ago`, with the exact time on hover."""
    if at is None:
        return "never"
    now = now or timezone.now()
    seconds = (now - at).total_seconds()
    text = f"{max(0, int(seconds))} s ago" if seconds < 120 else f"{timesince(at, now, depth=1)} ago"
    return format_html('<time datetime="{0}" title="{0}">{1}</time>', at.isoformat(timespec="seconds"), text)


def table(head: Iterable[str], rows: Iterable[Sequence[object]]) -> str:
    """A small table for a page of one object; "none" without rows."""
    cells = (format_html_join("", "<td>{}</td>", ((cell,) for cell in row)) for row in rows)
    body = format_html_join("", "<tr>{}</tr>", ((row,) for row in cells))
    if not body:
        return "none"
    top = format_html_join("", "<th>{}</th>", ((cell,) for cell in head))
    return format_html('<table class="slb-links"><thead><tr>{}</tr></thead><tbody>{}</tbody></table>', top, body)


# --- forms ------------------------------------------------------------------------------------------------


class KbitField(RuleField):
    """A bandwidth, read by the rule that reads it everywhere. `optional`: empty is None, "there is none"."""

    def __init__(self, *, optional: bool = False, **kwargs: Any) -> None:
        def parse(text: str) -> int | None:
            return None if optional and text.strip() == "" else parse_bandwidth(text)

        super().__init__(
            parse, widget=forms.TextInput(attrs={"inputmode": "numeric", "class": "vIntegerField"}), **kwargs
        )


class ServiceForm(_ModelForm):
    """Reads what was typed and leaves judging to the service, which knows more (the maximum in force, other rows) and
    holds the locks: so nobody reads two sentences about one value."""

    def _post_clean(self) -> None:
        """In place of the model's validation. The instance gets the values, for the page to name it."""
        values = {name: value for name, value in self.cleaned_data.items() if name not in self.errors}
        for field in self._meta.model._meta.fields:
            if field.name in values and field.editable and not field.primary_key:
                field.save_form_data(self.instance, values[field.name])


class ReasonForm(ServiceForm):
    """A form that asks why, for the audit."""

    reason = forms.CharField(
        max_length=200,
        required=False,
        help_text="Kept with the change, for whoever asks later.",
        widget=forms.TextInput(attrs={"class": "vTextField"}),
    )


def actor_of(request: HttpRequest) -> User:
    """The administrator. Only views behind `admin_view` call this, so somebody is logged in."""
    assert isinstance(request.user, User)  # noqa: S101  tells the type checker what admin_view made sure of
    return request.user


# --- pages ------------------------------------------------------------------------------------------------


class AdministratorsOnly(_ModelAdmin):
    """Every administrator may do everything that the page offers."""

    class Media:
        css = {"all": ["scionlab/admin.css"]}

    def has_module_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_active and getattr(request.user, "is_staff", False))

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_module_permission(request)

    def has_add_permission(self, request: HttpRequest, *args: Any) -> bool:
        return self.has_module_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_module_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_module_permission(request)


class ReadOnlyAdmin(AdministratorsOnly):
    """Pages to look at. `why_read_only` tells where a change is made instead."""

    why_read_only = ""
    change_form_template = "admin/scionlab/noted_change_form.html"

    def has_add_permission(self, request: HttpRequest, *args: Any) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        context = {"note": self.why_read_only, **(extra_context or {})}
        return super().changeform_view(request, object_id, form_url, context)


class ServiceAdmin(AdministratorsOnly):
    """A page whose changes are made by services: `save_model` and `delete_model` call one and never `obj.save()`.

    A service may refuse (`RuleError`) after the form was found valid, because it looks again while it holds the locks.
    Then the transaction is undone and the form shown once more with the service's sentence beside `rule_field`, or
    beside the field that the error names.
    """

    rule_field: str | None = None
    note = ""
    change_form_template = "admin/scionlab/noted_change_form.html"
    actions: Sequence[Any] = ()

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Without Django's "delete selected", which asks no service."""
        actions: dict[str, Any] = super().get_actions(request)
        actions.pop("delete_selected", None)
        return actions

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        context = {"note": self.note, **(extra_context or {})}
        try:
            return super().changeform_view(request, object_id, form_url, context)
        except RuleError as exc:
            request._refused = exc  # type: ignore[attr-defined]  # read by `get_form` in the second pass
            return super().changeform_view(request, object_id, form_url, context)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form = super().get_form(request, obj, change=change, **kwargs)
        refused = getattr(request, "_refused", None)
        return form if refused is None else _refusing(form, refused, self.rule_field)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        try:
            return super().delete_view(request, object_id, extra_context)
        except RuleError as exc:
            self.message_user(request, exc.message, messages.ERROR)
            opts = self.opts
            return HttpResponseRedirect(reverse(f"admin:{opts.app_label}_{opts.model_name}_change", args=[object_id]))

    def get_deleted_objects(
        self, objs: Iterable[Any], request: HttpRequest
    ) -> tuple[list[str], dict[str, int], set[str], list[str]]:
        """What Django would find by following foreign keys is the service's business."""
        listed = [str(obj) for obj in objs]
        return listed, {str(self.opts.verbose_name_plural): len(listed)}, set(), []


def _refusing(form: type[_ModelForm], error: RuleError, default_field: str | None) -> type[_ModelForm]:
    """The same form, which now knows what the service said."""

    class RefusingForm(form):  # type: ignore[misc, valid-type]  # a class made at run time
        def _post_clean(self) -> None:
            super()._post_clean()
            field = error.field if isinstance(error, FieldRuleError) else default_field
            where = field if field in self.fields else None
            self.add_error(where, forms.ValidationError(error.message, code=error.code))

    return RefusingForm


def apply_to_each(
    modeladmin: _ModelAdmin, request: HttpRequest, objects: Iterable[Any], service: Any, done: str
) -> None:
    """An action: each object in a transaction of its own; `done` says what happened to how many."""
    count = 0
    for obj in objects:
        try:
            with transaction.atomic():
                service(obj)
        except RuleError as exc:
            modeladmin.message_user(request, f"{obj}: {exc.message}", messages.ERROR)
        else:
            count += 1
    if count:
        modeladmin.message_user(request, done.format(count=count), messages.SUCCESS)
