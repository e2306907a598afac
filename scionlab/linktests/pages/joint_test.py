"""Joint tests of an AS: schedule, result, cancel."""

from __future__ import annotations

from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from scionlab.linktests.joint_report import JointStatus, status_of_joint, with_parts
from scionlab.linktests.joint_test import joint_test_cancel, joint_test_create
from scionlab.linktests.models import JointTest
from scionlab.linktests.pages.joint_panel import joint_panel
from scionlab.linktests.pages.link_tests import say_cancelled
from scionlab.linktests.pages.test_forms import JointTestForm
from scionlab.platform.clock import database_now
from scionlab.platform.notation.local_time import zone_of
from scionlab.testbed import selectors
from scionlab.testbed.models import UserAS
from scionlab.web.pages.common import gone_is_404
from scionlab.web.pages.forms import problems_of
from scionlab.web.pages.own_pages import PageRequest, form_on, own_page, taken_back

SHOWN = 20  # per AS, newest first


@require_http_methods(["GET", "HEAD", "POST"])
@own_page
@gone_is_404
def joint_test_new(request: PageRequest, pk: int) -> HttpResponse:
    """GET shows the form and earlier joint tests, POST reserves a time."""
    user_as = selectors.user_as_of(request.user, pk)
    links = [one for one in selectors.links_of(user_as) if one.active]
    now = database_now()
    is_sent = request.method == "POST"
    typed = request.POST if is_sent else taken_back(request)
    form = JointTestForm(typed, zone=zone_of(request.user), now=now)
    if is_sent and form.is_valid():
        with form.refusing():
            made = joint_test_create(user_as_id=user_as.pk, actor=request.user, **form.asked)
            return redirect("joint_test", pk=pk, joint_id=made.pk)
    rows = with_parts(JointTest.objects.filter(user_as=user_as))[:SHOWN]
    context = {
        "nav": "ases",
        "user_as": user_as,
        "links": links,
        "form": form,
        "command": f"scionlab-bw test {user_as.isd_as} --all-links",
        "problems": list(problems_of(form, "")) if is_sent else [],
        "tests": [status_of_joint(one, now=now) for one in rows],
    }
    is_taken = is_sent and form.has_error("begins_at", "test_slot_taken")
    return render(request, "linktests/joint_test_new.html", context, status=409 if is_taken else 200)


@require_safe
@own_page
def joint_test(request: PageRequest, pk: int, joint_id: int) -> HttpResponse:
    user_as = selectors.user_as_of(request.user, pk)
    found = _status_or_404(user_as, joint_id)
    context = {
        "nav": "ases",
        "user_as": user_as,
        "one": found,
        "is_mine": found.joint.created_by == request.user,
        "command": f"scionlab-bw test {user_as.isd_as} --all-links --id {found.joint.pk}",
        "live": reverse("joint_test", args=[pk, joint_id]) if found.is_open else "",
        "panel": joint_panel(found),
        "now": database_now(),
    }
    return render(request, "linktests/joint_test.html", context)


@require_POST
@own_page
@form_on("joint_test", "pk", "joint_id")
@gone_is_404
def joint_cancel(request: PageRequest, pk: int, joint_id: int) -> HttpResponse:
    user_as = selectors.user_as_of(request.user, pk)
    found = _status_or_404(user_as, joint_id).joint
    say_cancelled(request, joint_test_cancel(joint_test_id=found.pk, actor=request.user))
    return redirect("joint_test", pk=pk, joint_id=joint_id)


def _status_or_404(user_as: UserAS, joint_id: int) -> JointStatus:
    found = with_parts(JointTest.objects.filter(user_as=user_as, pk=joint_id)).first()
    if found is None:
        raise Http404("This AS has no such joint test.")
    return status_of_joint(found, now=database_now())
