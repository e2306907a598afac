"""The testbed as administrators see it: the overview, one attachment point, and what is not enforced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.db.models import Count, F, Sum
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from bandwidth_config import format_limits
from scionlab import selectors
from scionlab.cockpit.access import staff_page
from scionlab.cockpit.forms import UplinkForm
from scionlab.cockpit.paging import Order, page_of
from scionlab.cockpit.testbed import (
    NOT_ENFORCED,
    STAGES,
    ApState,
    Rate,
    load_ends,
    load_talkers,
    load_use,
    read_testbed,
)
from scionlab.cockpit.uplink_plot import uplink_plot
from scionlab.models import AttachmentPoint, Link
from scionlab.own_pages import PageRequest, form_on, taken_back
from scionlab.selectors import USER_LINKS, LinkStatus
from scionlab.services.uplink import uplink_set
from scionlab.templatetags.scionlab_pages import STAGE_WORDS
from scionlab.views.common import gone_is_404

POINTS_PER_PAGE = 25
LINKS_PER_PAGE = 40
PROBLEMS_SHOWN = 12
OWNERS_SHOWN = 12
TALKERS_SHOWN = 10
_EARLIEST = datetime.min.replace(tzinfo=timezone.get_fixed_timezone(0))

SHOWS: dict[str, tuple[str, Callable[[ApState], bool]]] = {
    "": ("all", lambda _state: True),
    "trouble": ("with trouble", lambda state: bool(state.troubles)),
    "silent": ("silent or never heard", lambda state: state.agent in {"silent", "never heard"}),
    "behind": ("behind", lambda state: state.is_behind),
    "problems": ("agent reports problems", lambda state: bool(state.problems)),
    "foreign": ("foreign qdiscs or filters", lambda state: any(one.is_foreign for one in state.problems)),
    "drift": ("drift in the kernel", lambda state: any(one.is_drift for one in state.problems)),
    "over": ("limits above the uplink", lambda state: (state.oversubscription or 0) > 1),
    "no_uplink": ("uplink not known", lambda state: state.ap.uplink_kbit is None),
}


# --- overview -------------------------------------------------------------------------------------------------


@require_safe
@staff_page
def overview(request: PageRequest) -> HttpResponse:
    now = timezone.now()
    states = read_testbed(now=now)
    load_use(states, now=now)
    order = Order[ApState](
        request,
        {
            "trouble": lambda state: (state.weight, state.active_links),
            "name": lambda state: state.name,
            "heard": lambda state: state.heard_at or _EARLIEST,
            "links": lambda state: state.active_links,
            "sum": lambda state: max(state.standing),
            "over": lambda state: state.oversubscription or 0,
            "used": lambda state: state.used.highest_kbit if state.used else -1,
        },
        highest_first=("trouble", "links", "sum", "over", "used"),
    )
    q, show = request.GET.get("q", "").strip()[:100], request.GET.get("show", "")
    is_shown = SHOWS.get(show, SHOWS[""])[1]
    found = [state for state in states if is_shown(state) and _is_named(state, q)]
    context = {
        "tab": "overview",
        "nav": "cockpit",
        "order": order,
        "page": page_of(request, order.sorted(found), POINTS_PER_PAGE),
        "totals": _totals(states),
        "settled": {"enforced", "inactive"},
        "policy": selectors.policy(),
        "q": q,
        "show": show,
        "shows": [(value, words) for value, (words, _) in SHOWS.items()],
    }
    return render(request, "cockpit/overview.html", context)


def _is_named(state: ApState, text: str) -> bool:
    return text.lower() in f"{state.name} {state.ap.AS.label}".lower()


@dataclass(frozen=True)
class Totals:
    links: int
    points: int
    clamped: int
    stages: list[tuple[str, int]]


def _totals(states: Iterable[ApState]) -> Totals:
    states = list(states)
    stages = sum((state.stages for state in states), Counter[str]())
    return Totals(
        links=stages.total(),
        points=len(states),
        clamped=sum(state.clamped for state in states),
        stages=[(stage, stages[stage]) for stage in STAGES if stages[stage]],
    )


# --- one attachment point -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LinkRow:
    status: LinkStatus
    used: Rate | None

    @property
    def is_clamped(self) -> bool:
        return self.status.link.active and self.status.link.enforced != self.status.requested


@require_safe
@staff_page
@gone_is_404
def attachment_point(request: PageRequest, pk: int) -> HttpResponse:
    typed = taken_back(request)
    return _ap_page(request, pk, None if typed is None else UplinkForm(typed, ap=AttachmentPoint.objects.get(pk=pk)))


def _ap_page(request: PageRequest, pk: int, form: UplinkForm | None = None) -> HttpResponse:
    now = timezone.now()
    states = read_testbed(now=now, attachment_point_id=pk)
    if not states:
        raise Http404("There is no such attachment point.")
    state = states[0]
    rates = load_talkers(state, now=now)
    order = Order[LinkRow](
        request,
        {
            "stage": lambda row: (STAGES.index(row.status.stage), row.status.link.far_as_id),  # type: ignore[attr-defined]  # annotated
            "as": lambda row: row.status.link.far_as_id,  # type: ignore[attr-defined]  # annotated by read_testbed
            "requested": lambda row: row.status.requested,
            "enforced": lambda row: row.status.enforced or (-1, -1),
            "used": lambda row: row.used.highest_kbit if row.used else -1,
        },
        highest_first=("requested", "enforced", "used"),
    )
    rows = [LinkRow(status, rates.get(status.link.pk)) for status in state.statuses]
    page = page_of(request, order.sorted(rows), LINKS_PER_PAGE)
    by_link = {row.status.link.pk: row for row in rows}
    top = [by_link[link_id] for link_id in rates if link_id in by_link][:TALKERS_SHOWN]
    load_ends(row.status for row in [*page, *top])
    owners = _owners(pk)
    context = {
        "tab": "overview",
        "nav": "cockpit",
        "state": state,
        "order": order,
        "page": page,
        "talkers": top,
        "plot": uplink_plot(state.ap, now=now),
        "problems": state.problems[:PROBLEMS_SHOWN],
        "hidden_problems": len(state.problems) - PROBLEMS_SHOWN,
        "form": form or UplinkForm(ap=state.ap),
        "currency": selectors.policy().currency,
        "owners": owners[:OWNERS_SHOWN],
        "more_owners": len(owners) > OWNERS_SHOWN,
    }
    return render(request, "cockpit/ap.html", context)


def _owners(ap_id: int) -> list[Any]:
    """Those with the highest limits, one more than are shown."""
    links = Link.objects.filter(USER_LINKS, interface_a__AS__attachment_point=ap_id, active=True)
    by_owner = links.values(email=F("interface_b__AS__useras__owner__email")).annotate(
        links=Count("pk"), kbit=Sum("bandwidth_kbit")
    )
    return list(by_owner.order_by("-kbit", "email")[: OWNERS_SHOWN + 1])


@require_POST
@staff_page
@form_on("cockpit_ap", "pk")
@gone_is_404
def uplink(request: PageRequest, pk: int) -> HttpResponse:
    form = UplinkForm(request.POST, ap=AttachmentPoint.objects.get(pk=pk))
    if not form.is_valid():
        return _ap_page(request, pk, form)
    uplink_set(attachment_point_id=pk, actor=request.user, **form.cleaned_data)
    messages.success(request, "Saved. Nothing is limited by it, so no attachment point gets a new configuration.")
    return redirect("cockpit_ap", pk=pk)


# --- requested, but not enforced ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Missing:
    """A Link whose owner asked for something that is not enforced: because of its stage, of the maximum, or of both."""

    state: ApState
    status: LinkStatus

    @property
    def is_clamped(self) -> bool:
        return self.status.link.active and self.status.link.enforced != self.status.requested

    @property
    def reasons(self) -> list[str]:
        stage = [self.status.stage] if self.status.stage in NOT_ENFORCED else []
        return [*stage, "clamped"] if self.is_clamped else [*stage]

    @property
    def since(self) -> datetime | None:
        if self.status.stage in {"waiting", "delivered"}:
            return self.status.link.changed_at
        return self.status.since

    @property
    def words(self) -> str:
        """Why, of which the stage's own sentence is the first part."""
        held = f"Held at {format_limits(self.status.link.enforced)}, the maximum there." if self.is_clamped else ""
        stage = self.status.text if self.status.stage in NOT_ENFORCED else ""
        return f"{stage} {held}".strip()


