"""The generation G: the first half of every version `G.H` (DOMAIN section 4)."""

from __future__ import annotations

from django.db import transaction
from django.db.models import F

from scionlab.models import ServiceState


@transaction.atomic
def generation_raise() -> int:
    """G + 1: no host's version is the newest any more, so everybody fetches anew. Returns the new G."""
    ServiceState.objects.get_or_create(pk=1)
    ServiceState.objects.filter(pk=1).update(generation=F("generation") + 1)
    return ServiceState.objects.get(pk=1).generation
