"""URLs of accounts; `site.apps_urls` adds them to the site's."""

from __future__ import annotations

from allauth.mfa.base.views import authenticate
from django.contrib.auth.views import LogoutView
from django.urls import URLPattern, URLResolver, include, path
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from scionlab.accounts import rest
from scionlab.accounts.pages import account, mails

second_factor_step = require_http_methods(["GET", "HEAD", "POST"])(sensitive_post_parameters()(authenticate))

account_patterns: list[URLPattern | URLResolver] = [
    path("", account.profile, name="profile"),
    path("register/", account.register, name="register"),
    path("register/sent/", account.mail_sent, {"what": "register"}, name="register_sent"),
    path("confirm/", account.account_confirm, name="account_confirm"),
    path("confirm/<str:token>/", account.account_confirm_link, name="account_confirm_link"),
    path("reset/", account.password_reset, name="password_reset"),
    path("reset/sent/", account.mail_sent, {"what": "password_reset"}, name="password_reset_sent"),
    path("reset/<str:uidb36>/<str:key>/", account.password_reset_confirm, name="account_reset_password_from_key"),
    path("mails/<str:token>/", account.mail_unsubscribe, name="mail_unsubscribe"),
    path("second-factor/", include("scionlab.accounts.second_factor_urls")),
    path("email/", account.email_change_page, name="email_change"),
    path("tokens/", account.api_tokens, name="api_tokens"),
    path("tokens/<key:pk>/revoke/", account.api_token_revoke_page, name="api_token_revoke"),
    path("delete/", account.account_delete_page, name="account_delete"),
]
urlpatterns = [
    path("login/code/", second_factor_step, name="mfa_authenticate"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("account/", include(account_patterns)),
    path("mails/", mails.mails, name="mails"),
]
rest_patterns = [
    path("profile/", rest.ProfileView.as_view(), name="api_profile"),
    path("token/", rest.TokenView.as_view(), name="api_token"),
    path("tokens/", rest.TokenListView.as_view(), name="api_token_list"),
    path("tokens/<key:pk>/", rest.TokenDetailView.as_view(), name="api_token_detail"),
]
