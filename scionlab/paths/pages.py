"""The page that shows limits along pasted SCION paths, and the report on the paths of an AS. Nothing is stored."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods, require_safe

from bandwidth_config import RuleError
from scionlab.limits.measured import LAST_TESTS, TRAFFIC
from scionlab.paths.as_paths import paths_report
from scionlab.paths.path_view import PathView, path_views
from scionlab.paths.scion_path import MAX_HOPS, MAX_PATHS
from scionlab.platform.clock import database_now
from scionlab.testbed import selectors
from scionlab.web.pages.forms import RulesForm, problems_of
from scionlab.web.pages.own_pages import PageRequest, own_page, taken_back


def _pasted(label: str, help_text: str, rows: int, *, required: bool = True) -> forms.CharField:
    attrs = {"rows": rows, "autocomplete": "off", "spellcheck": "false", "autocapitalize": "off"}
    return forms.CharField(
        label=label,
        help_text=help_text,
        required=required,
        strip=False,
        widget=forms.Textarea(attrs=attrs),
        error_messages={"required": "Paste the output of scion showpaths, or a sequence."},
    )


class PathsForm(RulesForm):
    paths = _pasted(
        "Paths",
        "The output of scion showpaths (with or without --format json), or sequences such as "
        f"17-ffaa:1:1#0,1 17-ffaa:0:1107#21,0, one path a line. At most {MAX_PATHS} paths of {MAX_HOPS} hops, 64 kB.",
        8,
    )
    traceroute = _pasted(
        "Traceroute", "Optional: the output of scion traceroute along one of the paths.", 4, required=False
    )

    def views(self, request: PageRequest) -> list[PathView]:
        """Empty if the input is invalid; the error is at its field."""
        if not self.is_valid():
            return []
        sent = self.cleaned_data
        try:
            return path_views(sent["paths"], sent["traceroute"], reader=request.user, now=database_now())
        except RuleError as exc:
            self.refuse(exc)
            return []


@require_http_methods(["GET", "HEAD", "POST"])
@own_page
def paths(request: PageRequest) -> HttpResponse:
    is_sent = request.method == "POST"
    form = PathsForm(request.POST) if is_sent else PathsForm(initial=_typed_before(request))
    context = {"nav": "paths", "form": form, "paths": form.views(request) if is_sent else []}
    context |= {"problems": list(problems_of(form, "")), "measures_traffic": bool(TRAFFIC)}
    return render(request, "paths/paths.html", context)


def _typed_before(request: PageRequest) -> dict[str, Any]:
    typed = taken_back(request)
    return {} if typed is None else typed.dict()


@require_safe
@own_page
def user_as_paths(request: PageRequest, pk: int) -> HttpResponse:
    user_as = selectors.user_as_of(request.user, pk)
    report = paths_report(user_as, now=database_now())
    context = {"nav": "ases", "user_as": user_as, "report": report}
    context |= {"measures_traffic": bool(TRAFFIC), "has_tests": bool(LAST_TESTS)}
    return render(request, "paths/user_as.html", context)
