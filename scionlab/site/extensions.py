"""URLs of the extensions that this installation has (SCIONLAB_EXTENSIONS)."""

from __future__ import annotations

from importlib import import_module

from django.conf import settings
from django.urls import URLPattern, URLResolver
from django.utils.module_loading import module_has_submodule


def added(name: str) -> list[URLPattern | URLResolver]:
    """All lists of this name in the modules `urls` of the extensions: `urlpatterns`, `rest_patterns` (below /api/v1/),
    `host_patterns` (below /api/v4/host/)."""
    found: list[URLPattern | URLResolver] = []
    for extension in settings.SCIONLAB_EXTENSIONS:
        package = import_module(f"scionlab.{extension}")
        if module_has_submodule(package, "urls"):
            found += getattr(import_module(f"scionlab.{extension}.urls"), name, [])
    return found
