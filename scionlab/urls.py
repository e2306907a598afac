"""Root URLs of the service. Each part has its own module."""

from allauth.mfa.base.views import authenticate
from django.contrib import admin
from django.contrib.auth.views import LogoutView
from django.urls import URLPattern, URLResolver, include, path, register_converter
from django.urls.converters import IntConverter
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from scionlab.accounts.pages import mails
from scionlab.delivery import health
from scionlab.limits.pages import exceptions, link, timed
from scionlab.platform.security_txt import security_txt
from scionlab.site import front, search
from scionlab.site import login as site
from scionlab.site.extensions import added
from scionlab.site.metrics import metrics
from scionlab.user_ases.pages import user_as


class KeyConverter(IntConverter):
    """A primary key. Longer numbers would make SQLite fail instead of finding nothing."""

    regex = "[0-9]{1,18}"


register_converter(KeyConverter, "key")

handler400 = "scionlab.platform.api_handlers.bad_request"
handler404 = "scionlab.platform.api_handlers.not_found"
handler500 = "scionlab.platform.outage.server_error"  # 503 while the database is unavailable

second_factor_step = require_http_methods(["GET", "HEAD", "POST"])(sensitive_post_parameters()(authenticate))

urlpatterns: list[URLPattern | URLResolver] = [
    path("", front.front, name="front"),
    path("livez", health.livez, name="livez"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path(".well-known/security.txt", security_txt, name="security_txt"),
    path("login/", site.login, name="login"),
    path("login/", site.login, name="account_login"),  # the name that allauth uses
    path("login/code/", second_factor_step, name="mfa_authenticate"),
    path("password/", site.password, name="password"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("account/", include("scionlab.accounts.urls")),
    path("search/", search.search, name="search"),
    path("ases/", user_as.user_as_list, name="user_as_list"),
    path("ases/new/", user_as.user_as_new, name="user_as_create"),
    path("ases/preview/", user_as.attachment_preview, name="attachment_preview"),
    path("ases/<key:pk>/", user_as.user_as_detail, name="user_as_detail"),
    path("ases/<key:pk>/edit/", user_as.user_as_edit, name="user_as_edit"),
    path("ases/<key:pk>/limit/", user_as.user_as_limit, name="user_as_limit"),
    path("ases/<key:pk>/active/", user_as.user_as_active, name="user_as_active"),
    path("ases/<key:pk>/delete/", user_as.user_as_delete_page, name="user_as_delete"),
    path("ases/<key:pk>/configuration/", user_as.user_as_download, name="user_as_download"),
    path("ases/<key:pk>/links/<key:link_id>/", link.link_detail, name="link_detail"),
    path("ases/<key:pk>/links/<key:link_id>/bandwidth/", link.link_bandwidth, name="link_bandwidth"),
    path("ases/<key:pk>/links/<key:link_id>/preview/", link.link_preview, name="link_preview"),
    path("ases/<key:pk>/links/<key:link_id>/history/", link.link_history, name="link_history"),
    path("ases/<key:pk>/links/<key:link_id>/timed/", timed.timed_new, name="timed_new"),
    path("ases/<key:pk>/links/<key:link_id>/timed/preview/", timed.timed_preview, name="timed_preview"),
    path("ases/<key:pk>/links/<key:link_id>/timed/<key:timed_id>/cancel/", timed.timed_cancel, name="timed_cancel"),
    path("ases/<key:pk>/links/<key:link_id>/exception/", exceptions.exception_new, name="exception_new"),
    path("mails/", mails.mails, name="mails"),
    path("api/", include("scionlab.site.rest_urls")),
    path("cockpit/", include("scionlab.cockpit.urls")),
    *added("urlpatterns"),
    path("admin/login/", site.admin_login),
    path("admin/", admin.site.urls),
]
