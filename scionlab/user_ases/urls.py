"""URLs of user ASes and their Links; `site.apps_urls` adds them to the site's."""

from django.urls import path

from scionlab.user_ases.pages import user_as
from scionlab.user_ases.rest import as_views, link_views, policy_views

urlpatterns = [
    path("ases/", user_as.user_as_list, name="user_as_list"),
    path("ases/new/", user_as.user_as_new, name="user_as_create"),
    path("ases/preview/", user_as.attachment_preview, name="attachment_preview"),
    path("ases/<key:pk>/", user_as.user_as_detail, name="user_as_detail"),
    path("ases/<key:pk>/edit/", user_as.user_as_edit, name="user_as_edit"),
    path("ases/<key:pk>/limit/", user_as.user_as_limit, name="user_as_limit"),
    path("ases/<key:pk>/active/", user_as.user_as_active, name="user_as_active"),
    path("ases/<key:pk>/delete/", user_as.user_as_delete_page, name="user_as_delete"),
    path("ases/<key:pk>/configuration/", user_as.user_as_download, name="user_as_download"),
]
rest_patterns = [
    path("ases/", as_views.UserASListView.as_view(), name="api_as_list"),
    path("ases/<key:pk>/", as_views.UserASDetailView.as_view(), name="api_as_detail"),
    path("ases/<key:pk>/configuration/", as_views.UserASConfigurationView.as_view(), name="api_as_configuration"),
    path("links/", link_views.LinkListView.as_view(), name="api_link_list"),
    path("links/<key:pk>/", link_views.LinkDetailView.as_view(), name="api_link_detail"),
    path("links/<key:pk>/history/", link_views.LinkHistoryView.as_view(), name="api_link_history"),
    path("links/<key:pk>/timed-limits/", link_views.LinkTimedLimitsView.as_view(), name="api_link_timed_limits"),
    path("timed-limits/<key:pk>/", link_views.TimedLimitDetailView.as_view(), name="api_timed_limit_detail"),
    path("attachment-points/", policy_views.AttachmentPointListView.as_view(), name="api_attachment_point_list"),
    path(
        "attachment-points/<key:pk>/",
        policy_views.AttachmentPointDetailView.as_view(),
        name="api_attachment_point_detail",
    ),
    path("policy/", policy_views.PolicyView.as_view(), name="api_policy"),
]
