"""URLs of all installed apps of ours: of the core, and of this installation's extensions (SCIONLAB_EXTENSIONS)."""

from __future__ import annotations

from importlib import import_module

from django.apps import apps
from django.urls import URLPattern, URLResolver
from django.utils.module_loading import module_has_submodule


def of_apps(name: str) -> list[URLPattern | URLResolver]:
    """All lists of this name in the modules `urls` of the apps: `urlpatterns`, `rest_patterns` (below /api/v1/),
    `host_patterns` (below /api/v4/host/), `cockpit_patterns` (below /cockpit/)."""
    found: list[URLPattern | URLResolver] = []
    for app in apps.get_app_configs():
        if app.name.startswith("scionlab.") and app.module is not None and module_has_submodule(app.module, "urls"):
            found += getattr(import_module(f"{app.name}.urls"), name, [])
    return found
