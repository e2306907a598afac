"""URLs of the whole site; `site.apps_urls` adds them."""

from django.urls import path

from scionlab.platform.security_txt import security_txt
from scionlab.site import api_docs, front, login, search
from scionlab.site.metrics import metrics

urlpatterns = [
    path("", front.front, name="front"),
    path("metrics", metrics, name="metrics"),
    path(".well-known/security.txt", security_txt, name="security_txt"),
    path("login/", login.login, name="login"),
    path("login/", login.login, name="account_login"),  # the name that allauth uses
    path("password/", login.password, name="password"),
    path("search/", search.search, name="search"),
    path("admin/login/", login.admin_login),
    path("api/docs/", api_docs.docs, name="api_docs"),
    path("api/docs/operations/", api_docs.operations, name="api_operations"),
]
rest_patterns = [
    path("schema/", api_docs.SchemaView.as_view(), name="api_schema"),
]
