"""Fragments with current rates, which the script fetches while a page is open."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from scionlab.limits.pages.link import link_or_404
from scionlab.testbed import selectors
from scionlab.usage.pages.dials import lines_of, now_of
from scionlab.web.pages.own_pages import PageRequest, own_page


@require_safe
@own_page
def link_now(request: PageRequest, pk: int, link_id: int) -> HttpResponse:
    _, link = link_or_404(request, pk, link_id)
    return render(request, "usage/parts/now.html", {"one": now_of(link)})


@require_safe
@own_page
def ases_now(request: PageRequest) -> HttpResponse:
    return render(request, "usage/now.html", lines_of(selectors.user_ases_of(request.user)))
