"""The account pages: parse, call a service, render.

A link from a mail is opened at its own URL, which stores it in the session and redirects to one without it: so it is
not in the browser's history, a Referer or later log lines. GET changes nothing, because mail programs open links
automatically; a button does.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import authenticate, login, logout
from django.contrib.auth.views import PasswordResetConfirmView
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from bandwidth_config import RuleError
from scionlab.accounts.account import (
    ManyRegistrationsError,
    TooManyRequestsError,
    account_create,
    account_delete,
    account_request_create,
    check_registration,
    email_change,
    mail_opt_out,
    profile_update,
)
from scionlab.accounts.api_token import MAX_TOKENS, api_token_create, api_token_revoke
from scionlab.accounts.mail_links import read_unsubscribe, request_of
from scionlab.accounts.models import AccountRequest, ApiToken, User
from scionlab.accounts.pages.account_forms import (
    EmailForm,
    NewAccountForm,
    NewEmailForm,
    PasswordForm,
    ProfileForm,
    TokenForm,
)
from scionlab.platform.client_address import client_network
from scionlab.platform.login_guard import failures_forget
from scionlab.web.pages.own_pages import PageRequest, form_on, own_page, start_page, taken_back

Purpose = AccountRequest.Purpose

_LINK = "account_link"  # in the session
enter = require_http_methods(["GET", "HEAD", "POST"])


def _show(request: HttpRequest, page: str, tab: str = "", status: int = 200, **context: Any) -> HttpResponse:
    return render(request, f"accounts/{page}.html", {"nav": "account", "tab": tab, **context}, status=status)


# --- without an account, or without its password ----------------------------------------------------------------


@enter
@never_cache
def register(request: HttpRequest) -> HttpResponse:
    """Register an address. Logged-in users are redirected."""
    if request.user.is_authenticated:
        return redirect(start_page(request.user))
    return _request_mail(request, Purpose.REGISTER, "register")


@enter
@never_cache
def password_reset(request: HttpRequest) -> HttpResponse:
    return _request_mail(request, Purpose.PASSWORD, "password_reset")


def _request_mail(request: HttpRequest, purpose: Purpose, name: str) -> HttpResponse:
    """The response does not depend on the address."""
    form, closed, status = EmailForm(request.POST or None), "", 200
    if purpose == Purpose.REGISTER:
        closed = _registration_closed()
    if request.method == "POST" and form.is_valid():
        try:
            network = client_network(request)
            account_request_create(purpose=purpose, email=form.cleaned_data["email"], network=network)
            return redirect(f"{name}_sent")
        except (TooManyRequestsError, ManyRegistrationsError) as exc:
            form.refuse(exc)
            status = 429
        except RuleError as exc:
            form.refuse(exc)
    answer = _show(request, name, form=form, closed=closed, status=status)
    if status == 429:
        answer["Retry-After"] = "3600"
    return answer


def _registration_closed() -> str:
    """Why registration is closed; "" if it is open."""
    try:
        check_registration("")
    except RuleError as exc:
        return exc.message if exc.code == "registration_closed" else ""
    return ""


@require_safe
def register_sent(request: HttpRequest) -> HttpResponse:
    return _show(request, "sent", what="register")


@require_safe
def password_reset_sent(request: HttpRequest) -> HttpResponse:
    return _show(request, "sent", what="password_reset")


class NewPasswordView(PasswordResetConfirmView):
    """Django's view for the link of the mail. A new password also resets failed logins."""

    template_name = "registration/new_password.html"
    success_url = reverse_lazy("login")

    def form_valid(self, form: Any) -> HttpResponse:
        answer = super().form_valid(form)
        if self.user is not None:
            failures_forget(self.user.email)  # the mail proves that it is the owner
        logout(self.request)
        messages.success(self.request, "Your password was changed. Log in with it.")
        return answer

    def render_to_response(self, context: dict[str, Any], **kwargs: Any) -> HttpResponse:
        return super().render_to_response(context, status=200 if self.validlink else 410, **kwargs)


password_reset_confirm = enter(NewPasswordView.as_view())


# --- links of mails -----------------------------------------------------------------------------------------------


@require_safe
@never_cache
@sensitive_variables("token")
def account_confirm_link(request: HttpRequest, token: str) -> HttpResponse:
    if request_of(token) is not None:  # an invalid link starts no session
        request.session[_LINK] = token
    else:
        request.session.pop(_LINK, None)
    answer = redirect("account_confirm")
    answer["Referrer-Policy"] = "no-referrer"
    return answer


@enter
@never_cache
@sensitive_post_parameters()
@sensitive_variables("token")
def account_confirm(request: HttpRequest) -> HttpResponse:
    token = str(request.session.get(_LINK, ""))
    asked = request_of(token)
    if asked is None:
        return _show(request, "link_invalid", status=410)
    if asked.purpose == Purpose.EMAIL:
        return _confirm_email(request, token, asked)
    form = NewAccountForm(request.POST or None, email=asked.email)
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        try:
            user = account_create(
                token=token,
                full_name=data["full_name"],
                password=data["password1"],
                time_zone=data["time_zone"] or "UTC",
            )
        except RuleError as exc:
            form.refuse(exc)
        else:
            login(request, user, backend=settings.AUTHENTICATION_BACKENDS[-1])  # a new account has no second factor
            return _confirmed(request, "Your account was created, and you are logged in.")
    return _show(request, "new_account", form=form, email=asked.email)


