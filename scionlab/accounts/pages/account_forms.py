"""Forms of the account pages. The services check the rules of the site."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.forms import SetPasswordForm, SetPasswordMixin
from django.core.validators import RegexValidator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.debug import sensitive_variables

from scionlab.accounts.account import account_create, link_mail_ask
from scionlab.accounts.models import Mail, MailKind, User
from scionlab.accounts.models.user import time_zone_names, validate_time_zone
from scionlab.platform.client_address import client_network
from scionlab.platform.clock import database_now
from scionlab.web.pages.forms import RulesForm

if TYPE_CHECKING:  # generic for the type checker only
    _SetPasswordForm = SetPasswordForm[User]
    _SetPasswordMixin = SetPasswordMixin[User]
else:
    _SetPasswordForm = SetPasswordForm
    _SetPasswordMixin = SetPasswordMixin

LIFETIMES = [("30", "30 days"), ("90", "90 days"), ("365", "a year"), ("", "until it is revoked")]


class _EmailField(forms.EmailField):
    """In lower case, which may be longer, and without the control characters that Django allows in quotes: they break
    the header of a mail."""

    default_validators = [*forms.EmailField.default_validators, RegexValidator(r"[\x00-\x1f\x7f]", inverse_match=True)]

    def to_python(self, value: Any) -> str:
        return str(super().to_python(value)).lower()


def _email(label: str = "Email address") -> forms.EmailField:
    return _EmailField(
        label=label,
        max_length=254,
        widget=forms.EmailInput(attrs={"autocomplete": "email"}),
        error_messages={
            "required": "Enter your email address.",
            "invalid": "This is not an email address. Enter one like name@example.org.",
        },
    )


class EmailForm(RulesForm):
    """Requests a mail with a link; not allauth's forms, which look at accounts. `try_save` registers, `save` resets a
    password; both raise `RuleError`."""

    email = _email()

    def try_save(self, request: HttpRequest) -> tuple[None, HttpResponse]:
        self._ask(request, Mail.Purpose.REGISTER)
        return None, redirect("register_sent")

    def save(self, request: HttpRequest) -> None:
        self._ask(request, Mail.Purpose.PASSWORD)

    def _ask(self, request: HttpRequest, purpose: Mail.Purpose) -> None:
        link_mail_ask(purpose=purpose, email=self.cleaned_data["email"], network=client_network(request))


class NewPasswordForm(_SetPasswordForm):
    """Django's, as allauth calls it."""

    def __init__(self, *args: Any, user: User, temp_key: str, **kwargs: Any) -> None:  # noqa: ARG002
        super().__init__(user, *args, **kwargs)


def _time_zone(*, required: bool = True) -> forms.CharField:
    return forms.CharField(
        label="Time zone",
        required=required,
        help_text="Used for times on pages and in emails.",
        validators=[validate_time_zone],
        widget=forms.Select,
    )


def _time_zones() -> list[Any]:
    groups = groupby((name for name in time_zone_names() if "/" in name), key=lambda name: name.partition("/")[0])
    return [("UTC", "UTC"), *((region, list(names)) for region, names in groups)]


class NewAccountForm(_SetPasswordMixin, RulesForm):
    """The form behind the link of the mail: the address is confirmed."""

    full_name = forms.CharField(
        required=False,
        max_length=150,
        label="Name",
        help_text="Optional. Visible to administrators.",
        widget=forms.TextInput(attrs={"autocomplete": "name"}),
    )
    time_zone = _time_zone(required=False)
    password1, password2 = SetPasswordMixin.create_password_fields(label1="Password", label2="Repeat password")

    by_passkey = False  # read by allauth

    def __init__(self, *args: Any, email: str, token: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.user, self.token = User(email=email), token
        self.zones = _time_zones()

    @property
    def offers_browser_zone(self) -> bool:
        """Only as long as no zone was chosen."""
        return not self.is_bound

    def clean(self) -> dict[str, Any]:
        self.validate_passwords()
        self.user.full_name = self.cleaned_data.get("full_name", "")
        self.validate_password_for_user(self.user)
        return super().clean() or self.cleaned_data

    @sensitive_variables()
    def try_save(self, request: HttpRequest) -> tuple[User, None]:
        """Raises `RuleError`."""
        data = self.cleaned_data
        zone = data["time_zone"] or "UTC"
        user = account_create(token=self.token, full_name=data["full_name"], password=data["password1"], time_zone=zone)
        user.backend = settings.AUTHENTICATION_BACKENDS[-1]  # as after a log-in
        messages.success(request, "Your account was created, and you are logged in.")
        return user, None


def password_field(**attrs: object) -> forms.CharField:
    """The password again, before actions that a hijacked session must not do."""
    return forms.CharField(
        label="Current password",
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password", **attrs}),
        error_messages={"required": "Enter your password."},
    )


class PasswordForm(RulesForm):
    password = password_field()


class NewEmailForm(PasswordForm):
    email = _email("New email address")
    field_order = ["email", "password"]


class ProfileForm(RulesForm):
    full_name = forms.CharField(
        required=False, max_length=150, label="Name", widget=forms.TextInput(attrs={"autocomplete": "name"})
    )
    time_zone = _time_zone()
    mails = forms.MultipleChoiceField(
        label="Email me when",
        required=False,
        choices=MailKind.choices,
        widget=forms.CheckboxSelectMultiple,
        help_text="Emails about your account, such as a new password, are always sent.",
    )

    def __init__(self, data: Mapping[str, Any] | None, *, user: User) -> None:
        wanted = [kind for kind in MailKind.values if kind not in user.mail_opt_outs]
        initial = {"full_name": user.full_name, "time_zone": user.time_zone, "mails": wanted}
        super().__init__(data, initial=initial)
        self.user = user

    @property
    def zones(self) -> list[Any]:
        """Grouped by region; includes an older name set by a program."""
        own = self.user.time_zone
        return [*([] if own in time_zone_names() else [(own, own)]), *_time_zones()]

    @property
    def opt_outs(self) -> list[str]:
        return [kind for kind in MailKind.values if kind not in self.cleaned_data["mails"]]


class TokenForm(RulesForm):
    name = forms.CharField(
        label="Name",
        max_length=100,
        help_text="Name of the program or machine that will use the token, for example “laptop”.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
        error_messages={"required": "Enter a name, such as the program or machine that will use the token."},
    )
    may = forms.ChoiceField(
        label="Access",
        choices=[("read", "read-only"), ("write", "read and write")],
        initial="read",
        widget=forms.RadioSelect,
        error_messages={"required": "Choose the access of the token."},
    )
    days = forms.ChoiceField(label="Valid for", choices=LIFETIMES, initial="90", required=False)

    @property
    def expires_at(self) -> datetime | None:
        """End of its last day (UTC)."""
        days = self.cleaned_data["days"]
        if not days:
            return None
        return datetime.combine(database_now().date() + timedelta(days=int(days)), time(23, 59, 59), UTC)
