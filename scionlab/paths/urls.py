"""URLs of paths; `site.apps_urls` adds them to the site's."""

from django.urls import path

from scionlab.paths import pages as paths
from scionlab.paths.rest import as_path_views, path_views

urlpatterns = [
    path("ases/<key:pk>/paths/", paths.user_as_paths, name="user_as_paths"),
    path("paths/", paths.paths, name="paths"),
]
rest_patterns = [
    path("ases/<key:pk>/paths/", as_path_views.UserASPathsView.as_view(), name="api_as_paths"),
    path("paths/", path_views.PathsView.as_view(), name="api_paths"),
]
