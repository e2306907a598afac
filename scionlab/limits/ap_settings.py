"""Settings of an attachment point that other apps add."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from scionlab.accounts.models import User
from scionlab.testbed.models import AttachmentPoint
from scionlab.web.pages.stale_pages import Values


class Store(Protocol):
    def __call__(self, ap: AttachmentPoint, new: Values, *, actor: User | None, reason: str) -> None:
        """Store the changed values `new`; the row of `ap` is locked."""


@dataclass(frozen=True)
class ApSettings:
    """`names`: columns of `AttachmentPoint`. `checked` normalizes the given values, and raises `RuleError`; it is told
    only those of `names` that are given."""

    names: frozenset[str]
    checked: Callable[[Values], Values]
    store: Store


AP_SETTINGS: Final[list[ApSettings]] = []  # appended in `AppConfig.ready`
