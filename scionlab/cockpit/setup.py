"""The setup page: from an empty site to the first user AS, in five steps.

The state of a step is derived from the database, so the page can be left at any time and steps done in Django admin
count.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods

from bandwidth_config import format_kbit
from scionlab.cockpit.setup_forms import AttachmentPointForm, CoreForm, SetupForm, SiteDefaultForm
from scionlab.delivery.enrolment import IssuedToken, enrol_command, enrolment_token_create
from scionlab.delivery.models import EnrolmentToken
from scionlab.enforcement.models import HostReceipt
from scionlab.platform.clock import database_now
from scionlab.platform.notation.local_time import say_time
from scionlab.testbed import selectors
from scionlab.testbed.models import AS, AttachmentPoint, BandwidthChange, UserAS
from scionlab.web.access import staff_page
from scionlab.web.pages.own_pages import PageRequest, taken_back

DEFAULT, CORE, POINT, AGENT, USER_AS = "default", "core", "attachment-point", "agent", "user-as"
TITLES: Final = {
    DEFAULT: "Site default",
    CORE: "First ISD and core AS",
    POINT: "First attachment point",
    AGENT: "Its agent",
    USER_AS: "Your first user AS",
}


@dataclass(frozen=True)
class Step:
    """`words` describes what exists if the step is done, otherwise what is missing."""

    name: str
    is_done: bool
    words: str

    @property
    def title(self) -> str:
        return TITLES[self.name]


class Site:
    """Data for the steps; at most eight SQL statements."""

    def __init__(self) -> None:
        self.default_kbit = selectors.policy().default_bandwidth_kbit
        self.core = AS.objects.filter(is_core=True).select_related("isd").order_by("pk").first()
        self.point = AttachmentPoint.objects.select_related("AS__isd", "host").order_by("pk").first()
        of_points = HostReceipt.objects.filter(host__attachment_point__isnull=False)
        self.report = of_points.select_related("host__AS__isd").order_by("-received_at").first()
        self.user_as = UserAS.objects.select_related("isd").order_by("pk").first()

    @cached_property
    def steps(self) -> list[Step]:
        return [self._default(), self._core(), self._point(), self._agent(), self._user_as()]

    def _default(self) -> Step:
        """Later steps imply that the default was accepted. Once Links depend on it, it is changed through a preview
        instead."""
        changes = BandwidthChange.objects.filter(kind=BandwidthChange.Kind.SITE_DEFAULT)
        is_done = self.core is not None or self.user_as is not None or changes.exists()
        applies = format_kbit(self.default_kbit)
        return Step(DEFAULT, is_done, applies if is_done else f"{applies} applies, unless you set another one.")

    def _core(self) -> Step:
        if self.core is None:
            return Step(CORE, False, "There is no core AS yet, so certificates for other ASes cannot be signed.")
        return Step(CORE, True, str(self.core))

    def _point(self) -> Step:
        if self.point is None:
            return Step(POINT, False, "There is no attachment point yet, so no user AS can attach.")
        return Step(POINT, True, str(self.point))

    def _agent(self) -> Step:
        if self.report is not None:
            words = f"The agent of {self.report.host.AS} reported at {say_time(self.report.received_at)}."
            return Step(AGENT, True, words)
        if self.point is None:
            return Step(AGENT, False, "The agent enforces the limits. Enrol it once the attachment point exists.")
        return Step(AGENT, False, _enrolment_words(self.point))

    def _user_as(self) -> Step:
        if self.user_as is None:
            return Step(USER_AS, False, "No user AS is attached yet.")
        return Step(USER_AS, True, f"{self.user_as}")


def _enrolment_words(point: AttachmentPoint) -> str:
    token = EnrolmentToken.objects.filter(host=point.host_id).order_by("-created_at", "-pk").first()
    if token is None:
        return f"The agent of {point.AS} is not enrolled yet. It needs a token."
    if token.used_at is not None:
        at = say_time(token.used_at)
        return f"The agent of {point.AS} was enrolled at {at} and has not reported. Run scionlab-bw-agent status there."
    if token.voided_at is not None:
        return f"The token for the agent of {point.AS} was revoked at {say_time(token.voided_at)}. Create another one."
    if token.expires_at <= database_now():
        return f"The token for the agent of {point.AS} expired at {say_time(token.expires_at)}. Create another one."
    return f"A token for the agent of {point.AS} is valid until {say_time(token.expires_at)} and was not used yet."


@require_http_methods(["GET", "HEAD", "POST"])
@staff_page
@sensitive_variables("issued")
def setup(request: PageRequest) -> HttpResponse:
    """Show the first open step, or the one in `?step=`; POST carries out the step that the form names."""
    site = Site()
    if request.method != "POST":
        form = _form(_current(site, request.GET.get("step", "")), site, taken_back(request))
        return _page(request, site, form)
    name = request.POST.get("step", "")
    if name == AGENT and site.point is not None:
        issued = enrolment_token_create(host_id=site.point.host_id, actor=request.user)
        return _page(request, Site(), None, issued=issued)
    form = _form(name, site, request.POST)
    if form is None or _is_done(site, name):
        messages.warning(request, "Nothing was changed: this step is already done, or another one comes first.")
        return redirect("cockpit_setup")
    if form.is_valid():
        with form.refusing():
            messages.success(request, form.carry_out(request.user))
            following = {DEFAULT: f"?step={CORE}"}.get(name, "")
            return redirect(reverse("cockpit_setup") + following)
    return _page(request, site, form, current=name)


def _is_done(site: Site, name: str) -> bool:
    return any(step.is_done for step in site.steps if step.name == name)


def _current(site: Site, asked: str) -> str:
    """The name of the open step; "" if all are done."""
    missing = [step.name for step in site.steps if not step.is_done]
    can = {POINT: site.core is not None, AGENT: site.point is not None, USER_AS: site.point is not None}
    if asked in missing and can.get(asked, True):
        return asked
    return missing[0] if missing else ""


def _form(name: str, site: Site, typed: Any) -> SetupForm | None:
    if name == DEFAULT:
        return SiteDefaultForm(typed, initial={"default_bandwidth_kbit": site.default_kbit})
    if name == CORE:
        return CoreForm(typed)
    if name == POINT and site.core is not None:
        return AttachmentPointForm(typed, core=site.core)
    return None


def _page(
    request: PageRequest, site: Site, form: SetupForm | None, *, current: str = "", issued: IssuedToken | None = None
) -> HttpResponse:
    current = current or (AGENT if issued is not None else _current(site, request.GET.get("step", "")))
    context = {
        "tab": "setup",
        "steps": site.steps,
        "current": current,
        "form": form,
        "issued": issued,
        "command": enrol_command(),
        "point": site.point,
    }
    return render(request, "cockpit/setup.html", context)
