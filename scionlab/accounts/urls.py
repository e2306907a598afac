"""URLs below /account/."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from scionlab.accounts.pages import account

urlpatterns: list[URLPattern | URLResolver] = [
    path("", account.profile, name="profile"),
    path("register/", account.register, name="register"),
    path("register/sent/", account.register_sent, name="register_sent"),
    path("confirm/", account.account_confirm, name="account_confirm"),
    path("confirm/<str:token>/", account.account_confirm_link, name="account_confirm_link"),
    path("reset/", account.password_reset, name="password_reset"),
    path("reset/sent/", account.password_reset_sent, name="password_reset_sent"),
    path("reset/<str:uidb64>/<str:token>/", account.password_reset_confirm, name="password_reset_confirm"),
    path("mails/<str:token>/", account.mail_unsubscribe, name="mail_unsubscribe"),
    path("second-factor/", include("scionlab.accounts.second_factor_urls")),
    path("email/", account.email_change_page, name="email_change"),
    path("tokens/", account.api_tokens, name="api_tokens"),
    path("tokens/<key:pk>/revoke/", account.api_token_revoke_page, name="api_token_revoke"),
    path("delete/", account.account_delete_page, name="account_delete"),
]
