"""Locks for whoever first compares what is stored with what somebody has seen, and then calls a service.

The service takes the same locks again, in the order of `services.allocation`; so these begin where it begins, and hold
all that it will hold of the same table. Each is to be called in a transaction.
"""

from __future__ import annotations

from collections.abc import Collection

from scionlab.models import Link
from scionlab.services import allocation


def lock_link(link_id: int) -> None:
    """Nobody else changes the Link, its timed limits or its being there."""
    aps = Link.objects.filter(pk=link_id).values_list("interface_a__AS__attachment_point", flat=True)
    allocation.lock_attachment_points(ap_id for ap_id in aps if ap_id is not None)


def lock_user_as(user_as_id: int, *, joins: Collection[int] = ()) -> None:
    """Nobody else changes the AS or one of its Links. `joins`: attachment points that it is about to attach to."""
    allocation.lock_ases([user_as_id], joins=joins)
