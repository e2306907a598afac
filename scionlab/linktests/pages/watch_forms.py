"""Watches on a Link's pages: the form, and the latest ones."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django import forms

from bandwidth_config import RuleError
from contract.link_tests import MAX_WATCH_S
from scionlab.linktests.models import LinkTest
from scionlab.linktests.test_status import TestStatus, status_of_test, with_results
from scionlab.platform.notation.local_time import parse_local_time, write_local_time
from scionlab.testbed.models import Link
from scionlab.web.pages.forms import RuleField, TimeInput, text_input

WHOLE = f"Enter a whole number of seconds, at most {MAX_WATCH_S}."


class WatchForm(forms.Form):
    """Duration and start. The service checks what is allowed."""

    duration_s = forms.IntegerField(
        label="Duration [s]",
        initial=60,
        widget=text_input(inputmode="numeric"),
        help_text="5 to 600 seconds.",
        error_messages={"required": WHOLE, "invalid": WHOLE},
    )
    begins_at = RuleField(str, label="Start", widget=TimeInput())

    def __init__(self, data: Mapping[str, Any] | None = None, *, zone: ZoneInfo, now: datetime) -> None:
        super().__init__(data, prefix="watch")
        self.zone = zone
        here = f"Time zone {zone.key}; it is {write_local_time(now.replace(second=0), zone)} now."
        self.fields["begins_at"].help_text = f"Leave empty to start now. {here}"

    def clean_begins_at(self) -> datetime | None:
        text = self.cleaned_data["begins_at"]
        try:
            return parse_local_time(text, self.zone) if text else None
        except RuleError as exc:
            raise forms.ValidationError(exc.message, code=exc.code) from exc

    def refuse(self, error: RuleError) -> None:
        field = getattr(error, "field", None)
        self.add_error(field if field in self.fields else None, forms.ValidationError(error.message, code=error.code))


def newest_of(link: Link, *, now: datetime, count: int) -> list[TestStatus]:
    """Its watches and tests, newest first; two statements."""
    rows = with_results(LinkTest.objects.filter(link=link)).order_by("-begins_at", "-pk")
    return [status_of_test(one, now=now) for one in rows[:count]]
