"""What a page says after a save."""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib import messages

from scionlab.limits.pages.consequences import Snapshot, snapshot, surprises, what_happens_next
from scionlab.testbed import selectors
from scionlab.testbed.models import Link, UserAS
from scionlab.web.pages.own_pages import PageRequest


def say_saved(
    request: PageRequest,
    user_as: UserAS,
    before: Snapshot | None,
    *,
    links: Sequence[Link] | None = None,
    done: str = "Saved.",
) -> None:
    """Add messages about the consequences of the save; `links` avoids reading again."""
    after = snapshot(user_as if links is not None else selectors.user_as_of(request.user, user_as.pk), links)
    messages.success(request, " ".join([done, *what_happens_next(before, after)]))
    for warning in surprises(before, after):
        messages.warning(request, warning)
