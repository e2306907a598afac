"""The generation G: the first half of every version `G.H` (DOMAIN section 4)."""

from __future__ import annotations

from django.db import transaction
from django.db.models import F

from scionlab.models import Host, LinkEnforcement, ServiceState


@transaction.atomic
def generation_raise() -> int:
    """G + 1: no host's version is the newest any more, so everybody fetches anew. Returns the new G.

    What was delivered and enforced was of the old generation, whose versions may name other configurations (a restored
    backup): nothing of it is known any more until the hosts have fetched and reported.
    """
    ServiceState.objects.get_or_create(pk=1)
    ServiceState.objects.filter(pk=1).update(generation=F("generation") + 1)
    Host.objects.exclude(delivered_config_version=0).update(delivered_config_version=0, delivered_limits_version=0)
    LinkEnforcement.objects.all().delete()
    return ServiceState.objects.get(pk=1).generation