def _confirm_email(request: HttpRequest, token: str, asked: AccountRequest) -> HttpResponse:
    problem = ""
    if request.method == "POST":
        try:
            email_change(token=token)
        except RuleError as exc:
            problem = exc.message
        else:
            return _confirmed(request, f"The email address of your account was changed to {asked.email}.")
    return _show(request, "confirm_email", asked=asked, problem=problem)


def _confirmed(request: HttpRequest, sentence: str) -> HttpResponseRedirect:
    request.session.pop(_LINK, None)
    messages.success(request, sentence)
    return redirect("front")


@csrf_exempt  # mail programs send it without a session (RFC 8058); the link is the proof
@enter
@never_cache
@sensitive_variables("token")
def mail_unsubscribe(request: HttpRequest, token: str) -> HttpResponse:
    """GET asks, POST unsubscribes. Idempotent; can be undone on the profile."""
    found = read_unsubscribe(token)
    if found is None:
        answer = _show(request, "link_invalid", status=410)
    else:
        user_id, kind = found
        if request.method == "POST":
            mail_opt_out(user_id=user_id, kind=kind)
        answer = _show(request, "unsubscribe", kind=kind, done=request.method == "POST")
    answer["Referrer-Policy"] = "no-referrer"  # the link stays valid
    return answer


# --- one's own account ----------------------------------------------------------------------------------------


@enter
@own_page
def profile(request: PageRequest) -> HttpResponse:
    form = ProfileForm(request.POST or taken_back(request), user=request.user)
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        profile_update(
            user_id=request.user.pk,
            full_name=data["full_name"],
            time_zone=data["time_zone"],
            mail_opt_outs=form.opt_outs,
        )
        messages.success(request, "Saved.")
        return redirect("profile")
    return _show(request, "profile", "profile", form=form)


@enter
@own_page
@sensitive_post_parameters()
def email_change_page(request: PageRequest) -> HttpResponse:
    typed = taken_back(request) or QueryDict()
    form = NewEmailForm(request.POST or None, initial={"email": typed.get("email", "")})
    if request.method == "POST" and form.is_valid() and _is_own_password(request, form):
        try:
            email, network = form.cleaned_data["email"], client_network(request)
            account_request_create(purpose=Purpose.EMAIL, email=email, network=network, user=request.user)
        except RuleError as exc:
            form.refuse(exc)
        else:
            messages.success(
                request, f"We emailed a confirmation link to {email}. Your email address changes when you open it."
            )
            return redirect("profile")
    return _show(request, "email", "profile", form=form)


@sensitive_variables("password")
def _is_own_password(request: PageRequest, form: PasswordForm) -> bool:
    """Wrong passwords count as failed logins (`scionlab.platform.login_guard`)."""
    password = form.cleaned_data["password"]
    if authenticate(request, username=request.user.email, password=password) is not None:
        return True
    form.add_error("password", "The password is wrong.")
    return False


@enter
@own_page
def api_tokens(request: PageRequest) -> HttpResponse:
    """A new token is shown in this response only: it is never in a redirect, session or history."""
    form, issued = TokenForm(request.POST or taken_back(request)), None
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        try:
            issued = api_token_create(
                user_id=request.user.pk,
                name=data["name"],
                may_write=data["may"] == "write",
                expires_at=form.expires_at,
            )
            form = TokenForm()
        except RuleError as exc:
            form.refuse(exc)
    tokens = ApiToken.objects.filter(user=request.user).select_related("made_by")
    more: dict[str, Any] = {"issued": issued, "tokens": tokens, "most": MAX_TOKENS, "site": settings.SITE_URL}
    return _show(request, "tokens", "tokens", form=form, **more)


@require_POST
@own_page
@form_on("api_tokens")
def api_token_revoke_page(request: PageRequest, pk: int) -> HttpResponse:
    try:
        name = api_token_revoke(user_id=request.user.pk, token_id=pk)
    except ApiToken.DoesNotExist as exc:
        raise Http404 from exc
    messages.success(request, f"The token “{name}” was revoked.")
    return redirect("api_tokens")


@enter
@own_page
@sensitive_post_parameters()
def account_delete_page(request: PageRequest) -> HttpResponse:
    form = PasswordForm(request.POST or None)
    if request.method == "POST" and form.is_valid() and _is_own_password(request, form):
        try:
            account_delete(user_id=request.user.pk)
        except User.DoesNotExist:  # deleted meanwhile by an administrator
            logout(request)
            return redirect("login")
        except RuleError as exc:
            form.refuse(exc)
        else:
            logout(request)
            messages.success(request, "Your account was closed.")
            return redirect("login")
    ases = request.user.user_ases.select_related("isd").order_by("as_id")
    return _show(request, "delete", "profile", form=form, ases=ases)
