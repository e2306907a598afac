"""One Link that is about to be changed, with the rows locked that decide about it."""

from __future__ import annotations

from scionlab.links.defaults import settle_default
from scionlab.models import Link, locks
from scionlab.versions.changes import Changes, read_links


def locked_link(link_id: int, changes: Changes) -> Link:
    """Within a transaction; a default still on its way is settled first. Raises `Link.DoesNotExist`."""
    ap_ids = Link.objects.filter(pk=link_id).values_list("interface_a__AS__attachment_point", flat=True)
    ap_id = ap_ids.get()  # a Link never moves to another provider
    if ap_id is not None:
        locks.lock_attachment_points([ap_id])
        settle_default(ap_id, changes)
    found = read_links({link_id})
    if not found:
        raise Link.DoesNotExist(f"Link {link_id} was removed.")
    return found[0]
