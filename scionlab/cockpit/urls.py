"""URLs of the cockpit; `site.apps_urls` adds them to the site's."""

from django.urls import path

from scionlab.cockpit import history, setup, views

cockpit_patterns = [
    path("", views.overview, name="cockpit"),
    path("aps/<key:pk>/", views.attachment_point, name="cockpit_ap"),
    path("aps/<key:pk>/uplink/", views.uplink, name="cockpit_uplink"),
    path("not-enforced/", views.not_enforced, name="cockpit_not_enforced"),
    path("setup/", setup.setup, name="cockpit_setup"),
    path("history/", history.history, name="cockpit_history"),
]
