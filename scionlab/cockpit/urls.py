"""The addresses of the cockpit."""

from django.urls import path

from scionlab.cockpit import bulk_views, defaults_views, history, traffic_views, views

urlpatterns = [
    path("", views.overview, name="cockpit"),
    path("aps/<key:pk>/", views.attachment_point, name="cockpit_ap"),
    path("aps/<key:pk>/uplink/", views.uplink, name="cockpit_uplink"),
    path("not-enforced/", views.not_enforced, name="cockpit_not_enforced"),
    path("history/", history.history, name="cockpit_history"),
    path("traffic/", traffic_views.traffic, name="cockpit_traffic"),
    path("traffic/cost/", traffic_views.cost, name="cockpit_cost"),
    path("traffic.csv", traffic_views.traffic_csv, name="cockpit_traffic_csv"),
    path("limits/", bulk_views.choose, name="cockpit_limits"),
    path("limits/<key:pk>/", bulk_views.show, name="cockpit_bulk"),
    path("limits/<key:pk>/apply/", bulk_views.apply, name="cockpit_bulk_apply"),
    path("limits/<key:pk>/put-back/", bulk_views.put_back, name="cockpit_bulk_put_back"),
    path("defaults/", defaults_views.choose, name="cockpit_defaults"),
    path("defaults/<key:pk>/", defaults_views.show, name="cockpit_defaults_change"),
    path("defaults/<key:pk>/apply/", defaults_views.apply, name="cockpit_defaults_apply"),
    path("defaults/<key:pk>/put-back/", defaults_views.put_back, name="cockpit_defaults_put_back"),
]
