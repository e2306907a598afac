"""What people type into the pages, turned into what the services take.

Here: parsing (text to numbers and addresses), the rows of attachments, and where an error stands. Not here: the rules
themselves, which live in `bandwidth_config` and `services.user_as`; their sentence is shown as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm
from django.core.exceptions import NON_FIELD_ERRORS
from django.utils.html import format_html

from bandwidth_config import (
    HEARTBEAT_MINIMUM_KBIT,
    MAX_PORT,
    MIN_PORT,
    RuleError,
    bandwidth_warning,
    check_port,
    format_kbit,
    parse_bandwidth,
    parse_ip,
)
from scionlab.models import AttachmentPoint, BandwidthPolicy, Link, UserAS
from scionlab.services.user_as import DEFAULT_PORT, MAX_ATTACHMENTS, AttachmentSpec, check_attachments

_PORT_HINT = f"Write a whole number from {MIN_PORT} to {MAX_PORT}, for example {DEFAULT_PORT}."


class LoginForm(AuthenticationForm):
    """E-mail address and password."""

    error_messages = {
        "invalid_login": "No account has this e-mail address and password. Check both; the password is case-sensitive.",
        "inactive": "This account is switched off. Ask the administrators.",
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"].label = "E-mail address"
        self.fields["username"].widget = forms.EmailInput(attrs={"autocomplete": "username", "autofocus": True})
        self.fields["username"].error_messages["required"] = "Write your e-mail address."
        self.fields["password"].error_messages["required"] = "Write your password."


# --- fields -------------------------------------------------------------------------------------------------


class RuleField(forms.CharField):
    """One line of text that `parse` reads; what `parse` says about it is what the page shows."""

    def __init__(self, parse: Callable[[str], Any], **kwargs: Any) -> None:
        super().__init__(required=False, **kwargs)
        self.parse = parse

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        try:
            return self.parse(text or "")
        except RuleError as exc:
            raise forms.ValidationError(exc.message, code=exc.code) from exc

    def run_validators(self, value: Any) -> None:
        """`parse` has judged the text already; CharField's validators would look at a number's length."""


def parse_port(text: str) -> int:
    """Raises `RuleError` (`port_required`, `port_invalid`, `port_range`)."""
    if text == "":
        raise RuleError("port_required", f"A port is missing. {_PORT_HINT}")
    if not re.fullmatch(r"-?[0-9]{1,20}", text, flags=re.ASCII):
        shown = text if len(text) <= 40 else text[:37] + "..."
        raise RuleError("port_invalid", f'"{shown}" is not a port number. {_PORT_HINT}')
    check_port(int(text))
    return int(text)


def _optional(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: None if text == "" else parse(text)


def _ip(text: str) -> str:
    return str(parse_ip(text))


@dataclass(frozen=True)
class Choice:
    """An attachment point as the form offers it."""

    id: int
    isd_as: str
    label: str
    maximum_kbit: int
    ip_versions: str
    has_vpn: bool
    is_possible: bool  # shown, but not to be chosen: in another ISD, or this AS itself

    @classmethod
    def of(cls, ap: AttachmentPoint, policy: BandwidthPolicy, *, user_as: UserAS | None = None) -> Choice:
        versions = [name for name, ip in (("IPv4", ap.host.public_ipv4), ("IPv6", ap.host.public_ipv6)) if ip]
        return cls(
            id=ap.pk,
            isd_as=ap.AS.isd_as,
            label=ap.AS.label,
            maximum_kbit=ap.default_in_force(policy),
            ip_versions=" or ".join(versions),
            has_vpn=hasattr(ap.host, "vpn"),
            is_possible=user_as is None or (ap.AS.isd_id == user_as.isd_id and ap.AS_id != user_as.pk),
        )

    @property
    def isd(self) -> str:
        return self.isd_as.partition("-")[0]

    @property
    def name(self) -> str:
        return self.isd_as + (f" ({self.label})" if self.label else "")

    def __str__(self) -> str:
        ways = " or ".join(way for way in (self.ip_versions, "VPN" if self.has_vpn else "") if way)
        return f"{self.name}: at most {format_kbit(self.maximum_kbit)}, {ways or 'not reachable'}"


class AttachmentPointSelect(forms.Select):
    """Each option carries its maximum, so that the page's own script can update the hint beside the bandwidth."""

    by_value: Mapping[str, Choice] = {}

    def create_option(self, name: str, value: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        option: dict[str, Any] = super().create_option(name, value, *args, **kwargs)
        choice = self.by_value.get(str(value))
        if choice is not None:
            option["attrs"]["data-maximum"] = str(choice.maximum_kbit)
            option["attrs"]["data-name"] = choice.name
            option["attrs"]["disabled"] = not choice.is_possible
        return option


class AttachmentPointField(forms.TypedChoiceField):
    """One of the attachment points, grouped by ISD: all attachments of an AS are in one."""

    def __init__(self, choices: Sequence[Choice]) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for choice in choices:
            groups.setdefault(f"ISD {choice.isd}", []).append((str(choice.id), str(choice)))
        widget = AttachmentPointSelect()
        widget.by_value = {str(choice.id): choice for choice in choices}
        super().__init__(
            label="Attachment point",
            coerce=int,
            choices=list(groups.items()),
            widget=widget,
            help_text="This infrastructure AS will be the provider of your AS.",
            error_messages={
                "required": "The attachment point is missing. Choose one from the list.",
                "invalid_choice": "There is no attachment point %(value)s. Choose one from the list.",
            },
        )


# --- forms --------------------------------------------------------------------------------------------------


class UserASForm(forms.Form):
    """What belongs to the AS as a whole. `services.user_as` judges it."""

    label = forms.CharField(
        required=False,
        help_text="Optional short name for your AS, for example “Office”.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    installation_type = forms.CharField(
        required=False,
        label="Installation type",
        initial=UserAS.Installation.VM,
        widget=forms.RadioSelect(choices=UserAS.Installation.choices),
    )


def _text(**attrs: str) -> forms.TextInput:
    return forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", **attrs})


class AttachmentForm(forms.Form):
    """One attachment: a provider Link to an attachment point. The fields are those of the thesis' figure 5.1, in the
    order of the page."""

    link_id = forms.IntegerField(required=False, widget=forms.HiddenInput)
    active = forms.BooleanField(
        label="Active", required=False, initial=True, help_text="An inactive link is kept, but is in no configuration."
    )
    attachment_point = forms.Field()  # an AttachmentPointField, made with the choices of the moment
    bandwidth_kbit = RuleField(
        parse_bandwidth,
        label="Upper limit for the bandwidth usable for this AS [kbit/s]",
        widget=_text(inputmode="numeric"),
    )
    use_vpn = forms.BooleanField(
        label="Use VPN",
        required=False,
        help_text="Connect to the attachment point over its OpenVPN. Your address is then the one it gives you.",
    )
    public_ip = RuleField(
        _optional(_ip),
        label="Public IP address",
        help_text="The attachment point sends the packets of this link here. Leave empty with the VPN.",
        widget=_text(placeholder="192.0.2.7"),
    )
    public_port = RuleField(
        parse_port,
        label="Public port (UDP)",
        initial=str(DEFAULT_PORT),
        help_text=f"From {MIN_PORT} to {MAX_PORT}. One port for each link on the same address.",
        widget=_text(inputmode="numeric"),
    )
    bind_ip = RuleField(
        _optional(_ip),
        label="Bind IP address",
        help_text="Your border router's own address, if it differs.",
        widget=_text(),
    )
    bind_port = RuleField(
        _optional(parse_port),
        label="Bind port (UDP)",
        help_text="Your border router's own port, if it differs.",
        widget=_text(inputmode="numeric"),
    )

    def __init__(self, *args: Any, choices: Sequence[Choice], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.by_value = {str(choice.id): choice for choice in choices}
        self.fields["attachment_point"] = AttachmentPointField(choices)
        self.fields["bandwidth_kbit"].help_text = format_html(
            "<span data-limit>{}</span> Per direction. 0 blocks the link; below {} SCION's heartbeats may not fit.",
            self._limit_hint(),
            format_kbit(HEARTBEAT_MINIMUM_KBIT),
        )

    def _limit_hint(self) -> str:
        """Names the attachment point, so that it stays true when another one is chosen without JavaScript."""
        if self.chosen is None:
            return "Each attachment point's maximum stands in its entry of the list."
        return f"Initial value and maximum at {self.chosen.name}: {format_kbit(self.chosen.maximum_kbit)}."

    @property
    def chosen(self) -> Choice | None:
        return self.by_value.get(str(self["attachment_point"].value()))

    @property
    def is_stored(self) -> bool:
        """An attachment that exists already."""
        return bool(self["link_id"].value())

    @property
    def has_bind(self) -> bool:
        """The two rarely used fields stand open when they say something, or have an error."""
        return any(self[name].value() or self[name].errors for name in ("bind_ip", "bind_port"))

    @property
    def warning(self) -> str | None:
        """About a bandwidth that is allowed but surprising."""
        if self["bandwidth_kbit"].errors:
            return None
        try:
            kbit = parse_bandwidth(self["bandwidth_kbit"].value())
        except RuleError:
            return None
        if self.is_stored and self.chosen is not None and kbit > self.chosen.maximum_kbit:
            return (
                f"Above the maximum there, so {format_kbit(self.chosen.maximum_kbit)} are enforced. The choice is kept "
                "and counts again when the maximum rises."
            )
        return bandwidth_warning(kbit)

    def spec(self) -> AttachmentSpec:
        """Call it on a valid form only."""
        data = self.cleaned_data
        return AttachmentSpec(
            attachment_point_id=data["attachment_point"],
            use_vpn=data["use_vpn"],
            public_ip=data["public_ip"],
            public_port=data["public_port"],
            bandwidth_kbit=data["bandwidth_kbit"],
            bind_ip=data["bind_ip"],
            bind_port=data["bind_port"],
            link_id=data["link_id"],
            active=data["active"] or data["link_id"] is None,
        )


class BandwidthForm(forms.Form):
    """The bandwidth of one Link alone."""

    bandwidth_kbit = RuleField(
        parse_bandwidth, label="Bandwidth of this link [kbit/s]", widget=_text(inputmode="numeric")
    )

    def __init__(self, data: Mapping[str, Any] | None = None, *, link: Link, policy: BandwidthPolicy) -> None:
        super().__init__(data, prefix=f"link-{link.pk}", initial={"bandwidth_kbit": str(link.bandwidth_kbit)})
        self.link = link
        ap = link.attachment_point
        if ap is not None:
            maximum = format_kbit(ap.default_in_force(policy))
            self.fields["bandwidth_kbit"].help_text = f"From 0, which blocks the link, to {maximum}."

    def refuse(self, error: RuleError) -> None:
        """Shows a rule that a service found broken."""
        self.add_error("bandwidth_kbit", forms.ValidationError(error.message, code=error.code))


# --- the whole page -----------------------------------------------------------------------------------------

_PREFIX = "attachments"
_ROW_KEY = re.compile(rf"{_PREFIX}-([0-9]{{1,2}})-([a-z_]+)")
_MOST_ROWS = 20  # more than MAX_ATTACHMENTS, so that a sixth one is refused with its rule and not dropped in silence


@dataclass(frozen=True)
class Problem:
    """An error for the summary on top: what to jump to, its name, the sentence."""

    target: str
    name: str
    message: str


class UserASEditor:
    """A user AS and its one to five attachments, as one page edits them.

    Rows come and go by submit buttons, without JavaScript: such a submission is shown again as it was typed, with a
    row more or less, and nothing is judged before Save.
    """

    def __init__(
        self, form: UserASForm, rows: list[AttachmentForm], *, choices: Sequence[Choice], user_as: UserAS | None
    ) -> None:
        self.form = form
        self.rows = rows
        self.choices = choices
        self.user_as = user_as

    @classmethod
    def blank(cls, choices: Sequence[Choice]) -> UserASEditor:
        return cls._unbound({}, [_new_row(choices, [])], choices=choices, user_as=None)

    @classmethod
    def stored(cls, user_as: UserAS, links: Iterable[Link], choices: Sequence[Choice]) -> UserASEditor:
        general = {"label": user_as.label, "installation_type": user_as.installation_type}
        return cls._unbound(general, [_stored_row(link) for link in links], choices=choices, user_as=user_as)

    @classmethod
    def submitted(
        cls, data: Mapping[str, Any], choices: Sequence[Choice], *, user_as: UserAS | None = None
    ) -> UserASEditor:
        rows = [AttachmentForm(data, prefix=f"{_PREFIX}-{number}", choices=choices) for number in _typed_rows(data)]
        return cls(UserASForm(data), rows, choices=choices, user_as=user_as)

    @classmethod
    def rearranged(
        cls, data: Mapping[str, Any], choices: Sequence[Choice], *, user_as: UserAS | None = None
    ) -> UserASEditor:
        """What was typed, with one row more (button `add`) or without one (button `remove`)."""
        rows = list(_typed_rows(data).items())
        kept = [row for number, row in rows if data.get("remove") != str(number)]
        if "add" in data and len(kept) < MAX_ATTACHMENTS:
            kept.append(_new_row(choices, kept))
        general = {name: data.get(name, "") for name in UserASForm.base_fields}
        return cls._unbound(general, kept, choices=choices, user_as=user_as)

    @classmethod
    def _unbound(
        cls,
        general: Mapping[str, Any],
        rows: Sequence[Mapping[str, Any]],
        *,
        choices: Sequence[Choice],
        user_as: UserAS | None,
    ) -> UserASEditor:
        forms_ = [
            AttachmentForm(initial=dict(row), prefix=f"{_PREFIX}-{number}", choices=choices)
            for number, row in enumerate(rows)
        ]
        return cls(UserASForm(initial=dict(general)), forms_, choices=choices, user_as=user_as)

    @property
    def can_add(self) -> bool:
        return len(self.rows) < MAX_ATTACHMENTS

    def is_valid(self) -> bool:
        """Parses everything and asks the rules about what could be parsed, so that all errors show at once."""
        valid = [form.is_valid() for form in (self.form, *self.rows)]
        good = [row for row in self.rows if row.is_valid()]
        if good or not self.rows:
            for error in check_attachments([row.spec() for row in good], user_as=self.user_as):
                self._place(error, good)
                valid.append(False)
        return all(valid)

    def values(self) -> dict[str, Any]:
        """The arguments of `user_as_create` and `user_as_update`; call it when valid."""
        return {**self.form.cleaned_data, "attachments": [row.spec() for row in self.rows]}

    def refuse(self, error: RuleError) -> None:
        """Shows a rule that a service found broken while it held the locks."""
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


def _typed_rows(data: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """The rows of a submission by number, as typed; a checkbox is True where it was sent at all."""
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
    """A row to start from: an attachment point of the same ISD that is not used yet, its maximum, a free port."""
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


def _stored_row(link: Link) -> dict[str, Any]:
    end, ap = link.interface_b, link.attachment_point
    return {
        "link_id": link.pk,
        "attachment_point": "" if ap is None else str(ap.pk),
        "use_vpn": end.vpn_client_id is not None,
        "public_ip": "" if end.vpn_client_id is not None else end.public_ip,
        "public_port": str(end.public_port),
        "bandwidth_kbit": str(link.bandwidth_kbit),
        "bind_ip": end.bind_ip or "",
        "bind_port": str(end.bind_port or ""),
        "active": link.active,
    }
