"""URLs of what hosts fetch, and of health; `site.apps_urls` adds them to the site's."""

from django.urls import include, path, re_path

from scionlab.delivery import health
from scionlab.delivery.host_api import enrol, views

urlpatterns = [
    path("livez", health.livez, name="livez"),
    path("readyz", health.readyz, name="readyz"),
    path("api/v4/enrol", enrol.enrol, name="host_enrol"),
    path("api/", include([re_path(r"^(?:v[23]/)?host(?:/(?P<rest>.*))?$", views.gone)])),
]
host_patterns = [
    path("<str:uid>/config", views.config, name="host_config"),
    path("<str:uid>/deployed_config_version", views.deployed_config_version, name="host_deployed_version"),
    path("<str:uid>/installed", views.installed, name="host_installed"),
]
