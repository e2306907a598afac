"""Addresses below /api/: the host API, and the REST API."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path, re_path

from scionlab.api import host_views

host_patterns: list[URLPattern | URLResolver] = [
    path("<str:uid>/config", host_views.config, name="host_config"),
    path("<str:uid>/deployed_config_version", host_views.deployed_config_version, name="host_deployed_version"),
    path("<str:uid>/enforcement", host_views.enforcement, name="host_enforcement"),
]

urlpatterns: list[URLPattern | URLResolver] = [
    path("v4/host/", include(host_patterns)),
    re_path(r"^(?:v[23]/)?host(?:/(?P<rest>.*))?$", host_views.gone),
]
