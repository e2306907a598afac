"""What all administrators' pages share: who may use them, how a change reaches its service, how values are shown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import flatten_fieldsets
from django.core.exceptions import ObjectDoesNotExist
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.views.decorators.cache import never_cache

from bandwidth_config import RuleError, parse_bandwidth
from scionlab.models import User
from scionlab.pages.conflict import conflict_of
from scionlab.pages.forms import RuleField
from scionlab.people.stale_pages import (
    StalePageError,
    Value,
    shown_from_text,
    shown_to_text,
    values_of,
)
from scionlab.platform.field_errors import FieldRuleError
from scionlab.platform.retry import retried

if TYPE_CHECKING:  # generic for the type checker only
    _ModelAdmin = admin.ModelAdmin[Any]
    _ModelForm = forms.ModelForm[Any]
else:
    _ModelAdmin = admin.ModelAdmin
    _ModelForm = forms.ModelForm

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
        help_text="Kept in the history of changes.",
        widget=forms.TextInput(attrs={"class": "vTextField"}),
    )


def actor_of(request: HttpRequest) -> User:
    """The administrator. Only views behind `admin_view` call this, so somebody is logged in."""
    assert isinstance(request.user, User)  # noqa: S101  tells the type checker what admin_view made sure of
    return request.user


# --- pages ------------------------------------------------------------------------------------------------


class AdministratorsOnly(_ModelAdmin):
    """Every administrator may do everything that the page offers, and undoes nobody's work without seeing it.

    `compared` are the columns that the page lets people type into: what it showed of them travels along in `_shown`,
    and a save of an older page is refused with what changed meanwhile (`people.stale_pages`). All others are shown.
    """

    offers: tuple[str, ...] = ("add", "change", "delete")
    compared: tuple[str, ...] = ()
    rule_field: str | None = None  # where a refusal stands that names no field
    note = ""
    add_note = ""  # on the page that adds a row, in place of `note`; so are form and fieldsets
    add_form: type[_ModelForm] | None = None
    add_fieldsets: Any = ()
    change_form_template = "admin/scionlab/noted_change_form.html"

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """A service may refuse (`RuleError`) after the form was found valid, because it looks again while it holds the
        locks. Then the transaction is undone and the form shown once more with the service's sentence beside
        `rule_field`, or beside the field that the error names."""
        note = self.note if object_id else self.add_note or self.note
        context = {"note": note, **(extra_context or {})}
        try:
            return retried(super().changeform_view)(request, object_id, form_url, context)
        except StalePageError as exc:
            conflict = conflict_of(exc, reader=actor_of(request), labels=self._labels())
            if exc.is_untouched:
                words = f"You made no changes, so nothing was saved. {conflict.sentence}"
                self.message_user(request, words, messages.WARNING)
                return HttpResponseRedirect(request.path)
            return self._shown_again(request, exc, object_id, form_url, {**context, "conflict": conflict})
        except RuleError as exc:
            return self._shown_again(request, exc, object_id, form_url, context)
        except ObjectDoesNotExist:  # deleted between Django's look and our lock
            return self._gone(request)

    def _gone(self, request: HttpRequest) -> HttpResponse:
        name = self.opts.verbose_name
        self.message_user(
            request, f"The {name} was deleted while this page was open. Nothing was saved.", messages.ERROR
        )
        return HttpResponseRedirect(reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist"))

    def _shown_again(
        self, request: HttpRequest, error: RuleError, object_id: str | None, form_url: str, context: dict[str, Any]
    ) -> HttpResponse:
        """The form as it was typed, with what the service said. The transaction that the service was in is undone."""
        request._refused = error  # type: ignore[attr-defined]  # read by `get_form` and `render_change_form` below
        return super().changeform_view(request, object_id, form_url, context)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.add_fieldsets if obj is None and self.add_fieldsets else super().get_fieldsets(request, obj)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """All that the page of a row shows and nobody types."""
        typed = {*self.compared, "reason"}
        shown = [] if obj is None else flatten_fieldsets(self.get_fieldsets(request, obj))
        return [name for name in shown if name not in typed]

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        if self.add_form is not None and not change:
            kwargs = {"form": self.add_form, **kwargs}
        form = super().get_form(request, obj, change=change, **kwargs)
        refused = getattr(request, "_refused", None)
        where = None if isinstance(refused, StalePageError) else self.rule_field
        return form if refused is None else _refusing(form, refused, where)

    def render_change_form(  # noqa: PLR0917  Django's own signature
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Any = None,
    ) -> HttpResponse:
        if obj is not None and self.compared:
            context["shown"] = self._shown_text(request, obj)
        refused = getattr(request, "_refused", None)
        if isinstance(refused, StalePageError):  # the form shows what was typed, the rest of the page what is stored
            for name, value in refused.stored.items():
                setattr(obj, name, value)
        return super().render_change_form(request, context, add, change, form_url, obj)

    def _shown_text(self, request: HttpRequest, obj: Any) -> str:
        """What stood on the page first, until it was compared: then what it was compared with."""
        refused = getattr(request, "_refused", None)
        if isinstance(refused, StalePageError):
            return shown_to_text(refused.stored)
        if request.method == "POST":
            return str(request.POST.get("_shown", ""))
        return shown_to_text(values_of(obj, self.compared))

    def shown(self, request: HttpRequest) -> dict[str, Value] | None:
        """What the page had shown; None where whoever posts did not say."""
        return shown_from_text(request.POST.get("_shown") or None)

    def _labels(self) -> dict[str, str]:
        """The names of the columns as the page has them."""
        return {name: str(self.model._meta.get_field(name).verbose_name).capitalize() for name in self.compared}

    def known(self, request: HttpRequest, names: Iterable[str]) -> dict[str, Value] | None:
        """What the page had shown of these columns."""
        shown = self.shown(request)
        return None if shown is None else {name: shown.get(name) for name in names}

    def has_module_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_active and getattr(request.user, "is_staff", False))

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_module_permission(request)

    def has_add_permission(self, request: HttpRequest, *args: Any) -> bool:
        return "add" in self.offers and self.has_module_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return "change" in self.offers and self.has_module_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return "delete" in self.offers and self.has_module_permission(request)

    # --- pages of our own -----------------------------------------------------------------------------------

    def own_path(self, route: str, view: Any, name: str) -> URLPattern:
        """The address of a page below that of the list, for administrators, in no cache."""
        page: Any = self.admin_site.admin_view(never_cache(view))
        found: URLPattern = path(route, page, name=f"scionlab_{self.opts.model_name}_{name}")
        return found

    def own_page(self, request: HttpRequest, template: str, title: str, **context: Any) -> TemplateResponse:
        """`original`: the row that the page is about, where it is about one."""
        context = {"original": None, **self.admin_site.each_context(request), **context}
        context |= {"title": title, "opts": self.opts}
        return TemplateResponse(request, f"admin/scionlab/{template}", context)


class ReadOnlyAdmin(AdministratorsOnly):
    """Pages to look at. `note` tells where a change is made instead."""

    offers = ()


class ServiceAdmin(AdministratorsOnly):
    """A page whose changes are made by services: `save_model` and `delete_model` call one and never `obj.save()`."""

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        opts = self.opts
        try:
            return retried(super().delete_view)(request, object_id, extra_context)
        except ObjectDoesNotExist:  # somebody else was quicker
            return self._gone(request)
        except RuleError as exc:
            self.message_user(request, exc.message, messages.ERROR)
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
            retried(transaction.atomic(service))(obj)
        except RuleError as exc:
            modeladmin.message_user(request, f"{obj}: {exc.message}", messages.ERROR)
        else:
            count += 1
    if count:
        modeladmin.message_user(request, done.format(count=count), messages.SUCCESS)
