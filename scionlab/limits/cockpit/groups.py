"""Groups with a higher maximum: created and edited here, ended on the page of exceptions."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.contrib import messages
from django.db.models.functions import Lower
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from bandwidth_config import RuleError
from scionlab.accounts.models import User
from scionlab.limits.exceptions import MOST_MEMBERS, Group, exception_change_group, exception_grant
from scionlab.limits.models import MaximumException
from scionlab.limits.pages.exceptions import ExceptionForm
from scionlab.platform.clock import database_now
from scionlab.platform.notation.local_time import write_local_time, zone_of
from scionlab.testbed.models import AttachmentPoint
from scionlab.web.access import staff_page
from scionlab.web.pages.common import gone_is_404
from scionlab.web.pages.forms import RuleField, problems_of
from scionlab.web.pages.own_pages import PageRequest, taken_back

_NAMED = 5


def parse_members(text: str) -> list[User]:
    """Return the accounts of a list of addresses, separated by white space, commas or semicolons. Raises `RuleError`
    (`group_members`), which names addresses without an account."""
    addresses = list(dict.fromkeys(text.lower().replace(",", " ").replace(";", " ").split()))
    if not 0 < len(addresses) <= MOST_MEMBERS:
        raise RuleError("group_members", f"Enter 1 to {MOST_MEMBERS} email addresses; there are {len(addresses)}.")
    people = User.objects.filter(is_active=True).annotate(address=Lower("email")).filter(address__in=addresses)
    found = {person.email.lower(): person for person in people}
    lost = [one if len(one) <= 60 else f"{one[:57]}..." for one in addresses if one not in found]
    if lost:
        more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
        text = f"There is no active account of {', '.join(lost[:_NAMED])}{more}."
        raise RuleError("group_members", f"{text} Correct the address, or let them register first.")
    return [found[one] for one in addresses]


class GroupForm(ExceptionForm):
    name = forms.CharField(label="Group", max_length=60, error_messages={"required": "Name the group."})
    members = RuleField(
        parse_members,
        label="Members",
        help_text=f"Email addresses of accounts, one a line or divided by commas; up to {MOST_MEMBERS}.",
        widget=forms.Textarea(attrs={"rows": 6, "autocomplete": "off", "spellcheck": "false"}),
    )
    attachment_points = forms.ModelMultipleChoiceField(
        AttachmentPoint.objects.select_related("AS__isd").order_by("AS__isd__isd_id", "AS__as_id"),
        widget=forms.CheckboxSelectMultiple,
        label="Attachment points",
        error_messages={"required": "Choose at least one attachment point."},
    )
    shown_at = forms.DateTimeField(required=False, widget=forms.HiddenInput)

    def __init__(self, data: Any = None, *, zone: ZoneInfo, of: MaximumException | None = None) -> None:
        super().__init__(data, zone=zone)
        if of is not None:
            self.initial.update(
                {
                    "name": of.group,
                    "members": "\n".join(sorted(one.email for one in of.members.all())),
                    "attachment_points": [ap.pk for ap in of.attachment_points.all()],
                    "maximum_kbit": of.maximum_kbit,
                    "ends_at": write_local_time(of.ends_at, zone),
                    "reason": of.reason,
                    "shown_at": "" if of.decided_at is None else of.decided_at.isoformat(),
                }
            )
        self.order_fields(("name", "members", "attachment_points"))

    def values(self) -> dict[str, Any]:
        """Arguments for the service. The form must be valid."""
        data = dict(self.cleaned_data)
        name, members, places = (data.pop(one) for one in ("name", "members", "attachment_points"))
        return {"of": Group(" ".join(name.split()), members, list(places)), **data}


@require_http_methods(["GET", "HEAD", "POST"])
@staff_page
@gone_is_404
def group(request: PageRequest, pk: int | None = None) -> HttpResponse:
    """Create a group, or edit the one with this key until it ends."""
    rows = MaximumException.objects.exclude(group="").filter(ends_at__gt=database_now())
    of = None if pk is None else rows.prefetch_related("members", "attachment_points").get(pk=pk)
    is_sent = request.method == "POST"
    form = GroupForm(request.POST if is_sent else taken_back(request), zone=zone_of(request.user), of=of)
    if is_sent and form.is_valid():
        try:
            _save(form.values(), pk, request.user)
        except RuleError as exc:
            form.refuse(exc)
        else:
            messages.success(request, "Saved. Members can set limits up to the maximum within a minute.")
            return redirect("cockpit_exceptions")
    problems = list(problems_of(form, "")) if is_sent else []
    context = {"tab": "exceptions", "nav": "cockpit", "group": of, "form": form, "problems": problems}
    return render(request, "limits/group.html", context)


def _save(values: dict[str, Any], pk: int | None, actor: User) -> None:
    shown_at = values.pop("shown_at")
    if pk is None:
        exception_grant(actor=actor, **values)
    else:
        group = values.pop("of")
        exception_change_group(exception_id=pk, group=group, shown_at=shown_at, actor=actor, **values)
