"""Forms of the users' pages.

They parse text and place errors. `editor` handles the rows of the whole page; `bandwidth_config` and `links` have the
rules, whose messages are shown unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm
from django.core.exceptions import NON_FIELD_ERRORS
from django.utils import timezone

from bandwidth_config import RuleError
from scionlab.platform.field_errors import FieldRuleError
from scionlab.platform.notation.local_time import control_value
from scionlab.web.pages.conflict import Conflict
from scionlab.web.pages.stale_pages import Value, Values, shown_from_text, shown_to_text


class LoginForm(AuthenticationForm):
    """Email address and password."""

    error_messages = {
        "invalid_login": "The email address or the password is wrong. The password is case-sensitive.",
        "inactive": "This account is disabled. Ask the administrators.",
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"].label = "Email address"
        self.fields["username"].widget = forms.EmailInput(attrs={"autocomplete": "username", "autofocus": True})
        self.fields["username"].error_messages["required"] = "Enter your email address."
        self.fields["password"].error_messages["required"] = "Enter your password."


class RulesForm(forms.Form):
    """A form that can show an error of the service."""

    rule_field: str | None = None  # for errors that name no field

    def refuse(self, error: RuleError) -> None:
        field = error.field if isinstance(error, FieldRuleError) else ""
        name = field if field in self.fields else self.rule_field
        self.add_error(name, forms.ValidationError(error.message, code=error.code))

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Show an error that a service raises within it."""
        try:
            yield
        except RuleError as exc:
            self.refuse(exc)


class ComparedForm(RulesForm):
    """A form that sends along what its page showed (`web.pages.stale_pages`)."""

    shown = forms.CharField(required=False, widget=forms.HiddenInput)
    conflict: Conflict | None = None

    def shown_values(self) -> dict[str, Value] | None:
        """Values that the page showed; None if not submitted."""
        return shown_from_text(self.data.get(self.add_prefix("shown")))

    def meet(self, conflict: Conflict, stored: Values) -> None:
        """Show values saved meanwhile; the input stays, and Save now means "overwrite"."""
        self.conflict = conflict
        sent: Any = self.data  # a QueryDict
        typed = sent.copy()
        typed[self.add_prefix("shown")] = shown_to_text(stored)
        self.data = typed


# --- fields -------------------------------------------------------------------------------------------------


class RuleField(forms.CharField):
    """Text parsed by `parse`, whose errors are shown. `optional`: empty is None."""

    def __init__(self, parse: Callable[[str], Any], *, optional: bool = False, **kwargs: Any) -> None:
        super().__init__(required=False, **kwargs)
        self.parse, self.optional = parse, optional

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value) or ""
        if self.optional and not text:
            return None
        try:
            return self.parse(text)
        except RuleError as exc:
            raise forms.ValidationError(exc.message, code=exc.code) from exc

    def run_validators(self, value: Any) -> None:
        """`parse` has already validated; CharField's validators would check a number's length."""


def text_input(**attrs: str) -> forms.TextInput:
    """Without autocompletion and correction."""
    return forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", **attrs})


class TimeInput(forms.TextInput):
    """A browser's datetime control in the reader's zone. Values that it cannot hold stay text: an offset, and an
    ambiguous time when clocks are set back."""

    input_type = "datetime-local"

    def get_context(self, name: str, value: Any, attrs: dict[str, Any] | None) -> dict[str, Any]:
        context = super().get_context(name, value, {"autocomplete": "off", **(attrs or {})})
        widget, text = context["widget"], str(value or "").strip()
        said = control_value(text, timezone.get_current_timezone()) if text else ""
        if said is None:
            widget["type"] = "text"
        elif said:
            widget["value"] = said
        return context


# --- errors for the summary on top ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """An error in the summary: target, name, message."""

    target: str
    name: str
    message: str


def problems_of(form: forms.Form, prefix: str) -> Iterable[Problem]:
    if not form.is_bound:
        return
    for name in (NON_FIELD_ERRORS, *form.fields):
        messages = [str(message) for message in form.errors.get(name) or ()]
        if name == NON_FIELD_ERRORS:
            target, label = f"{form.prefix or 'as'}-errors", prefix.removesuffix(": ")
        else:
            target, label = form[name].id_for_label or form[name].auto_id, f"{prefix}{form[name].label}"
        for message in messages:
            yield Problem(str(target), str(label), message)
