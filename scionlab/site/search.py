"""The search in the header: ASes by ISD-AS, AS number, label, owner or address; for administrators attachment points,
too. Results are limited to what the user can open."""

from __future__ import annotations

import ipaddress
from typing import Final

from django.db.models import F, Q
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from scionlab.accounts.models import User
from scionlab.testbed import selectors
from scionlab.testbed.models import AttachmentPoint, UserAS
from scionlab.web.pages.own_pages import PageRequest, own_page

SHOWN: Final = 50  # per kind


@require_safe
@own_page
def search(request: PageRequest) -> HttpResponse:
    """Two statements, one if the user is no administrator."""
    q = request.GET.get("q", "").replace("\0", "").strip()[:100]
    ases = _user_ases(request.user, q) if q else []
    aps = _attachment_points(q) if q and request.user.is_staff else []
    is_more = max(len(ases), len(aps)) > SHOWN
    context = {"nav": "search", "q": q, "ases": ases[:SHOWN], "aps": aps[:SHOWN], "is_more": is_more, "shown": SHOWN}
    return render(request, "site/search.html", context)


def _user_ases(user: User, q: str) -> list[UserAS]:
    """Ordered by number, one more than are shown; other users' only for administrators."""
    rows = UserAS.objects.all() if user.is_staff else UserAS.objects.filter(owner=user)
    which = selectors.as_named(q) | Q(owner__email__icontains=q)
    if address := _address(q):
        which |= Q(interfaces__public_ip=address) | Q(interfaces__bind_ip=address)
    found = rows.filter(which).select_related("isd", "owner").order_by("isd__isd_id", "as_id").distinct()
    return list(found[: SHOWN + 1])


def _attachment_points(q: str) -> list[AttachmentPoint]:
    which = selectors.as_named(q, "AS__")
    if address := _address(q):
        which |= Q(host__public_ipv4=address) | Q(host__public_ipv6=address) | Q(host__bind_ip=address)
    found = AttachmentPoint.objects.filter(which).select_related("AS__isd")
    return list(found.order_by(F("AS__isd__isd_id"), F("AS__as_id"))[: SHOWN + 1])


def _address(q: str) -> str:
    """Normalized; empty for an incomplete address."""
    try:
        return str(ipaddress.ip_address(q.strip("[]")))
    except ValueError:
        return ""
