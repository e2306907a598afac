"""Usage of a Link, as a file for its owner."""

from __future__ import annotations

from django.http import Http404, HttpResponse, JsonResponse
from django.urls.converters import StringConverter
from django.views.decorators.http import require_safe

from bandwidth_config import RuleError
from scionlab.platform.clock import database_now
from scionlab.platform.throttles import ManyAtOnceError, one_of_few
from scionlab.testbed import selectors
from scionlab.testbed.models import Link, UserAS
from scionlab.usage.formats import file_name, usage_csv, usage_document
from scionlab.usage.series import usage_of_link
from scionlab.usage.span import read_span
from scionlab.web.pages.own_pages import PageRequest, many_at_once, own_page


class KindConverter(StringConverter):
    regex = "csv|json"


@require_safe
@own_page
def usage_file(request: PageRequest, pk: int, link_id: int, kind: str) -> HttpResponse:
    """`begins_at`, `ends_at` (ISO 8601 with a zone) and `step` (10s, 5min, day); default: the last day."""
    user_as = selectors.user_as_of(request.user, pk)
    link = next((link for link in selectors.links_of(user_as) if link.pk == link_id), None)
    if link is None:
        raise Http404
    try:
        with one_of_few(request.user.pk):
            return _file(request, user_as, link, kind)
    except ManyAtOnceError as exc:
        return many_at_once(exc)


def _file(request: PageRequest, user_as: UserAS, link: Link, kind: str) -> HttpResponse:
    asked = {name: request.GET.get(name, "") for name in ("begins_at", "ends_at", "step")}
    try:
        span = read_span(**asked, now=database_now())
        usage = usage_of_link(link.pk, begins_at=span.begins_at, ends_at=span.ends_at, step=span.step)
    except RuleError as exc:
        return HttpResponse(f"{exc.message}\n", status=400, content_type="text/plain; charset=utf-8")
    response: HttpResponse
    if kind == "json":
        response = JsonResponse(usage_document(usage))
    else:  # not streamed: `usage_of_link` bounds it, and our web server does not stream responses
        response = HttpResponse("".join(usage_csv(usage)), content_type="text/csv; charset=utf-8; header=present")
    name = file_name(user_as.isd_as, link.interface_a.AS.isd_as, usage, kind)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
