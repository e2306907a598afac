"""The account pages: parse, call a service, render.

A link from a mail is opened at its own URL, which stores it in the session and redirects to one without it: so it is
not in the browser's history, a Referer or later log lines. GET changes nothing, because mail programs open links
automatically; a button does.
"""

from __future__ import annotations

from typing import Any

from allauth.account.views import PasswordResetFromKeyView, PasswordResetView, SignupView
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import authenticate, logout
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from django.views.generic import FormView

from bandwidth_config import RuleError
from scionlab.accounts.account import (
    Purpose,
    TooManyRequestsError,
    account_delete,
    email_change,
    link_mail_ask,
    mail_opt_out,
    profile_update,
)
from scionlab.accounts.api_token import MAX_TOKENS, api_token_create, api_token_revoke
from scionlab.accounts.mail_links import mail_of_link, read_unsubscribe
from scionlab.accounts.models import ApiToken, Mail, User
from scionlab.accounts.pages.account_forms import (
    EmailForm,
    NewAccountForm,
    NewEmailForm,
    NewPasswordForm,
    PasswordForm,
    ProfileForm,
    TokenForm,
)
from scionlab.platform.client_address import client_network
from scionlab.platform.login_guard import failures_forget
from scionlab.web.pages.own_pages import PageRequest, form_on, own_page, taken_back

_LINK = "account_link"  # in the session
enter = require_http_methods(["GET", "HEAD", "POST"])


def _show(request: HttpRequest, page: str, tab: str = "", status: int = 200, **context: Any) -> HttpResponse:
    return render(request, f"accounts/{page}.html", {"nav": "account", "tab": tab, **context}, status=status)


# --- without an account, or without its password: allauth's views ----------------------------------------------


class _RulesView(FormView):  # type: ignore[type-arg]  # generic in the stubs only
    """What a service refuses while the form is saved is an error of the form."""

    def form_valid(self, form: Any) -> HttpResponse:
        try:
            return super().form_valid(form)
        except RuleError as exc:
            form.refuse(exc)
            answer = self.form_invalid(form)
            if isinstance(exc, TooManyRequestsError):
                answer.status_code, answer["Retry-After"] = 429, "3600"
            return answer


class RegisterView(_RulesView, SignupView):  # type: ignore[misc]  # allauth ships no type information
    """Register an address. Logged-in users are redirected."""

    form_class = EmailForm
    template_name = template_name_signup_closed = "accounts/register.html"


class ResetView(_RulesView, PasswordResetView):  # type: ignore[misc]
    form_class = EmailForm
    template_name = "accounts/password_reset.html"
    success_url = reverse_lazy("password_reset_sent")


class NewPasswordView(PasswordResetFromKeyView):  # type: ignore[misc]
    """The link of the mail. A new password also resets failed logins."""

    form_class = NewPasswordForm
    template_name = "registration/new_password.html"
    success_url = reverse_lazy("login")

    def form_valid(self, form: NewPasswordForm) -> HttpResponse:
        answer: HttpResponse = super().form_valid(form)
        failures_forget(self.reset_user.email)  # the mail proves that it is the owner
        logout(self.request)
        messages.success(self.request, "Your password was changed. Log in with it.")
        return answer

    def render_to_response(self, context: dict[str, Any], **kwargs: Any) -> HttpResponse:
        status = 410 if context.get("token_fail") else 200
        answer: HttpResponse = super().render_to_response(context, status=status, **kwargs)
        return answer


class NewAccountView(_RulesView, SignupView):  # type: ignore[misc]
    """The link of the mail, for `email`, whose `token` is in the session."""

    form_class = NewAccountForm
    template_name = "accounts/new_account.html"
    success_url = reverse_lazy("front")

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Without allauth's redirect of people who are logged in: the link may be for another account."""
        return FormView.dispatch(self, request, *args, **kwargs)

    def get_form_kwargs(self) -> dict[str, Any]:
        return {**super().get_form_kwargs(), **self.kwargs}


register = enter(never_cache(RegisterView.as_view()))
password_reset = enter(never_cache(ResetView.as_view()))
password_reset_confirm = enter(never_cache(sensitive_post_parameters()(NewPasswordView.as_view())))
new_account = NewAccountView.as_view()


@require_safe
def mail_sent(request: HttpRequest, what: str) -> HttpResponse:
    return _show(request, "sent", what=what)


# --- links of mails -----------------------------------------------------------------------------------------------


@require_safe
@never_cache
@sensitive_variables("token")
def account_confirm_link(request: HttpRequest, token: str) -> HttpResponse:
    if mail_of_link(token) is not None:  # an invalid link starts no session
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
def account_confirm(request: HttpRequest) -> HttpResponseBase:
    token = str(request.session.get(_LINK, ""))
    asked = mail_of_link(token)
    if asked is None:
        return _show(request, "link_invalid", status=410)
    if asked.purpose == Purpose.EMAIL:
        return _confirm_email(request, token, asked)
    return new_account(request, email=asked.recipient, token=token)


def _confirm_email(request: HttpRequest, token: str, asked: Mail) -> HttpResponse:
    problem = ""
    if request.method == "POST":
        try:
            email_change(token=token)
        except RuleError as exc:
            problem = exc.message
        else:
            messages.success(request, f"The email address of your account was changed to {asked.recipient}.")
            return redirect("front")
    return _show(request, "confirm_email", asked=asked, problem=problem)


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
        with form.refusing():
            email, network = form.cleaned_data["email"], client_network(request)
            link_mail_ask(purpose=Purpose.EMAIL, email=email, network=network, user=request.user)
            messages.success(
                request,
                f"We emailed a confirmation link to {email}. Your email address changes when you confirm it there.",
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
        with form.refusing():
            issued = api_token_create(
                user_id=request.user.pk,
                name=data["name"],
                may_write=data["may"] == "write",
                expires_at=form.expires_at,
            )
            form = TokenForm()
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
