"""Usage of a Link as a file for its owner, and fragments with current rates, which the script fetches while a page is
open."""

from __future__ import annotations

from datetime import datetime

from django.http import HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls.converters import StringConverter
from django.utils.dateparse import parse_datetime
from django.views.decorators.http import require_safe

from bandwidth_config import RuleError
from scionlab.limits.pages.link import link_or_404
from scionlab.platform.clock import database_now
from scionlab.platform.throttles import ManyAtOnceError, one_of_few
from scionlab.testbed import selectors
from scionlab.testbed.models import Link, UserAS
from scionlab.usage.formats import file_name, usage_csv, usage_document
from scionlab.usage.pages.dials import lines_of, now_of
from scionlab.usage.series import STEPS_MS, USUAL, Usage, usage_of_link
from scionlab.web.csv_files import csv_file
from scionlab.web.pages.own_pages import PageRequest, many_at_once, own_page


class KindConverter(StringConverter):
    regex = "csv|json"


@require_safe
@own_page
def usage_file(request: PageRequest, pk: int, link_id: int, kind: str) -> HttpResponse:
    """`begins_at`, `ends_at` (ISO 8601 with a zone) and `step` (10s, 5min, day); default: the last day."""
    user_as, link = link_or_404(request, pk, link_id)
    try:
        with one_of_few(request.user.pk):
            return _file(request, user_as, link, kind)
    except ManyAtOnceError as exc:
        return many_at_once(exc)


def _file(request: PageRequest, user_as: UserAS, link: Link, kind: str) -> HttpResponse:
    try:
        usage = _usage(link, **{name: request.GET.get(name, "") for name in ("begins_at", "ends_at", "step")})
    except RuleError as exc:
        return HttpResponse(f"{exc.message}\n", status=400, content_type="text/plain; charset=utf-8")
    name = file_name(user_as.isd_as, link.interface_a.AS.isd_as, usage, kind)
    if kind == "csv":
        return csv_file(usage_csv(usage), name)
    return JsonResponse(usage_document(usage), headers={"Content-Disposition": f'attachment; filename="{name}"'})


def _usage(link: Link, *, begins_at: str, ends_at: str, step: str) -> Usage:
    """Empty texts: the last day, with a fitting step. Raises `RuleError` (`time_invalid`, `usage_step_unknown`, those
    of `usage_of_link`)."""
    if step and step not in STEPS_MS:
        raise RuleError("usage_step_unknown", f'Step "{step[:20]}" is not known. Use one of {", ".join(STEPS_MS)}.')
    end = _time(ends_at) if ends_at else database_now()
    begin = _time(begins_at) if begins_at else end - USUAL
    return usage_of_link(link.pk, begins_at=begin, ends_at=end, step=step or None)


def _time(written: str) -> datetime:
    try:
        found = parse_datetime(written)
    except ValueError:  # the 31st of February
        found = None
    # An unescaped "+" of an offset arrives as a space.
    if found is None or found.tzinfo is None or not 1970 <= found.year < 9999:
        raise RuleError(
            "time_invalid",
            f'"{written[:40]}" is not a time with a time zone. Use one like 2026-11-21T06:00:00Z.',
        )
    return found


@require_safe
@own_page
def link_now(request: PageRequest, pk: int, link_id: int) -> HttpResponse:
    _, link = link_or_404(request, pk, link_id)
    return render(request, "usage/parts/now.html", {"one": now_of(link)})


@require_safe
@own_page
def ases_now(request: PageRequest) -> HttpResponse:
    return render(request, "usage/now.html", lines_of(selectors.user_ases_of(request.user)))
