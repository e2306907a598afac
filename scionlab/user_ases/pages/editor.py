"""The page that creates or edits a user AS with its one to five attachments.

Submit buttons add and remove rows, so the page works without JavaScript and keeps the input. The fields of a row are in
`forms`, the rules in `user_ases.user_as`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from django import forms

from bandwidth_config import RuleError
from contract.link_rules import MAX_PORT
from scionlab.accounts.models import User
from scionlab.testbed.models import Link, UserAS
from scionlab.user_ases.attachment_rules import check_attachments
from scionlab.user_ases.attachments import DEFAULT_PORT, MAX_ATTACHMENTS, spec_of
from scionlab.user_ases.pages.attachment_point_field import Choice
from scionlab.user_ases.pages.forms import AttachmentForm, UserASForm
from scionlab.user_ases.user_as import values_of_user_as
from scionlab.web.pages.conflict import Conflict
from scionlab.web.pages.forms import Problem, problems_of
from scionlab.web.pages.stale_pages import Value, Values, shown_from_text, shown_to_text

_PREFIX = "attachments"
_ROW_KEY = re.compile(rf"{_PREFIX}-([0-9]{{1,2}})-([a-z_]+)")
_MOST_ROWS = 20  # more than MAX_ATTACHMENTS, so that a sixth is rejected by its rule instead of dropped silently


class UserASEditor:
    """A user AS and its one to five attachments on one page. Submit buttons add and remove rows, without JavaScript:
    such a submission is rendered again as typed, and nothing is validated before Save."""

    def __init__(
        self,
        form: UserASForm,
        rows: list[AttachmentForm],
        *,
        choices: Sequence[Choice],
        user_as: UserAS | None,
        shown: str | None = None,
        conflict: Conflict | None = None,
    ) -> None:
        """`shown`: values stored when the page was first rendered; passed along until the save."""
        self.form = form
        self.rows = rows
        self.choices = choices
        self.user_as = user_as
        self.shown = shown
        self.conflict = conflict
        if user_as is not None:
            links = Link.objects.filter(interface_b__AS=user_as.pk, exception_kbit__isnull=False)
            columns = ("interface_a__AS__attachment_point", "exception_kbit")
            exceptions = {str(pk): (str(ap_id), kbit) for pk, ap_id, kbit in links.values_list("pk", *columns)}
            for row in rows:
                ap_id, kbit = exceptions.get(str(row["link_id"].value()), (None, None))
                row.exception_kbit = kbit if ap_id == str(row["attachment_point"].value()) else None

    @classmethod
    def blank(cls, choices: Sequence[Choice]) -> UserASEditor:
        return cls(UserASForm(), _unbound([_new_row(choices, [])], choices), choices=choices, user_as=None)

    @classmethod
    def stored(cls, user_as: UserAS, links: Iterable[Link], choices: Sequence[Choice]) -> UserASEditor:
        found = list(links)
        values = values_of_user_as(user_as, found)
        rows = _unbound([_stored_row(link, user_as.installation_type) for link in found], choices)
        return cls(UserASForm(initial=values), rows, choices=choices, user_as=user_as, shown=shown_to_text(values))

    @classmethod
    def submitted(
        cls, data: Mapping[str, Any], choices: Sequence[Choice], *, user_as: UserAS | None = None
    ) -> UserASEditor:
        rows = [AttachmentForm(data, prefix=f"{_PREFIX}-{number}", choices=choices) for number in _typed_rows(data)]
        return cls(UserASForm(data), rows, choices=choices, user_as=user_as, shown=data.get("shown"))

    @classmethod
    def rearranged(
        cls, data: Mapping[str, Any], choices: Sequence[Choice], *, user_as: UserAS | None = None
    ) -> UserASEditor:
        """The submitted input with one row more (button `add`) or less (button `remove`)."""
        rows = list(_typed_rows(data).items())
        kept = [row for number, row in rows if data.get("remove") != str(number)]
        if "add" in data and len(kept) < MAX_ATTACHMENTS:
            kept.append(_new_row(choices, kept))
        form, rows_kept = _unbound_form(data), _unbound(kept, choices)
        return cls(form, rows_kept, choices=choices, user_as=user_as, shown=data.get("shown"))

    @classmethod
    def in_conflict(
        cls, data: Mapping[str, Any], choices: Sequence[Choice], *, user_as: UserAS, conflict: Conflict, stored: Values
    ) -> UserASEditor:
        """The submitted input beside values saved meanwhile. Saving again overwrites them. An attachment that was
        removed meanwhile becomes a new one."""
        there = {name.partition(".")[0] for name in stored}
        typed = _typed_rows(data).values()
        rows = [row if str(row.get("link_id")) in there else {**row, "link_id": ""} for row in typed]
        form, shown = _unbound_form(data), shown_to_text(stored)
        return cls(form, _unbound(rows, choices), choices=choices, user_as=user_as, shown=shown, conflict=conflict)

    @property
    def can_add(self) -> bool:
        return len(self.rows) < MAX_ATTACHMENTS

    def is_valid(self, *, reader: User) -> bool:
        """Parse all fields and check the rules on what could be parsed, so that all errors show at once."""
        valid = [form.is_valid() for form in (self.form, *self.rows)]
        good = [row for row in self.rows if row.is_valid()]
        if good or not self.rows:
            kind = self.form.cleaned_data.get("installation_type", "")
            specs = [row.spec() for row in good]
            for error in check_attachments(specs, user_as=self.user_as, installation_type=kind, reader=reader):
                self._place(error, good)
                valid.append(False)
        return all(valid)

    def values(self) -> dict[str, Any]:
        """Arguments of `user_as_create` and `user_as_update`; the editor must be valid."""
        return {**self.form.cleaned_data, "attachments": [row.spec() for row in self.rows]}

    def shown_values(self) -> dict[str, Value] | None:
        """Values stored when the page was rendered; None if not submitted."""
        return shown_from_text(self.shown)

    def refuse(self, error: RuleError) -> None:
        """Show an error of the service."""
        self._place(error, self.rows)

    def _place(self, error: RuleError, rows: Sequence[AttachmentForm]) -> None:
        form: forms.Form = self.form
        index = getattr(error, "index", None)
        if index is not None and 0 <= index < len(rows):
            form = rows[index]
        name = getattr(error, "field", "").removesuffix("_id")
        where = name if name in form.fields else None
        form.add_error(where, forms.ValidationError(error.message, code=error.code))

    @property
    def problems(self) -> list[Problem]:
        found = list(problems_of(self.form, ""))
        for number, row in enumerate(self.rows, start=1):
            found += problems_of(row, f"Attachment {number}: ")
        return found


def _unbound_form(data: Mapping[str, Any]) -> UserASForm:
    """With the submitted input, as typed."""
    return UserASForm(initial={name: data.get(name, "") for name in UserASForm.base_fields})


def _unbound(rows: Iterable[Mapping[str, Any]], choices: Sequence[Choice]) -> list[AttachmentForm]:
    return [
        AttachmentForm(initial=dict(row), prefix=f"{_PREFIX}-{number}", choices=choices)
        for number, row in enumerate(rows)
    ]


def _typed_rows(data: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """Submitted rows by number, as typed; a submitted checkbox is True."""
    rows: dict[int, dict[str, Any]] = {}
    for key in data:
        match = _ROW_KEY.fullmatch(key)
        if match is not None:
            rows.setdefault(int(match[1]), {})[match[2]] = data[key]
    for row in rows.values():
        for name in ("use_vpn", "active"):
            row[name] = name in row
    return dict(sorted(rows.items())[:_MOST_ROWS])


def _new_row(choices: Sequence[Choice], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Initial row: an unused attachment point of the same ISD, its maximum, a free port."""
    used = [str(row.get("attachment_point")) for row in rows]
    isds = {choice.isd for choice in choices if str(choice.id) in used[:1]}
    possible = [choice for choice in choices if choice.is_possible and (not isds or choice.isd in isds)]
    fresh = [choice for choice in possible if str(choice.id) not in used] or possible
    ports = {str(row.get("public_port")) for row in rows}
    port = next(number for number in range(DEFAULT_PORT, MAX_PORT) if str(number) not in ports)
    row: dict[str, Any] = {"public_port": str(port), "active": True}
    if fresh:
        row |= {"attachment_point": str(fresh[0].id), "bandwidth_kbit": str(fresh[0].maximum_kbit)}
    return row


def _stored_row(link: Link, installation_type: str) -> dict[str, Any]:
    """As a user would type it; over the VPN the address is allocated."""
    spec = asdict(spec_of(link, installation_type))
    row = {name: "" if value is None else str(value) for name, value in spec.items()}
    row |= {"attachment_point": row.pop("attachment_point_id"), "use_vpn": spec["use_vpn"], "active": spec["active"]}
    return row | ({"public_ip": ""} if spec["use_vpn"] else {})
