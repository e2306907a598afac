"""URLs of the cockpit."""

from django.urls import path

from scionlab.cockpit import history, setup, views
from scionlab.limits.cockpit import defaults, exceptions, groups

urlpatterns = [
    path("", views.overview, name="cockpit"),
    path("setup/", setup.setup, name="cockpit_setup"),
    path("aps/<key:pk>/", views.attachment_point, name="cockpit_ap"),
    path("aps/<key:pk>/uplink/", views.uplink, name="cockpit_uplink"),
    path("not-enforced/", views.not_enforced, name="cockpit_not_enforced"),
    path("history/", history.history, name="cockpit_history"),
    path("exceptions/", exceptions.exceptions, name="cockpit_exceptions"),
    path("exceptions/<key:pk>/decide/", exceptions.decide, name="cockpit_exception_decide"),
    path("exceptions/<key:pk>/end/", exceptions.end, name="cockpit_exception_end"),
    path("groups/", groups.group, name="cockpit_group_new"),
    path("groups/<key:pk>/", groups.group, name="cockpit_group"),
    path("defaults/", defaults.choose, name="cockpit_defaults"),
    path("defaults/<key:pk>/", defaults.show, name="cockpit_defaults_change"),
    path("defaults/<key:pk>/apply/", defaults.apply, name="cockpit_defaults_apply"),
    path("defaults/<key:pk>/put-back/", defaults.put_back, name="cockpit_defaults_put_back"),
]
