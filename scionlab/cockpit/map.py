"""The map of the testbed: each ISD is a line with its attachment points as circles.

The area of a circle is its number of active Links, its edge their most urgent state. The browser wraps the lines, so
two hundred attachment points are legible at any width.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from math import sqrt
from typing import NamedTuple

from scionlab.cockpit.testbed import ApState
from scionlab.enforcement.words import WORDS

_SMALLEST, _LARGEST = 4, 15  # radius, in units of the drawing


class Node(NamedTuple):
    """An attachment point. `edge` names the CSS class of the state: the tone, or `none` without Links."""

    key: int
    name: str
    radius: int
    edge: str
    words: str


class Isd(NamedTuple):
    name: str
    nodes: list[Node]


def draw(states: Iterable[ApState]) -> list[Isd]:
    """Return the map of all attachment points, ordered by ISD-AS; no SQL statement."""
    states = list(states)
    most = max((state.active_links for state in states), default=0)
    by_isd = groupby(states, key=lambda state: state.ap.AS.isd)
    return [Isd(str(isd), [_node(state, most) for state in found]) for isd, found in by_isd]


def _node(state: ApState, most: int) -> Node:
    links = state.active_links
    edge, words = "none", "no links"
    if links:
        first, count = state.state_counts[0]
        some = "" if count == links else f"{count} "
        edge = WORDS[first].tone
        words = f"{links} link{'' if links == 1 else 's'}, {some}{WORDS[first].word.lower()}"
    radius = _SMALLEST + round((_LARGEST - _SMALLEST) * sqrt(links / most)) if links else _SMALLEST
    return Node(state.ap.pk, state.name.partition("-")[2], radius, edge, words)
