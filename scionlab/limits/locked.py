"""Locks of Links that are about to be changed, and of the rows that affect them."""

from __future__ import annotations

from collections.abc import Collection

from scionlab.limits.defaults import apply_default
from scionlab.testbed import locks
from scionlab.testbed.models import Link
from scionlab.testbed.versions.changes import Changes, read_links


def locked_link(link_id: int, changes: Changes) -> Link:
    """Lock a Link within a transaction, after applying a pending default. Raises `Link.DoesNotExist`."""
    found = locked_links([link_id], changes)
    if not found:
        raise Link.DoesNotExist(f"Link {link_id} was removed.")
    return found[0]


def locked_links(link_ids: Collection[int], changes: Changes) -> list[Link]:
    """Lock several Links, by primary key; deleted ones are missing."""
    ap_ids = Link.objects.filter(pk__in=link_ids).values_list("interface_a__AS__attachment_point", flat=True)
    found = {one for one in ap_ids if one is not None}  # a Link never moves to another provider
    if found:
        locks.lock_attachment_points(found)
    for ap_id in sorted(found):
        apply_default(ap_id, changes, of_links=link_ids)
    return read_links(set(link_ids))
