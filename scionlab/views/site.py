"""What is nobody's in particular: the front page, logging in, one's password, and whether the service is well."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.views import LoginView, PasswordChangeView
from django.db import Error as DatabaseError
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from scionlab.forms import LoginForm
from scionlab.services.queue import redis_problems

login = LoginView.as_view(
    authentication_form=LoginForm, redirect_authenticated_user=True, http_method_names=["get", "head", "post"]
)


class PasswordView(PasswordChangeView):
    """One's own password. This session stays; the others and the API token end (`models.User.save`)."""

    template_name = "registration/password.html"
    success_url = reverse_lazy("user_as_list")
    extra_context = {"nav": "password"}

    def form_valid(self, form: Any) -> HttpResponse:
        messages.success(
            self.request, "Your password was changed. Where else you were logged in, you are not any more."
        )
        return super().form_valid(form)


password = require_http_methods(["GET", "HEAD", "POST"])(PasswordView.as_view())


@require_safe
def front(request: HttpRequest) -> HttpResponse:
    return redirect("user_as_list" if request.user.is_authenticated else "login")


@require_safe
@never_cache
def healthz(_request: HttpRequest) -> HttpResponse:
    """200 while the database answers, else 503; for load balancers, without a session.

    It says what is missing. Without Redis everything works, only later: that is no reason to send nobody here.
    """
    missing = redis_problems()
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as exc:
        lines, status = [f"database: {type(exc).__name__}", *missing], 503
        return HttpResponse(
            "\n".join(lines) + "\n", status=status, content_type="text/plain", headers={"Retry-After": "5"}
        )
    return HttpResponse("\n".join(["ok", *missing]) + "\n", content_type="text/plain")
