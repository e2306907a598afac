"""URLs below /account/second-factor/, with the names that allauth uses."""

from __future__ import annotations

from allauth.account.views import reauthenticate as by_password
from allauth.mfa.base.views import index
from allauth.mfa.base.views import reauthenticate as by_code
from allauth.mfa.recovery_codes.views import generate_recovery_codes, view_recovery_codes
from allauth.mfa.totp.views import activate_totp, deactivate_totp
from allauth.mfa.webauthn.views import add_webauthn, reauthenticate_webauthn, remove_webauthn
from django.urls import URLPattern, URLResolver, path
from django.views.decorators.http import require_http_methods, require_safe

from scionlab.accounts.pages.second_factor import factor_page

enter = require_http_methods(["GET", "HEAD", "POST"])
overview = require_safe(factor_page(index))

urlpatterns: list[URLPattern | URLResolver] = [
    path("", overview, name="mfa_index"),
    path("", overview, name="mfa_list_webauthn"),
    path("password/", enter(factor_page(by_password)), name="account_reauthenticate"),
    path("code/", enter(factor_page(by_code)), name="mfa_reauthenticate"),
    path("key/", enter(factor_page(reauthenticate_webauthn)), name="mfa_reauthenticate_webauthn"),
    path("app/", enter(factor_page(activate_totp)), name="mfa_activate_totp"),
    path("app/remove/", enter(factor_page(deactivate_totp)), name="mfa_deactivate_totp"),
    path("recovery-codes/", require_safe(factor_page(view_recovery_codes)), name="mfa_view_recovery_codes"),
    path("recovery-codes/new/", enter(factor_page(generate_recovery_codes)), name="mfa_generate_recovery_codes"),
    path("keys/add/", enter(factor_page(add_webauthn)), name="mfa_add_webauthn"),
    path("keys/<key:pk>/remove/", enter(factor_page(remove_webauthn)), name="mfa_remove_webauthn"),
]
