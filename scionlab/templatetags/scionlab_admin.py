"""The administrators' first page gets its summary from here; Django's own index view has no hook for it."""

from __future__ import annotations

from django import template
from django.utils import timezone

from scionlab.admin.notices import notices
from scionlab.admin.overview import Overview, overview

register = template.Library()


@register.simple_tag
def testbed_overview() -> Overview:
    """What is enforced, and who is silent, now."""
    return overview(now=timezone.now())


@register.simple_tag
def testbed_notices() -> list[str]:
    """What administrators must know now."""
    return notices(now=timezone.now())
