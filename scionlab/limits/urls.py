"""URLs of limits; `site.apps_urls` adds them to the site's."""

from django.urls import path

from scionlab.limits.cockpit import defaults, exceptions, groups
from scionlab.limits.pages import exceptions as exception_pages
from scionlab.limits.pages import link, timed

urlpatterns = [
    path("ases/<key:pk>/links/<key:link_id>/", link.link_detail, name="link_detail"),
    path("ases/<key:pk>/links/<key:link_id>/bandwidth/", link.link_bandwidth, name="link_bandwidth"),
    path("ases/<key:pk>/links/<key:link_id>/preview/", link.link_preview, name="link_preview"),
    path("ases/<key:pk>/links/<key:link_id>/history/", link.link_history, name="link_history"),
    path("ases/<key:pk>/links/<key:link_id>/timed/", timed.timed_new, name="timed_new"),
    path("ases/<key:pk>/links/<key:link_id>/timed/preview/", timed.timed_preview, name="timed_preview"),
    path("ases/<key:pk>/links/<key:link_id>/timed/<key:timed_id>/cancel/", timed.timed_cancel, name="timed_cancel"),
    path("ases/<key:pk>/links/<key:link_id>/exception/", exception_pages.exception_new, name="exception_new"),
]
cockpit_patterns = [
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
