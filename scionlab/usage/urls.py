"""URLs of usage and live rates; `site.apps_urls` adds them to the site's."""

from django.urls import path, register_converter

from scionlab.usage.cockpit import traffic_views
from scionlab.usage.host_api import live_upload, usage_upload
from scionlab.usage.pages import usage
from scionlab.usage.rest import LinkUsageView, TrafficView

register_converter(usage.KindConverter, "usage_kind")

urlpatterns = [
    path("ases/now/", usage.ases_now, name="ases_now"),
    path("ases/<key:pk>/links/<key:link_id>/now/", usage.link_now, name="link_now"),
    path("ases/<key:pk>/links/<key:link_id>/usage.<usage_kind:kind>", usage.usage_file, name="link_usage"),
]
rest_patterns = [
    path("links/<key:pk>/usage/", LinkUsageView.as_view(), name="api_link_usage"),
    path("traffic/", TrafficView.as_view(), name="api_traffic"),
]
cockpit_patterns = [
    path("traffic/", traffic_views.traffic, name="cockpit_traffic"),
    path("traffic.csv", traffic_views.traffic_csv, name="cockpit_traffic_csv"),
    path("traffic/cost/", traffic_views.cost, name="cockpit_cost"),
]
host_patterns = [
    path("<str:uid>/usage", usage_upload.usage, name="host_usage"),
    path("<str:uid>/live", live_upload.live_rates, name="host_live"),
]
