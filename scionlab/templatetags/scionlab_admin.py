"""What stands at the top of administrators' pages; Django's own views have no hook for it."""

from __future__ import annotations

from django import template

from scionlab.admin.notices import notices

register = template.Library()


@register.simple_tag
def testbed_notices() -> list[str]:
    """What administrators must know now."""
    return notices()
