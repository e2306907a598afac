"""Columns and filters of Django admin."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

from django.contrib import admin
from django.db import models
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from scionlab.platform.notation.shown import age

NOTHING = "\N{EN DASH}"
Tone = Literal["good", "info", "warn", "bad", "quiet"]  # colours of admin.css and site.css


def link_to(obj: models.Model | None, text: object = None) -> str:
    """Link to the administrators' page of `obj`."""
    if obj is None:
        return NOTHING
    opts = obj._meta
    url = reverse(f"admin:{opts.app_label}_{opts.model_name}_change", args=[obj.pk])
    return format_html('<a href="{}">{}</a>', url, text if text is not None else obj)


def link_to_list(model: type[models.Model], text: object, **filters: object) -> SafeString:
    """Link to the list page of `model` with `filters` set."""
    opts = model._meta
    query = {name: str(value) for name, value in filters.items()}
    url = reverse(f"admin:{opts.app_label}_{opts.model_name}_changelist", query=query)
    return format_html('<a href="{}">{}</a>', url, text)


def badge(tone: Tone, text: str, title: str = "") -> SafeString:
    """Coloured badge; static/scionlab/admin.css has the colours."""
    return format_html('<span class="slb-badge slb-{}" title="{}">{}</span>', tone, title, text)


Column = Callable[[Any], str]


def _column(name: str, description: str, show: Callable[[Any], str], *, ordering: str | None) -> Column:
    @admin.display(description=description, ordering=ordering)
    def cell(obj: Any) -> str:
        return show(getattr(obj, name))

    cell.__name__ = name  # CSS class of its cells
    return cell


def linked(name: str, *, ordering: str | None = None) -> Column:
    """List column that links to the page of the row at `name`."""
    return _column(name, name, link_to, ordering=ordering)


def aged(name: str, description: str) -> Column:
    """List column with the age of the time in the column `name`; the exact time is in the title."""
    return _column(name, description, age, ordering=name)


def marked(name: str, description: str) -> Column:
    """List column with "yes" or an inconspicuous dash (Django's icon for False is red)."""
    return _column(name, description, lambda value: "yes" if value else NOTHING, ordering=name)


class ChoiceFilter(admin.SimpleListFilter):
    """A list filter with a label and a condition for each value."""

    found: dict[str, tuple[str, Q]]

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [(value, words) for value, (words, _) in self.found.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        _, condition = self.found.get(self.value() or "", ("", Q()))
        return queryset.filter(condition)
