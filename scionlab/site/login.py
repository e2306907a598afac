"""Login, and change of password."""

from __future__ import annotations

from typing import Any, cast

from allauth.account.utils import perform_login
from django.contrib import messages
from django.contrib.auth.views import LoginView, PasswordChangeView, redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import reverse, reverse_lazy
from django.views.decorators.http import require_http_methods

from scionlab.accounts.models import User
from scionlab.accounts.pages.second_factor import TYPED
from scionlab.web.pages.forms import LoginForm
from scionlab.web.pages.own_pages import View, own_page, start_page


class SiteLoginView(LoginView):
    """Django's form, followed by allauth's steps. Carries input from before the session expired."""

    authentication_form = LoginForm
    redirect_authenticated_user = True
    http_method_names = ["get", "head", "post"]

    def get_default_redirect_url(self) -> str:
        return reverse(start_page(cast("User", self.request.user)))  # checked for logged-in users already

    def form_valid(self, form: Any) -> HttpResponse:
        typed, page = self.request.POST.get("typed", ""), self.get_redirect_url()
        if typed and page:
            self.request.session[TYPED] = typed
        answer: HttpResponse = perform_login(self.request, form.get_user(), redirect_url=page)
        return answer

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(typed=self.request.POST.get("typed", ""), **kwargs)


login = SiteLoginView.as_view()


class PasswordView(PasswordChangeView):
    """Change the password. This session stays; others and the API tokens end (`models.User.save`)."""

    template_name = "registration/password.html"
    success_url = reverse_lazy("user_as_list")
    extra_context = {"nav": "password"}

    def form_valid(self, form: Any) -> HttpResponse:
        messages.success(self.request, "Your password was changed. Your other sessions were ended.")
        return super().form_valid(form)


password = require_http_methods(["GET", "HEAD", "POST"])(own_page(cast("View", PasswordView.as_view())))


def admin_login(request: HttpRequest) -> HttpResponse:
    """Replaces Django admin's login, which asks for no second factor."""
    if request.user.is_authenticated and not request.user.is_staff:
        raise PermissionDenied("Django admin is for administrators.")
    return redirect_to_login(request.GET.get("next") or reverse("admin:index"))
