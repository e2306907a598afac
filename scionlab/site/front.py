"""The front page: what the service is, who can register, state of the testbed. Logged-in users are redirected."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from django.conf import settings
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe
from redis.exceptions import RedisError

from scionlab.accounts.models import User
from scionlab.enforcement.census import take_census
from scionlab.enforcement.words import NOT_IN_FORCE, State
from scionlab.platform.clock import database_now
from scionlab.web.pages.own_pages import start_page

_KEY: Final = "front-figures"
_KEPT_S: Final = 10  # limits how often visitors cause a census


@dataclass(frozen=True)
class Figures:
    """`up`: attachment points whose agent reports. `in_force`: how many of the `active` Links have the wanted limit."""

    points: int
    up: int
    active: int
    in_force: int


@require_safe
def front(request: HttpRequest) -> HttpResponse:
    if isinstance(request.user, User):
        return redirect(start_page(request.user))
    context = {
        "figures": _figures(),
        "is_open": settings.REGISTRATION_OPEN,
        "domains": settings.REGISTRATION_DOMAINS,
    }
    return render(request, "site/front.html", context)


def _figures() -> Figures:
    try:
        found: Figures | None = cache.get(_KEY)
        if found is None:
            found = _counted()
            cache.set(_KEY, found, _KEPT_S)
    except RedisError:
        found = _counted()
    return found


def _counted() -> Figures:
    census = take_census(now=database_now())
    states: Counter[State] = Counter()
    for group in census.groups:
        states[group.verdict.state] += group.count
    active = states.total() - states["inactive"]
    return Figures(
        points=len(census.agents),
        up=sum(agent.receipt is not None and not agent.is_silent for agent in census.agents.values()),
        active=active,
        in_force=active - sum(states[state] for state in NOT_IN_FORCE),
    )
