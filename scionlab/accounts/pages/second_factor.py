"""The pages of the second factor: allauth's views and forms, with our texts, login guard and outbox.

password ──▶ right ──▶ has a second factor? ──no──▶ logged in
                               └──yes──▶ code or security key ──▶ logged in
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.forms import ReauthenticateForm as PasswordForm
from allauth.core import context
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.base.forms import AuthenticateForm, ReauthenticateForm
from allauth.mfa.totp.forms import ActivateTOTPForm
from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.deprecation import MiddlewareMixin
from django.views.decorators.debug import sensitive_post_parameters
from qrcode.image.svg import SvgPathImage
from qrcode.main import QRCode
from redis.exceptions import RedisError

from bandwidth_config import RuleError
from scionlab.accounts.models import User
from scionlab.accounts.pages.account_forms import password_field
from scionlab.accounts.second_factor import change_notified, lacks_required_factor
from scionlab.platform import secrets_box
from scionlab.platform.api_errors import error_response
from scionlab.platform.login_guard import code_failed, code_refused, failures_forget
from scionlab.web.pages.own_pages import PageRequest, View, keep_typed, own_page, start_page

TYPED: Final = "typed_at_login"  # in the session, from the correct password until the login
REQUIRED: Final = "Administrators of this site must have a second factor. Set one up first."
USED_CODES_KEPT_S: Final = 120
_SAID: Final = {
    "mfa/messages/totp_activated.txt": "The authenticator app was set up.",
    "mfa/messages/totp_deactivated.txt": "The authenticator app was removed.",
    "mfa/messages/webauthn_added.txt": "The security key was added.",
    "mfa/messages/webauthn_removed.txt": "The security key was removed.",
    "mfa/messages/recovery_codes_generated.txt": "New recovery codes were created.",
}


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]  # allauth ships no type information
    error_messages = DefaultAccountAdapter.error_messages | {"incorrect_password": "The password is wrong."}

    def is_open_for_signup(self, _request: HttpRequest) -> bool:
        return settings.REGISTRATION_OPEN

    def is_ajax(self, _request: HttpRequest) -> bool:
        """No second form of the pages in JSON."""
        return False

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Only axes counts failures."""

    def add_message(
        self, request: HttpRequest, level: int, message_template: str | None = None, *_args: Any, **_kwargs: Any
    ) -> None:
        if message_template in _SAID:
            messages.add_message(request, level, _SAID[message_template])

    def get_login_redirect_url(self, request: HttpRequest) -> str:
        assert isinstance(request.user, User)  # noqa: S101  allauth asks after the log-in
        return reverse(start_page(request.user))

    def post_login(self, request: HttpRequest, user: User, **login: Any) -> HttpResponse:
        """With the input from before the session expired, for its page."""
        typed, page = request.session.pop(TYPED, ""), login["redirect_url"]
        if typed and page:
            keep_typed(request, page, typed)
        response: HttpResponse = super().post_login(request, user, **login)
        return response


class SecondFactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    """Secrets are encrypted in the database like the private keys of the testbed."""

    error_messages = DefaultMFAAdapter.error_messages | {"incorrect_code": "The code is wrong, or it was used before."}

    def encrypt(self, text: str) -> str:
        secrets_box.check_secret()
        return secrets_box.sealed(text.encode())

    def decrypt(self, encrypted_text: str) -> str:
        return secrets_box.opened(encrypted_text, "The second factor").decode()

    def build_totp_svg(self, url: str) -> str:
        """Inline SVG: our Content-Security-Policy allows no image from a `data:` URL."""
        code = QRCode(image_factory=SvgPathImage)
        code.add_data(url)
        return str(code.make_image().to_string(encoding="unicode"))

    def generate_authenticator_name(self, *_args: Any) -> str:
        return "Security key"


# --- forms ------------------------------------------------------------------------------------------------------


def _code_field(label: str) -> forms.CharField:
    attrs = {"autocomplete": "one-time-code", "inputmode": "numeric", "autofocus": True}
    return forms.CharField(
        label=label, widget=forms.TextInput(attrs=attrs), error_messages={"required": "Enter a code."}
    )


class _Counted(forms.Form):
    """A form that counts wrong codes, and rejects all codes after too many."""

    user: User
    authenticator: Any

    def clean_code(self) -> str:
        if code_refused(context.request, self.user.email):
            raise forms.ValidationError("Too many wrong codes.")  # the response is `login_guard.locked_out`
        try:
            code: str = super().clean_code()  # type: ignore[misc]  # the form beside
            # allauth remembers it for one step, and also accepts those beside it (MFA_TOTP_TOLERANCE).
            key = f"code:{self.user.pk}:{''.join(filter(str.isdigit, code))}"  # it also accepts 123-456
            if self.authenticator.type == "totp" and not cache.add(key, 1, USED_CODES_KEPT_S):
                raise forms.ValidationError(SecondFactorAdapter.error_messages["incorrect_code"])
        except RuleError as exc:
            raise forms.ValidationError(exc.message, code=exc.code) from exc
        except RedisError as exc:  # it remembers which codes of the app were used
            text = "Codes of the app cannot be checked right now. Use a recovery code, or try again in a minute."
            raise forms.ValidationError(text, code="unavailable") from exc
        failures_forget(self.user.email, codes_only=True)
        return code

    def _emit_authentication_failed(self, _authenticator: Any) -> None:
        code_failed(context.request, self.user.email)


class CodeForm(_Counted, AuthenticateForm):  # type: ignore[misc]
    code = _code_field("Code of the app, or a recovery code")


class OwnCodeForm(_Counted, ReauthenticateForm):  # type: ignore[misc]
    code = _code_field("Code of the app, or a recovery code")


class AppForm(ActivateTOTPForm):  # type: ignore[misc]
    code = _code_field("Code that the app shows")


class OwnPasswordForm(PasswordForm):  # type: ignore[misc]
    password = password_field(autofocus=True)


# --- pages ------------------------------------------------------------------------------------------------------


def factor_page(view: Callable[..., Any]) -> View:
    """Wrap a view of allauth as an account page, in the transaction of the mail about its change."""

    @wraps(view)
    def shown(request: PageRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            with change_notified(request.user):
                answer: Any = view(request, *args, **kwargs)
                if hasattr(answer, "render"):
                    answer.context_data |= {"nav": "account", "tab": "second_factor"}
                    answer.render()
        except RuleError as exc:
            messages.error(request, exc.message)
            return redirect("profile")
        return answer  # type: ignore[no-any-return]

    return own_page(sensitive_post_parameters()(shown))


class RequiredMiddleware(MiddlewareMixin):
    """With REQUIRE_SECOND_FACTOR_OF_STAFF an administrator without a second factor only gets the pages that set one
    up."""

    def process_view(self, request: Any, _view: object, _args: object, _kwargs: object) -> HttpResponse | None:
        if not settings.REQUIRE_SECOND_FACTOR_OF_STAFF:
            return None  # without reading the session
        name = request.resolver_match.view_name or ""
        is_free = name.startswith("mfa_") or name in {"account_reauthenticate", "logout"}
        if is_free or not request.user.is_authenticated or not lacks_required_factor(request.user):
            return None
        if request.path.startswith("/api/"):
            return error_response("second_factor_required", REQUIRED, 403)
        messages.warning(request, REQUIRED)
        return redirect("mfa_index")
