"""Figures that are read from the database when somebody asks: four statements, shared for 5 s by all who ask."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

from django.core.cache import cache
from django.db.models import Case, Count, F, Min, Q, Value, When
from django.db.models.functions import Coalesce
from django.utils import timezone
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from redis.exceptions import RedisError

from scionlab.models import Host, Link, LinkEnforcement, Mail, SigningKey
from scionlab.selectors import SILENT_AFTER_S

KEPT_S: Final = 5
_KEY: Final = "scionlab.metrics.figures"
STAGES: Final = ("inactive", "waiting", "delivered", "enforced", "failed", "silent", "not_verified")

# name -> (help, labels)
FIGURES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "scionlab_links": ("Links of user ASes to attachment points, by how far their limits got.", ("stage",)),
    "scionlab_attachment_point_hosts": (
        "Hosts of attachment points: enforcing what is newest, behind, silent, or never heard of.",
        ("state",),
    ),
    "scionlab_mails_waiting": ("Mails that are to be sent.", ()),
    "scionlab_mails_failing": ("Of these, those that a mail server refused at least once.", ()),
    "scionlab_mail_oldest_timestamp_seconds": ("When the oldest mail that waits was written; 0: none waits.", ()),
    "scionlab_signing_key_end_timestamp_seconds": ("When the last valid signing key ends; 0: there is none.", ()),
}

Values = list[tuple[str, tuple[str, ...], float]]


def families(now: datetime | None = None) -> Iterator[Metric]:
    """Raises what the database raises while it is away."""
    found = _kept()
    if found is None:
        found = list(_read(now or timezone.now()))
        with suppress(RedisError):
            cache.set(_KEY, found, KEPT_S)
    for name, (help_, labels) in FIGURES.items():
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
    stages = _links_by_stage(now)
    yield from (("scionlab_links", (stage,), float(stages.get(stage, 0))) for stage in STAGES)
    for state, number in _hosts(now).items():
        yield "scionlab_attachment_point_hosts", (state,), float(number or 0)
    mails = Mail.objects.filter(sent_at=None).aggregate(
        waiting=Count("pk"), failing=Count("pk", filter=Q(attempts__gt=0) & ~Q(last_error="")), oldest=Min("created_at")
    )
    yield "scionlab_mails_waiting", (), float(mails["waiting"])
    yield "scionlab_mails_failing", (), float(mails["failing"])
    yield "scionlab_mail_oldest_timestamp_seconds", (), _seconds(mails["oldest"])
    keys = SigningKey.objects.filter(revoked_at=None, not_after__gt=now).order_by("-not_after")
    yield "scionlab_signing_key_end_timestamp_seconds", (), _seconds(keys.values_list("not_after", flat=True).first())


def _links_by_stage(now: datetime) -> dict[str, int]:
    """As `selectors.link_status` judges, in one statement; only whether the rates are those of this very moment is left
    to the agent, which says so in its receipt."""
    host = "interface_a__host__"
    received = F(f"{host}receipt__received_at")
    is_delivered = Q(
        **{
            f"{host}delivered_config_version__gte": F("wanted_config_version"),
            f"{host}delivered_limits_version__gte": F("wanted_limits_version"),
        }
    )
    is_covered = Q(
        enforcement__received_at__gte=received,
        enforcement__config_version__gte=F("wanted_config_version"),
        enforcement__config_version__lte=F(f"{host}config_version"),
        enforcement__limits_version__gte=F("wanted_limits_version"),
        enforcement__limits_version__lte=F(f"{host}limits_version"),
    )
    is_deployed = Q(**{f"{host}config_version_deployed__gte": F("wanted_config_version")})
    is_silent = Q(**{f"{host}receipt__received_at__lt": now - timedelta(seconds=SILENT_AFTER_S)})
    has_no_agent = Q(**{f"{host}receipt__isnull": True})
    stage = Case(
        When(active=False, then=Value("inactive")),
        When(has_no_agent & is_deployed & is_delivered, then=Value("not_verified")),
        When(is_silent, then=Value("silent")),
        When(is_covered & Q(enforcement__state=LinkEnforcement.State.ENFORCED), then=Value("enforced")),
        When(is_covered, then=Value("failed")),
        When(is_delivered, then=Value("delivered")),
        default=Value("waiting"),
    )
    links = Link.objects.filter(
        type=Link.Type.PROVIDER, interface_a__AS__attachment_point__isnull=False, interface_b__AS__useras__isnull=False
    )
    rows = links.order_by().annotate(stage=stage).values_list("stage").annotate(Count("pk"))
    return dict(rows)


def _hosts(now: datetime) -> dict[str, Any]:
    hosts = Host.objects.filter(attachment_point__isnull=False)
    never = Q(receipt__isnull=True)
    silent = Q(receipt__received_at__lt=now - timedelta(seconds=SILENT_AFTER_S))
    behind = Q(config_version__gt=Coalesce(F("receipt__config_version"), Value(0))) | Q(
        limits_version__gt=Coalesce(F("receipt__limits_version"), Value(0))
    )
    speaks = ~never & ~silent
    return hosts.aggregate(
        current=Count("pk", filter=speaks & ~behind, distinct=True),
        behind=Count("pk", filter=speaks & behind, distinct=True),
        silent=Count("pk", filter=silent, distinct=True),
        never=Count("pk", filter=never, distinct=True),
    )


def _seconds(moment: datetime | None) -> float:
    return 0.0 if moment is None else moment.timestamp()
