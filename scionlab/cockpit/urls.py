"""URLs of the cockpit."""

from functools import partial, wraps

from django.urls import URLPattern, path

from scionlab.cockpit import bulk_views, exceptions, groups, history, saved, setup, traffic_views, views
from scionlab.cockpit.bulk_pages import DEFAULTS, LIMITS, Pages
from scionlab.pages.own_pages import View, form_on


def _bulk(pages: Pages) -> list[URLPattern]:
    name = f"cockpit_{pages.tab}"

    def of_these(view: View) -> View:
        return wraps(view)(partial(view, pages=pages))

    on_change = form_on(f"{name}_change", "pk")
    return [
        path(f"{pages.tab}/", of_these(bulk_views.choose), name=name),
        path(f"{pages.tab}/<key:pk>/", of_these(bulk_views.show), name=f"{name}_change"),
        path(f"{pages.tab}/<key:pk>/apply/", on_change(of_these(bulk_views.apply)), name=f"{name}_apply"),
        path(f"{pages.tab}/<key:pk>/put-back/", on_change(of_these(bulk_views.put_back)), name=f"{name}_put_back"),
    ]


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
    path("filters/", saved.save, name="cockpit_filter_save"),
    path("filters/<key:pk>/delete/", saved.delete, name="cockpit_filter_delete"),
    path("traffic/", traffic_views.traffic, name="cockpit_traffic"),
    path("traffic/cost/", traffic_views.cost, name="cockpit_cost"),
    path("traffic.csv", traffic_views.traffic_csv, name="cockpit_traffic_csv"),
    *_bulk(LIMITS),
    *_bulk(DEFAULTS),
]
