"""Base classes of the administrators' pages: access, calling services, showing values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm
from django.contrib.admin.utils import flatten_fieldsets
from django.core.exceptions import ObjectDoesNotExist
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.text import capfirst
from django.views.decorators.cache import never_cache

from bandwidth_config import RuleError, parse_bandwidth
from scionlab.platform.field_errors import FieldRuleError
from scionlab.platform.retry import retried
from scionlab.web.pages.conflict import conflict_of
from scionlab.web.pages.forms import RuleField
from scionlab.web.pages.stale_pages import StalePageError, Value, Values, shown_from_text, shown_to_text, values_of
from scionlab.web.typed import typed_text

if TYPE_CHECKING:
    from django.contrib.auth.models import _User as User  # the stubs' name of AUTH_USER_MODEL

if TYPE_CHECKING:  # generic for the type checker only
    _ModelAdmin = admin.ModelAdmin[Any]
    _ModelForm = forms.ModelForm[Any]
else:
    _ModelAdmin = admin.ModelAdmin
    _ModelForm = forms.ModelForm

# --- forms ------------------------------------------------------------------------------------------------


class KbitField(RuleField):
    """A bandwidth field that uses the common parser."""

    def __init__(self, **kwargs: Any) -> None:
        widget = forms.TextInput(attrs={"inputmode": "numeric", "class": "vIntegerField"})
        super().__init__(parse_bandwidth, widget=widget, **kwargs)


class ServiceForm(_ModelForm):
    """A form that only parses. The service validates: it holds the locks and knows the maximum in force and the other
    rows, so each value gets only one message."""

    def _post_clean(self) -> None:
        """Replaces the model's validation. The instance gets the values because the page names it."""
        values = {name: value for name, value in self.cleaned_data.items() if name not in self.errors}
        for field in self._meta.model._meta.fields:
            if field.name in values and field.editable and not field.primary_key:
                field.save_form_data(self.instance, values[field.name])


def reason_field(**widget: str) -> forms.CharField:
    return forms.CharField(
        max_length=200,
        required=False,
        help_text="Kept in the history of changes.",
        widget=forms.TextInput(attrs={"class": "vTextField", **widget}),
    )


class ReasonForm(ServiceForm):
    """A form with a reason, for the audit."""

    reason = reason_field()


class ReasonedAction(ActionForm):
    """The choice of an action on a list page, with its reason."""

    reason = reason_field(placeholder="Reason")


def reason_of(request: HttpRequest) -> str:
    """Of an action, a deletion or a page of our own. Raises `BadRequest`."""
    return typed_text(request, "reason")[:200]


def actor_of(request: HttpRequest) -> User:
    """The administrator. Only views behind `admin_view` call this, so the user is logged in."""
    assert request.user.is_authenticated  # noqa: S101  tells the type checker what admin_view made sure of
    return request.user


# --- pages ------------------------------------------------------------------------------------------------


