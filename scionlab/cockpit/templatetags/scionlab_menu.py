"""The cockpit's menu."""

from __future__ import annotations

from django import template

from scionlab.testbed.cockpit import OFFERS, MenuEntry

register = template.Library()


@register.simple_tag
def cockpit_menu() -> list[MenuEntry]:
    """What other apps add to it."""
    return [entry for offer in OFFERS for entry in offer.menu]
