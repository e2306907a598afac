"""URLs below /api/: the host API, and the REST API."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path, re_path

from scionlab.accounts import rest as account_views
from scionlab.delivery.host_api import enrol, views
from scionlab.enforcement.host_api import enforcement
from scionlab.site import api_docs
from scionlab.site.extensions import added
from scionlab.user_ases.rest import as_views, link_views
from scionlab.user_ases.rest import policy_views as site_views

Patterns = list[URLPattern | URLResolver]

host_patterns: Patterns = [
    path("<str:uid>/config", views.config, name="host_config"),
    path("<str:uid>/deployed_config_version", views.deployed_config_version, name="host_deployed_version"),
    path("<str:uid>/installed", views.installed, name="host_installed"),
    path("<str:uid>/enforcement", enforcement, name="host_enforcement"),
]

rest_patterns: Patterns = [
    path("ases/", as_views.UserASListView.as_view(), name="api_as_list"),
    path("ases/<key:pk>/", as_views.UserASDetailView.as_view(), name="api_as_detail"),
    path("ases/<key:pk>/configuration/", as_views.UserASConfigurationView.as_view(), name="api_as_configuration"),
    path("links/", link_views.LinkListView.as_view(), name="api_link_list"),
    path("links/<key:pk>/", link_views.LinkDetailView.as_view(), name="api_link_detail"),
    path("links/<key:pk>/history/", link_views.LinkHistoryView.as_view(), name="api_link_history"),
    path("links/<key:pk>/timed-limits/", link_views.LinkTimedLimitsView.as_view(), name="api_link_timed_limits"),
    path("timed-limits/<key:pk>/", link_views.TimedLimitDetailView.as_view(), name="api_timed_limit_detail"),
    path("attachment-points/", site_views.AttachmentPointListView.as_view(), name="api_attachment_point_list"),
    path(
        "attachment-points/<key:pk>/",
        site_views.AttachmentPointDetailView.as_view(),
        name="api_attachment_point_detail",
    ),
    path("policy/", site_views.PolicyView.as_view(), name="api_policy"),
    path("profile/", account_views.ProfileView.as_view(), name="api_profile"),
    path("token/", account_views.TokenView.as_view(), name="api_token"),
    path("tokens/", account_views.TokenListView.as_view(), name="api_token_list"),
    path("tokens/<key:pk>/", account_views.TokenDetailView.as_view(), name="api_token_detail"),
    path("schema/", api_docs.SchemaView.as_view(), name="api_schema"),
]

urlpatterns: Patterns = [
    path("docs/", api_docs.docs, name="api_docs"),
    path("docs/operations/", api_docs.operations, name="api_operations"),
    path("v1/", include([*rest_patterns, *added("rest_patterns")])),
    path("v4/host/", include([*host_patterns, *added("host_patterns")])),
    path("v4/enrol", enrol.enrol, name="host_enrol"),
    re_path(r"^(?:v[23]/)?host(?:/(?P<rest>.*))?$", views.gone),
]
