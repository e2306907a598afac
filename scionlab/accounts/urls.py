"""Addresses below /account/."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from scionlab.accounts import views

urlpatterns: list[URLPattern | URLResolver] = [
    path("", views.profile, name="profile"),
    path("register/", views.register, name="register"),
    path("register/sent/", views.register_sent, name="register_sent"),
    path("confirm/", views.account_confirm, name="account_confirm"),
    path("confirm/<str:token>/", views.account_confirm_link, name="account_confirm_link"),
    path("reset/", views.password_reset, name="password_reset"),
    path("reset/sent/", views.password_reset_sent, name="password_reset_sent"),
    path("reset/<str:uidb64>/<str:token>/", views.password_reset_confirm, name="password_reset_confirm"),
    path("mails/<str:token>/", views.mail_unsubscribe, name="mail_unsubscribe"),
    path("email/", views.email_change_page, name="email_change"),
    path("tokens/", views.api_tokens, name="api_tokens"),
    path("tokens/<key:pk>/revoke/", views.api_token_revoke_page, name="api_token_revoke"),
    path("delete/", views.account_delete_page, name="account_delete"),
]
