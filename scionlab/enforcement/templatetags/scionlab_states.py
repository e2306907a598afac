"""The state of a Link: as a badge, and as a word."""

from __future__ import annotations

from django import template

from scionlab.enforcement.status import LinkStatus
from scionlab.enforcement.words import WORDS, State, Word

register = template.Library()


@register.inclusion_tag("enforcement/parts/stage.html")
def stage(status: LinkStatus) -> dict[str, object]:
    """The state as a word, a colour and a shape; each is sufficient alone."""
    return {"status": status}


@register.filter
def in_words(state: State) -> Word:
    """Its entry in the table of words."""
    return WORDS[state]