class AdministratorsOnly(_ModelAdmin):
    """Grants every administrator everything that the page offers, and rejects a save based on outdated values.
    `compared` are the editable columns. Their original values are sent along in `_shown`; a save of an older page is
    rejected and shows what changed meanwhile (`web.pages.stale_pages`). All other columns are read-only."""

    offers: tuple[str, ...] = ("add", "change", "delete")
    compared: tuple[str, ...] = ()
    rule_field: str | None = None  # field for errors that name no field
    note = ""
    add_note = ""  # on the page that adds a row, replaces `note`; likewise form and fieldsets
    add_form: type[_ModelForm] | None = None
    add_fieldsets: Any = ()
    change_form_template = "admin/noted_change_form.html"

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Handle a `RuleError` of the service, which checks again under locks after the form was valid: roll back, and
        show the form with the message beside the field that the error names, or beside `rule_field`."""
        note = self.note if object_id else self.add_note or self.note
        context = {"note": note, **(extra_context or {})}
        try:
            return retried(super().changeform_view)(request, object_id, form_url, context)
        except StalePageError as exc:
            conflict = conflict_of(exc, reader=actor_of(request), labels=self.labels(exc), choices=self._choices())
            if exc.is_untouched:
                words = f"You made no changes, so nothing was saved. {conflict.sentence}"
                self.message_user(request, words, messages.WARNING)
                return HttpResponseRedirect(request.path)
            return self._shown_again(request, exc, object_id, form_url, {**context, "conflict": conflict})
        except RuleError as exc:
            return self._shown_again(request, exc, object_id, form_url, context)
        except ObjectDoesNotExist:  # deleted between Django's read and our lock
            return self._gone(request)

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Bandwidths go through the common parser."""
        if not db_field.name.endswith("_kbit"):
            return super().formfield_for_dbfield(db_field, request, **kwargs)
        label = capfirst(db_field.verbose_name)
        return KbitField(optional=db_field.null, label=label, help_text=db_field.help_text)

    def _gone(self, request: HttpRequest) -> HttpResponse:
        name = self.opts.verbose_name
        self.message_user(
            request, f"The {name} was deleted while this page was open. Nothing was saved.", messages.ERROR
        )
        return HttpResponseRedirect(reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist"))

    def _shown_again(
        self, request: HttpRequest, error: RuleError, object_id: str | None, form_url: str, context: dict[str, Any]
    ) -> HttpResponse:
        """Show the form as submitted, with the message of the service. The transaction of the service was rolled
        back."""
        request._refused = error  # type: ignore[attr-defined]  # read by `get_form` and `render_change_form` below
        return super().changeform_view(request, object_id, form_url, context)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.add_fieldsets if obj is None and self.add_fieldsets else super().get_fieldsets(request, obj)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """All columns shown on the page of a row that are not editable."""
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
        if isinstance(refused, StalePageError):  # the form shows submitted values, the rest of the page stored ones
            for name, value in refused.stored.items():
                setattr(obj, name, value)
        return super().render_change_form(request, context, add, change, form_url, obj)

    def _shown_text(self, request: HttpRequest, obj: Any) -> str:
        """The originally shown values, or after a conflict those that the page was compared with."""
        refused = getattr(request, "_refused", None)
        if isinstance(refused, StalePageError):
            return shown_to_text(refused.stored)
        if request.method == "POST":
            return str(request.POST.get("_shown", ""))
        return shown_to_text(self.values_shown(obj))

    def values_shown(self, obj: Any) -> Values:
        """Of `compared`, as stored."""
        return values_of(obj, self.compared)

    def shown(self, request: HttpRequest) -> dict[str, Value] | None:
        """Return the values that the page had shown; None if the request does not include them."""
        return shown_from_text(request.POST.get("_shown") or None)

    def labels(self, error: StalePageError) -> dict[str, str]:
        """Labels of the columns, as on the page."""
        return {one.name: str(one.verbose_name).capitalize() for one in self.opts.fields}

    def _choices(self) -> dict[str, dict[str, str]]:
        """Words of the values of columns with choices."""
        fields = [one for one in self.opts.fields if one.choices]
        return {one.name: {str(key): str(words) for key, words in one.flatchoices} for one in fields}

    def known(self, request: HttpRequest, names: Iterable[str]) -> dict[str, Value] | None:
        """Return the values of these columns that the page had shown."""
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
        """URL pattern of a page below the list page, for administrators, not cached."""
        page: Any = self.admin_site.admin_view(never_cache(view))
        found: URLPattern = path(route, page, name=f"{self.opts.app_label}_{self.opts.model_name}_{name}")
        return found

    def own_page(self, request: HttpRequest, template: str, title: str, **context: Any) -> TemplateResponse:
        """Render a page of our own. `original`: the row that the page is about, if any."""
        context = {"original": None, **self.admin_site.each_context(request), **context}
        context |= {"title": title, "opts": self.opts}
        return TemplateResponse(request, f"admin/{template}", context)


class ReadOnlyAdmin(AdministratorsOnly):
    """Read-only pages. `note` says where the values can be changed."""

    offers = ()


class ServiceAdmin(AdministratorsOnly):
    """A page whose changes are made by services: `save_model` and `delete_model` call one, never `obj.save()`."""

    action_form = ReasonedAction
    delete_confirmation_template = "admin/own_delete_confirmation.html"

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        opts = self.opts
        try:
            return retried(super().delete_view)(request, object_id, extra_context)
        except ObjectDoesNotExist:  # already deleted
            return self._gone(request)
        except RuleError as exc:
            self.message_user(request, exc.message, messages.ERROR)
            return HttpResponseRedirect(reverse(f"admin:{opts.app_label}_{opts.model_name}_change", args=[object_id]))

    def get_deleted_objects(
        self, objs: Iterable[Any], request: HttpRequest
    ) -> tuple[list[str], dict[str, int], set[str], list[str]]:
        """Skip Django's search along foreign keys; the service decides what is deleted."""
        listed = [str(obj) for obj in objs]
        return listed, {str(self.opts.verbose_name_plural): len(listed)}, set(), []


def _refusing(form: type[_ModelForm], error: RuleError, default_field: str | None) -> type[_ModelForm]:
    """Wrap the form so that it reports the error of the service."""

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
    """Run an action on each object in its own transaction; `done` formats the count for the message."""
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