REASONS = {**{stage: STAGE_WORDS[stage] for stage in NOT_ENFORCED}, "clamped": "Held at a maximum"}


@require_safe
@staff_page
def not_enforced(request: PageRequest) -> HttpResponse:
    states = read_testbed(now=timezone.now())
    asked, why = request.GET.get("ap", ""), request.GET.get("why", "")
    ap = next((state for state in states if str(state.ap.pk) == asked), None)
    missing = [row for state in states if ap is None or state is ap for row in _missing(state)]
    counts = Counter(reason for row in missing for reason in row.reasons)
    order = Order[Missing](
        request,
        {
            "since": lambda row: row.since or _EARLIEST,
            "ap": lambda row: (row.state.name, row.status.link.far_as_id),  # type: ignore[attr-defined]  # annotated
            "as": lambda row: row.status.link.far_as_id,  # type: ignore[attr-defined]  # annotated by read_testbed
            "requested": lambda row: row.status.requested,
        },
        highest_first=("requested",),
    )
    found = [row for row in missing if why in row.reasons] if why in REASONS else missing
    page = page_of(request, order.sorted(found), LINKS_PER_PAGE)
    load_ends(row.status for row in page)
    context = {
        "tab": "not_enforced",
        "nav": "cockpit",
        "order": order,
        "page": page,
        "ap": ap,
        "why": why if why in REASONS else "",
        "reasons": [(name, words, counts[name]) for name, words in REASONS.items() if counts[name]],
    }
    return render(request, "cockpit/not_enforced.html", context)


def _missing(state: ApState) -> Iterable[Missing]:
    return (row for status in state.statuses if (row := Missing(state, status)).reasons)
