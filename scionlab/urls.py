"""Root URLs of the service. Each app has its own in its module `urls`."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path, register_converter
from django.urls.converters import IntConverter

from scionlab.site.apps_urls import of_apps


class KeyConverter(IntConverter):
    """A primary key. Longer numbers would make SQLite fail instead of finding nothing."""

    regex = "[0-9]{1,18}"


register_converter(KeyConverter, "key")

handler400 = "scionlab.platform.api_handlers.bad_request"
handler404 = "scionlab.platform.api_handlers.not_found"
handler500 = "scionlab.platform.outage.server_error"  # 503 while the database is unavailable

urlpatterns: list[URLPattern | URLResolver] = [
    *of_apps("urlpatterns"),
    path("api/v1/", include(of_apps("rest_patterns"))),
    path("api/v4/host/", include(of_apps("host_patterns"))),
    path("cockpit/", include(of_apps("cockpit_patterns"))),
    path("admin/", admin.site.urls),
]
