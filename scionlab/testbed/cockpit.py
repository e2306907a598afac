"""What an app adds to the administrators' cockpit.

An app appends an instance of its subclass to `OFFERS` in `AppConfig.ready`. Each method offers nothing unless
overridden.
"""

# ruff: noqa: ARG002  an app overrides what it needs
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from django.db.models import QuerySet
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from scionlab.testbed.models import AttachmentPoint
from scionlab.web.admin.columns import Tone


class Rate(NamedTuple):
    """Current traffic [kbit/s], from the newest samples of the Links; None: unknown."""

    to_user_kbit: int | None
    from_user_kbit: int | None

    @property
    def highest_kbit(self) -> int | None:
        return max((one for one in self if one is not None), default=None)


def sum_of(rates: Collection[Rate]) -> Rate:
    """As far as known."""
    known = ([one for one in side if one is not None] for side in zip(*rates, strict=True))
    return Rate(*(sum(side) if side else None for side in known)) if rates else Rate(None, None)


@dataclass(frozen=True)
class Trouble:
    """A problem of an attachment point. The list is sorted by `weight`, highest first."""

    weight: int
    tone: Tone
    words: str


class MenuEntry(NamedTuple):
    """`page`: name of its URL; `tab` marks it as the current one."""

    page: str
    tab: str
    words: str


class Offer:
    menu: tuple[MenuEntry, ...] = ()

    def asked(self, now: datetime) -> Mapping[str, Any]:
        """Expressions of the overview's one statement: whether there is something to notice."""
        return {}

    def notices(self, there_is: Mapping[str, Any], now: datetime) -> Iterable[SafeString]:
        """Urgent sentences on the overview; `there_is` has the answers to what was `asked`."""
        return ()

    def with_columns(self, points: QuerySet[AttachmentPoint], now: datetime) -> QuerySet[AttachmentPoint]:
        """With the columns that `troubles` reads."""
        return points

    def troubles(self, ap: AttachmentPoint) -> Iterable[Trouble]:
        """Of a row of `with_columns`."""
        return ()

    def rates_of_points(self, now: datetime) -> Mapping[int, Rate]:
        """Current traffic of the attachment points by primary key; one statement."""
        return {}

    def rates_of_links(self, ap: AttachmentPoint, now: datetime) -> Mapping[int, Rate]:
        """Current traffic of its Links by primary key, most first; one statement."""
        return {}

    def part_of(self, ap: AttachmentPoint, now: datetime) -> tuple[str, Mapping[str, Any]] | None:
        """A part of the page of the attachment point: template and context."""
        return None


OFFERS: Final[list[Offer]] = []
MOST_NAMED: Final = 5  # of rows in one sentence


def named(rows: Sequence[Any], words: Callable[[Any], str]) -> SafeString:
    first = format_html_join(", ", "{}", ((words(one),) for one in rows[:MOST_NAMED]))
    return format_html("{} and others", first) if len(rows) > MOST_NAMED else first
