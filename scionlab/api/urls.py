"""Addresses below /api/: the host API, and the REST API."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path, re_path
from drf_spectacular.views import SpectacularAPIView

from scionlab.api import enrol_views, host_views, usage_views, views

Patterns = list[URLPattern | URLResolver]

host_patterns: Patterns = [
    path("<str:uid>/config", host_views.config, name="host_config"),
    path("<str:uid>/deployed_config_version", host_views.deployed_config_version, name="host_deployed_version"),
    path("<str:uid>/enforcement", host_views.enforcement, name="host_enforcement"),
    path("<str:uid>/usage", usage_views.usage, name="host_usage"),
]

rest_patterns: Patterns = [
    path("ases/", views.UserASListView.as_view(), name="api_as_list"),
    path("ases/<int:pk>/", views.UserASDetailView.as_view(), name="api_as_detail"),
    path("links/", views.LinkListView.as_view(), name="api_link_list"),
    path("links/<int:pk>/", views.LinkDetailView.as_view(), name="api_link_detail"),
    path("attachment-points/", views.AttachmentPointListView.as_view(), name="api_attachment_point_list"),
    path("token/", views.TokenView.as_view(), name="api_token"),
    path("schema/", SpectacularAPIView.as_view(), name="api_schema"),
]

urlpatterns: Patterns = [
    path("v1/", include(rest_patterns)),
    path("v4/host/", include(host_patterns)),
    path("v4/enrol", enrol_views.enrol, name="host_enrol"),
    re_path(r"^(?:v[23]/)?host(?:/(?P<rest>.*))?$", host_views.gone),
]
