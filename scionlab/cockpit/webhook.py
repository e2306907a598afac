"""The webhook: its URL, a test, and the latest deliveries."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods, require_POST

from bandwidth_config import RuleError
from scionlab.cockpit.access import staff_page
from scionlab.enforcement.webhook import given_up, webhook_retry, webhook_set, webhook_test
from scionlab.models import Webhook, WebhookDelivery
from scionlab.pages.forms import problems_of, text_input
from scionlab.pages.own_pages import PageRequest, form_on, taken_back
from scionlab.platform.outgoing import MAX_URL

SHOWN = 10


class WebhookForm(forms.Form):
    url = forms.CharField(
        label="URL",
        required=False,
        max_length=MAX_URL,
        help_text="Begins with https://. Empty: no webhook.",
        widget=text_input(inputmode="url"),
    )
    is_renewed = forms.BooleanField(
        label="Create a new secret", required=False, help_text="The previous secret is no longer used."
    )

    def __init__(self, data: Any = None, *, hook: Webhook | None) -> None:
        initial = {"url": "" if hook is None else hook.url}
        super().__init__(data, initial=initial, auto_id="webhook_%s", label_suffix="")


@require_http_methods(["GET", "HEAD", "POST"])
@staff_page
@sensitive_variables("secret")
def webhook(request: PageRequest) -> HttpResponse:
    """A new secret is shown in this response only: it is never in a redirect, session or history."""
    is_sent, secret = request.method == "POST", ""
    form = WebhookForm(request.POST if is_sent else taken_back(request), hook=Webhook.objects.filter(pk=1).first())
    if is_sent and form.is_valid():
        try:
            secret = webhook_set(actor=request.user, **form.cleaned_data)
        except RuleError as exc:
            form.add_error("url", forms.ValidationError(exc.message, code=exc.code))
        else:
            messages.success(request, "Saved." if form.cleaned_data["url"].strip() else "The webhook was removed.")
            if not secret:
                return redirect("cockpit_webhook")
            form = WebhookForm(hook=Webhook.objects.get(pk=1))
    context = {
        "tab": "webhook",
        "nav": "cockpit",
        "form": form,
        "secret": secret,
        "is_set": Webhook.objects.exists(),
        "deliveries": WebhookDelivery.objects.all()[:SHOWN],
        "given_up": given_up().count(),
        "problems": list(problems_of(form, "")) if is_sent else [],
    }
    return render(request, "cockpit/webhook.html", context)


@require_POST
@staff_page
@form_on("cockpit_webhook")
def test(request: PageRequest) -> HttpResponse:
    try:
        status = webhook_test()
    except RuleError as exc:
        messages.error(request, exc.message)
    else:
        messages.success(request, f"The receiver accepted the test: it answered {status}.")
    return redirect("cockpit_webhook")


@require_POST
@staff_page
@form_on("cockpit_webhook")
def retry(request: PageRequest) -> HttpResponse:
    count = webhook_retry()
    messages.success(request, f"{count} notice{'' if count == 1 else 's'} will be retried.")
    return redirect("cockpit_webhook")
