"""Metrics that other apps read from the database on demand; `site.figures` has those of the core."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

Values = list[tuple[str, tuple[str, ...], float]]  # name, values of its labels, number


@dataclass(frozen=True)
class Figure:
    """A gauge: its values at a time."""

    name: str
    help: str
    labels: tuple[str, ...]
    read: Callable[[datetime], Iterable[tuple[str, tuple[str, ...], float]]]


MORE_FIGURES: Final[list[Figure]] = []  # appended in `AppConfig.ready`


def seconds(moment: datetime | None) -> float:
    """Since the epoch; 0 for None."""
    return 0.0 if moment is None else moment.timestamp()
