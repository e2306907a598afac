"""What other apps show on the list and the page of a user's ASes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from scionlab.testbed.models import Link, UserAS


@dataclass(frozen=True)
class LinesOfASes:
    """A line per AS in the list: by primary key, what `template` shows as `one`; none for an AS that is missing."""

    template: str
    of: Callable[[Sequence[UserAS]], Mapping[int, Any]]


@dataclass(frozen=True)
class PartOfLinks:
    """A part of each Link's card on the page of an AS: by primary key, what `template` shows as `one`."""

    template: str
    of: Callable[[Sequence[Link], datetime], Mapping[int, Any]]


AS_LINES: Final[list[LinesOfASes]] = []  # appended in `AppConfig.ready`
LINK_PARTS: Final[list[PartOfLinks]] = []
