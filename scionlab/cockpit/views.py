"""The overview, one attachment point, and the list of Links that are not enforced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.core.paginator import Page
from django.db.models import Case, Count, F, Q, QuerySet, Sum, When
from django.db.models.functions import Coalesce
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from scionlab.cockpit.map import draw
from scionlab.cockpit.notices import notices
from scionlab.cockpit.reports import load_reports
from scionlab.cockpit.testbed import ApState, counts_of, load_talkers, load_use, read_testbed
from scionlab.enforcement.agents import Agent
from scionlab.enforcement.status import LinkStatus, link_status
from scionlab.enforcement.words import NOT_IN_FORCE, WORDS, State
from scionlab.limits.cockpit.forms import UplinkForm
from scionlab.limits.uplink import uplink_set
from scionlab.platform.clock import database_now
from scionlab.testbed import selectors
from scionlab.testbed.cockpit import OFFERS, Rate
from scionlab.testbed.models import AttachmentPoint, Link
from scionlab.testbed.selectors import USER_LINKS
from scionlab.web.access import staff_page
from scionlab.web.pages.common import gone_is_404
from scionlab.web.pages.own_pages import PageRequest, form_on, taken_back
from scionlab.web.paging import Order, page_of

POINTS_PER_PAGE = 15
LINKS_PER_PAGE = 40
PROBLEMS_SHOWN, MOST_PROBLEMS = 12, 100  # a receipt may contain a thousand long ones
OWNERS_SHOWN = 12
TALKERS_SHOWN = 10
_EARLIEST = datetime.min.replace(tzinfo=timezone.get_fixed_timezone(0))

SHOWS: dict[str, tuple[str, Callable[[ApState], bool]]] = {
    "": ("all", lambda _state: True),
    "trouble": ("with problems", lambda state: bool(state.troubles)),
    "silent": ("no report, or never connected", lambda state: state.contact in {"no report", "never connected"}),
    "behind": ("behind", lambda state: state.is_behind),
    "problems": ("problems reported by the agent", lambda state: bool(state.problems)),
    "other": (
        "SCION files of another service",
        lambda state: state.scion_files in {"limits_only", "other", "taken_over"},
    ),
    "foreign": ("foreign qdiscs or filters", lambda state: any(one.is_foreign for one in state.problems)),
    "drift": ("drift in the kernel", lambda state: any(one.is_drift for one in state.problems)),
    "over": ("limits above the uplink", lambda state: (state.oversubscription or 0) > 1),
    "no_uplink": ("uplink not set", lambda state: state.ap.uplink_kbit is None),
}


# --- overview -------------------------------------------------------------------------------------------------


@require_safe
@staff_page
def overview(request: PageRequest) -> HttpResponse:
    now = database_now()
    testbed = read_testbed(now=now)
    states = testbed.states
    load_use(states, now=now)
    reports = load_reports(states, now=now)
    order = Order[ApState](
        request,
        {
            "trouble": lambda state: (state.weight, state.active_links),
            "name": lambda state: state.name,
            "heard": lambda state: state.contact_at or _EARLIEST,
            "gaps": lambda state: (len(reports[state.ap.pk].gaps), reports[state.ap.pk].silent),
            "links": lambda state: state.active_links,
            "sum": lambda state: max(state.standing),
            "over": lambda state: state.oversubscription or 0,
            "used": lambda state: _highest(state.used),
        },
        highest_first=("trouble", "gaps", "links", "sum", "over", "used"),
    )
    q, show = request.GET.get("q", "").strip()[:100], request.GET.get("show", "")
    is_shown = SHOWS.get(show, SHOWS[""])[1]
    found = [state for state in states if is_shown(state) and _is_named(state, q)]
    page: Page[Any] = page_of(request, order.sorted(found), POINTS_PER_PAGE)
    page.object_list = [(state, reports[state.ap.pk]) for state in page.object_list]
    context = {
        "tab": "overview",
        "order": order,
        "page": page,
        "map": draw(states),
        "notices": notices(),
        "totals": _totals(states),
        "site_default_kbit": testbed.site_default_kbit,
        "q": q,
        "show": show,
        "shows": [(value, words) for value, (words, _) in SHOWS.items()],
    }
    return render(request, "cockpit/overview.html", context)


def _highest(rate: Rate | None) -> int:
    """For an order; unknown traffic is below all other."""
    return -1 if rate is None or rate.highest_kbit is None else rate.highest_kbit


def _is_named(state: ApState, text: str) -> bool:
    return text.lower() in f"{state.name} {state.ap.AS.label}".lower()


def _totals(states: Iterable[ApState]) -> dict[str, Any]:
    states = list(states)
    counts = sum((state.states for state in states), Counter[State]())
    clamped = sum(state.clamped for state in states)
    return {"links": counts.total(), "points": len(states), "clamped": clamped, "states": counts_of(counts)}


# --- one attachment point -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LinkRow:
    status: LinkStatus
    used: Rate | None = None

    @property
    def is_clamped(self) -> bool:
        return self.status.link.active and self.status.link.enforced != self.status.requested


def _rows(keys: Iterable[int], agents: Mapping[int, Agent], now: datetime) -> list[LinkRow]:
    """The Links with these keys, in this order, judged; two SQL statements."""
    links = selectors.with_relations(Link.objects.filter(pk__in=keys))
    found = {link.pk: link for link in links.select_related("interface_b__AS__useras__owner")}
    in_order = [found[key] for key in keys if key in found]
    return [LinkRow(link_status(link, now=now, agent=agents[_ap_of(link)])) for link in in_order]


def _ap_of(link: Link) -> int:
    return int(link.interface_a.AS.attachment_point.pk)


@require_safe
@staff_page
@gone_is_404
def attachment_point(request: PageRequest, pk: int) -> HttpResponse:
    typed = taken_back(request)
    return _ap_page(request, pk, None if typed is None else UplinkForm(typed, ap=AttachmentPoint.objects.get(pk=pk)))


def _ap_page(request: PageRequest, pk: int, form: UplinkForm | None = None) -> HttpResponse:
    now = database_now()
    testbed = read_testbed(now=now, attachment_point_id=pk)
    if not testbed.states:
        raise Http404("The attachment point does not exist.")
    state = testbed.states[0]
    rates = load_talkers(state, now=now)
    ranks = [*WORDS]
    links = testbed.census.judged(
        Link.objects.filter(USER_LINKS, interface_a__AS__attachment_point=pk),
        lambda verdict: str(ranks.index(verdict.state)),
        "rank",
    )
    order = Order[LinkRow](
        request,
        {
            "stage": ["rank", "interface_b__AS__as_id"],
            "as": ["interface_b__AS__as_id"],
            "requested": ["bandwidth_kbit", "from_user_kbit"],
            "enforced": ["enforcement__to_user_rate_kbit", "enforcement__from_user_rate_kbit"],
            "used": [],
        },
        highest_first=("requested", "enforced", "used"),
    )
    keys: Any = order.ordered(links).values_list("pk", flat=True)
    if order.name == "used":
        keys = sorted(keys, key=lambda key: _highest(rates.get(key)), reverse=order.is_descending)
    page: Page[Any] = page_of(request, keys, LINKS_PER_PAGE, count=state.states.total())
    talkers = list(rates)[:TALKERS_SHOWN]
    shown = list(page.object_list)
    rows = {row.status.link.pk: row for row in _rows([*shown, *talkers], testbed.census.agents, now)}
    rows = {key: replace(row, used=rates.get(key)) for key, row in rows.items()}
    page.object_list = [rows[key] for key in shown if key in rows]
    top = [rows[key] for key in talkers if key in rows]
    owners = _owners(pk)
    problems = state.problems[: MOST_PROBLEMS if "problems" in request.GET else PROBLEMS_SHOWN]
    context = {
        "tab": "overview",
        "state": state,
        "order": order,
        "page": page,
        "talkers": top,
        "parts": [part for offer in OFFERS if (part := offer.part_of(state.ap, now)) is not None],
        "problems": problems,
        "hidden_problems": len(state.problems) - len(problems),
        "form": form or UplinkForm(ap=state.ap),
        "currency": state.currency,
        "owners": owners[:OWNERS_SHOWN],
        "more_owners": len(owners) > OWNERS_SHOWN,
    }
    return render(request, "cockpit/ap.html", context)


def _owners(ap_id: int) -> list[Any]:
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
    messages.success(request, "Saved. This limits nothing; no attachment point gets a new configuration.")
    return redirect("cockpit_ap", pk=pk)


# --- Links by state -------------------------------------------------------------------------------------------


@require_safe
@staff_page
def not_enforced(request: PageRequest) -> HttpResponse:
    """List Links whose requested limits are not enforced, because of their state or their maximum. `why`: Links in this
    state, or "above" for those with a maximum below the request. An attachment point without reports is one row with
    the number of its Links."""
    now = database_now()
    testbed = read_testbed(now=now)
    asked, why = request.GET.get("ap", ""), request.GET.get("why", "")
    ap = next((state for state in testbed.states if str(state.ap.pk) == asked), None)
    totals = _totals(testbed.states if ap is None else [ap])
    why = why if why in {*WORDS, "above"} else ""
    links: Any = testbed.census.judged(Link.objects.filter(USER_LINKS), lambda verdict: verdict.state, "state")
    links = _with_since(_chosen(links, why))
    silent: list[ApState] = []
    if ap is not None:
        links = links.filter(interface_a__AS__attachment_point=ap.ap)
    elif why in {"", "no_report"}:
        silent = [state for state in testbed.states if state.states["no_report"]]
        links = links.exclude(state="no_report")
    order = Order[LinkRow](
        request,
        {
            "since": ["shown_since"],
            "ap": ["interface_a__AS__isd__isd_id", "interface_a__AS__as_id", "interface_b__AS__as_id"],
            "as": ["interface_b__AS__as_id"],
            "requested": ["bandwidth_kbit", "from_user_kbit"],
        },
        highest_first=("requested",),
    )
    page: Page[Any] = page_of(request, order.ordered(links).values_list("pk", flat=True), LINKS_PER_PAGE)
    page.object_list = _rows(list(page.object_list), testbed.census.agents, now)
    context = {
        "tab": "not_enforced",
        "order": order,
        "page": page,
        "ap": ap,
        "why": why,
        "totals": totals,
        "silent": silent,
        "found": page.paginator.count + sum(state.states["no_report"] for state in silent),
    }
    return render(request, "cockpit/not_enforced.html", context)


def _chosen(links: QuerySet[Link], why: str) -> QuerySet[Link]:
    """`links` with the column `state`: in one state, above the maximum, or all that are not enforced as requested."""
    above = Q(active=True, fact_is_clamped=True)
    if why:
        return links.filter(above if why == "above" else Q(state=why))
    return links.filter(Q(state__in=NOT_IN_FORCE) | above)


def _with_since(links: QuerySet[Link]) -> QuerySet[Link]:
    """Add the column `since`."""
    reported = F("interface_a__host__receipt__received_at")
    since = Case(
        When(state__in=["waiting", "delivered", "inactive"], then=F("changed_at")),
        When(state="no_report", then=reported),
        default=Coalesce(F("enforcement__since"), reported, F("changed_at")),
    )
    return links.annotate(shown_since=since)
