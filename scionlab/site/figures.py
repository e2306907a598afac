"""Metrics that are read from the database on demand: nine statements, cached for 5 s."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Final, get_args

from django.core.cache import cache
from django.db import connection
from django.db.models import Count, Min, Q
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from redis.exceptions import RedisError

from scionlab.accounts.models import Mail
from scionlab.delivery.models import SigningKey
from scionlab.enforcement.agents import Agent
from scionlab.enforcement.census import take_census
from scionlab.enforcement.judgement import Stage
from scionlab.enforcement.words import State
from scionlab.platform.clock import database_now
from scionlab.platform.metrics.figures import MORE_FIGURES, Values, seconds

KEPT_S: Final = 5
_KEY: Final = "scionlab.metrics.figures"
STAGES: Final = get_args(Stage)
STATES: Final = get_args(State)
HOST_STATES: Final = ("current", "behind", "removed", "silent", "never")

# name -> (help, labels)
FIGURES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "scionlab_links": ("Links of user ASes to attachment points, by stage.", ("stage",)),
    "scionlab_links_by_state": ("Links of user ASes to attachment points, by the state shown on pages.", ("state",)),
    "scionlab_attachment_point_hosts": (
        "Hosts of attachment points: current, behind, limits removed, no report, never connected.",
        ("state",),
    ),
    "scionlab_attachment_point_hosts_clock_off": (
        "Hosts of attachment points whose clock is off by more than 5 s (as the agent measured) or 30 s (of receipts).",
        (),
    ),
    "scionlab_database_standbys": ("Standbys that follow the database.", ()),
    "scionlab_mails_waiting": ("Emails waiting to be sent.", ()),
    "scionlab_mails_failing": ("Waiting emails with at least one failed attempt.", ()),
    "scionlab_mail_oldest_timestamp_seconds": ("Creation time of the oldest waiting email; 0: none.", ()),
    "scionlab_signing_key_end_timestamp_seconds": ("Expiry of the last valid signing key; 0: none.", ()),
}


def families(now: datetime | None = None) -> Iterator[Metric]:
    """Raises the database's errors while it is unavailable."""
    found = _kept()
    if found is None:
        found = list(_read(now or database_now()))
        with suppress(RedisError):
            cache.set(_KEY, found, KEPT_S)
    for name, (help_, labels) in {**FIGURES, **{more.name: (more.help, more.labels) for more in MORE_FIGURES}}.items():
        family = GaugeMetricFamily(name, help_, labels=labels)
        for one, values, number in found:
            if one == name:
                family.add_metric(values, number)
        yield family


def _kept() -> Values | None:
    try:
        found: Values | None = cache.get(_KEY)
    except RedisError:
        return None
    return found


def _read(now: datetime) -> Iterator[tuple[str, tuple[str, ...], float]]:
    census = take_census(now=now)
    stages, states = Counter[str](), Counter[str]()
    for group in census.groups:
        stages[group.verdict.stage] += group.count
        states[group.verdict.state] += group.count
    yield from (("scionlab_links", (stage,), float(stages[stage])) for stage in STAGES)
    yield from (("scionlab_links_by_state", (state,), float(states[state])) for state in STATES)
    agents = census.agents.values()
    hosts = Counter(_host_state(agent, census.generation) for agent in agents)
    yield from (("scionlab_attachment_point_hosts", (state,), float(hosts[state])) for state in HOST_STATES)
    yield "scionlab_attachment_point_hosts_clock_off", (), float(sum(one.clock_off is not None for one in agents))
    yield "scionlab_database_standbys", (), float(_standbys())
    mails = Mail.objects.filter(sent_at=None).aggregate(
        waiting=Count("pk"), failing=Count("pk", filter=Q(attempts__gt=0) & ~Q(last_error="")), oldest=Min("created_at")
    )
    yield "scionlab_mails_waiting", (), float(mails["waiting"])
    yield "scionlab_mails_failing", (), float(mails["failing"])
    yield "scionlab_mail_oldest_timestamp_seconds", (), seconds(mails["oldest"])
    keys = SigningKey.objects.filter(revoked_at=None, not_after__gt=now).order_by("-not_after")
    yield "scionlab_signing_key_end_timestamp_seconds", (), seconds(keys.values_list("not_after", flat=True).first())
    for more in MORE_FIGURES:
        yield from more.read(now)


def _standbys() -> int:
    """Its rows are visible to all; only details are restricted."""
    if connection.vendor != "postgresql":
        return 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_replication")
        return int(cursor.fetchone()[0])


def _host_state(agent: Agent, generation: int) -> str:
    if agent.receipt is None:
        return "never"
    if agent.removed_at is not None:
        return "removed"
    if agent.is_silent:
        return "silent"
    return "behind" if agent.is_behind(generation) else "current"
