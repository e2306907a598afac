"""What people do on the demo's web site: users make ASes and change limits, an administrator sets what holds for many.

Everything a person would do goes over HTTP as a person would do it (`lab.browser`). Only the attachment point itself is
put into the database directly, as its operators would have done long before.
"""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import requests

from lab.browser import Browser, Form, Page, PageError
from lab.demo.world import ADMIN, AP_AS, AP_DEFAULT_KBIT, AP_IPV4, AP_IPV6, AP_ISD, AP_LABEL, PASSWORD, UserAs
from lab.service import CoordinationService

T = TypeVar("T")
_SETUP = """
import json
from scionlab.accounts.models import User
from scionlab.delivery.enrolment import enrolment_token_create
from scionlab.testbed.infrastructure import attachment_point_create, infrastructure_as_create
as_ = infrastructure_as_create(isd={isd}, as_text={as_text!r}, label={label!r}, is_core=True,
                               public_ipv4={ipv4!r}, public_ipv6={ipv6!r})
ap = attachment_point_create(as_=as_, default_bandwidth_kbit={default_kbit})
User.objects.create_superuser({admin!r}, {password!r})
for email in {owners!r}:
    User.objects.create_user(email, {password!r})
token = enrolment_token_create(host_id=ap.host.pk, actor=User.objects.get(email={admin!r}))
print(json.dumps({{"ap": ap.pk, "token": token.text}}))
"""


@dataclass(frozen=True)
class NewHost:
    """What the AP's operator gets from an administrator: the host's one-time token for `ap_agent enrol`."""

    attachment_point_id: int
    token: str = field(repr=False)


class DemoSite:
    """`inside` calls a function in the network in which the site is reached."""

    def __init__(self, service: CoordinationService, inside: Callable[[Callable[[], Any]], Any]) -> None:
        self._service = service
        self._inside = inside
        self._browsers: dict[str, Browser] = {}
        self._tokens: dict[str, str] = {}

    def set_up(self, owners: list[str]) -> NewHost:
        """The AP with its default and a token for its host, and the accounts. Raises `ServiceError`."""
        script = _SETUP.format(
            isd=AP_ISD,
            as_text=AP_AS,
            label=AP_LABEL,
            ipv4=AP_IPV4,
            ipv6=AP_IPV6,
            default_kbit=AP_DEFAULT_KBIT,
            admin=ADMIN,
            password=PASSWORD,
            owners=owners,
        )
        made = self._service.shell(script)
        return NewHost(made["ap"], made["token"])

    # --- users ------------------------------------------------------------------------------------------------

    def create_user_as(self, user_as: UserAs, attachment_point_id: int) -> None:
        """Fill in the form "new AS" as its owner. Raises `PageError`."""

        def fill_in() -> None:
            browser = self._browser(user_as.owner)
            page = browser.open("/ases/new/")
            form = _form_with(page, "bandwidth_kbit")
            values: dict[str, str | None] = {
                _name(form, "label"): user_as.label,
                _name(form, "installation_type"): "dedicated",  # a virtual machine has another address of its own
                _name(form, "attachment_point"): str(attachment_point_id),
                _name(form, "public_ip"): "" if user_as.over_vpn else user_as.ip,
                _name(form, "public_port"): str(user_as.port),
                _name(form, "bandwidth_kbit"): str(user_as.kbit),
            }
            if user_as.over_vpn:
                values[_name(form, "public_ip").replace("public_ip", "use_vpn")] = "on"
            _require(browser.send(page, form, values, button=_button(form, "create")), leaves=page.url)

        self._inside(fill_in)

    def change_limit(self, user_as: UserAs, kbit: int) -> float:
        """Edit the AS in the form and save another number; returns when "Save" was pressed. Raises `PageError`."""
        link = self.link(user_as)

        def fill_in() -> float:
            browser = self._browser(user_as.owner)
            page = browser.open(f"/ases/{link['as_id']}/edit/")
            form = _form_with(page, "bandwidth_kbit")
            values: dict[str, str | None] = {_name(form, "bandwidth_kbit"): str(kbit)}
            saved_at = time.monotonic()
            _require(browser.send(page, form, values, button=_button(form, "save")), leaves=page.url)
            return saved_at

        return float(self._inside(fill_in))

    def words(self, user_as: UserAs) -> str:
        """What the AS's own page calls the state of the link for its owner: `enforced`, for example. Raises
        `PageError`."""
        link = self.link(user_as)
        page: Page = self._inside(lambda: self._browser(user_as.owner).open(f"/ases/{link['as_id']}/"))
        found = re.search(r'<span id="link-\d+-stage".*?</span>', page.html, flags=re.DOTALL)
        if found is None:
            raise PageError(f"the page of {user_as.label} does not show the state of its link")
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", found.group())).split())

    def watch(self, user_as: UserAs, seconds: int) -> str:
        """Press "Watch now" on the page of the AS's Link, as its owner; returns where the result is. Raises
        `PageError`."""
        link = self.link(user_as)

        def press() -> str:
            browser = self._browser(user_as.owner)
            page = browser.open(f"/ases/{link['as_id']}/links/{link['id']}/")
            form = page.form("watch-duration_s")
            after = browser.send(page, form, {"watch-duration_s": str(seconds)}, button="Watch now")
            _require(after, leaves=page.url)
            return after.url

        found = re.search(r"/tests/([0-9]+)/$", self._inside(press))
        if found is None:
            raise PageError(f"no watch of {user_as.label} was started")
        return f"/api/v1/tests/{found[1]}/"

    def tested(self, user_as: UserAs, where: str) -> dict[str, Any]:
        """The watch or test as the REST API shows it."""
        found: dict[str, Any] = self._get(where, user_as.owner)
        return found

    # --- administrators ------------------------------------------------------------------------------------------

    def set_ap_default(self, attachment_point_id: int, kbit: int) -> float:
        """The most that each link may get; returns when the preview was confirmed. Raises `PageError`."""
        preview = self._administrate(f"attachmentpoint/{attachment_point_id}", "default_bandwidth_kbit", str(kbit))

        def confirm() -> float:
            confirmed_at = time.monotonic()
            browser = self._browser(ADMIN)
            done = browser.send(preview, preview.form("reason"), {"reason": "a demonstration"})
            if "Done: " not in done.html:
                raise PageError(f"{preview.url} refused: {'; '.join(done.errors) or done.html[:2000]}")
            return confirmed_at

        return float(self._inside(confirm))

    def set_ap_total(self, attachment_point_id: int, kbit: int) -> None:
        """What all links together may carry in each direction. Raises `PageError`."""
        self._administrate(f"attachmentpoint/{attachment_point_id}", "total_kbit", str(kbit))

    def observe(self, user_as: UserAs) -> None:
        """Let the user AS's Link be measured only. Raises `PageError`."""
        self._administrate(f"link/{self.link(user_as)['id']}", "observe_only", "on")

    def _administrate(self, what: str, field_name: str, value: str) -> Page:
        """Change one field on a page of Django admin; returns the page that follows."""

        def fill_in() -> Page:
            browser = self._browser(ADMIN)
            page = browser.open(f"/admin/testbed/{what}/change/")
            answer = browser.send(page, page.form("reason"), {field_name: value}, button="Save")
            _require(answer, leaves=page.url)
            return answer

        after: Page = self._inside(fill_in)
        return after

    # --- the API --------------------------------------------------------------------------------------------------

    def link(self, user_as: UserAs) -> dict[str, Any]:
        """The user AS's Link as the REST API shows it to its owner. Raises `PageError`."""
        for link in self.links(user_as.owner):
            if link["as_label"] == user_as.label:
                return link
        raise PageError(f"the API has no link of {user_as.label}")

    def status(self, user_as: UserAs) -> dict[str, Any]:
        """What the site knows of that Link: requested, wanted and enforced bandwidth, stage and text."""
        status: dict[str, Any] = self.link(user_as)["status"]
        return status

    def links(self, email: str) -> list[dict[str, Any]]:
        """All Links of this person's ASes, as the REST API shows them."""
        found: list[dict[str, Any]] = self._get("/api/v1/links/", email)["results"]
        return found

    def download(self, user_as: UserAs) -> bytes:
        """What its owner downloads: a tarball with a README."""
        content: bytes = self._answer(
            f"/api/v1/ases/{self.link(user_as)['as_id']}/configuration/", user_as.owner
        ).content
        return content

    def _get(self, path: str, email: str) -> Any:
        return self._answer(path, email).json()

    def token(self, email: str) -> str:
        """An API token of this person."""

        def ask() -> str:
            body = {"email": email, "password": PASSWORD}
            answer = requests.post(f"{self._service.site_url}/api/v1/token/", json=body, timeout=20)
            answer.raise_for_status()
            return str(answer.json()["token"])

        if email not in self._tokens:
            self._tokens[email] = self._inside(ask)
        return self._tokens[email]

    def _answer(self, path: str, email: str) -> requests.Response:
        headers = {"Authorization": f"Token {self.token(email)}"}

        def ask() -> requests.Response:
            answer = requests.get(f"{self._service.site_url}{path}", headers=headers, timeout=20)
            answer.raise_for_status()
            return answer

        answer: requests.Response = self._inside(ask)
        return answer

    def _browser(self, email: str) -> Browser:
        if email not in self._browsers:
            browser = Browser(self._service.site_url)
            page = browser.open("/login/")
            after = browser.send(page, page.form("username", "password"), {"username": email, "password": PASSWORD})
            _require(after, leaves=page.url)
            self._browsers[email] = browser
        return self._browsers[email]


def _form_with(page: Page, field_name: str) -> Form:
    for form in page.forms:
        if any(name.endswith(field_name) for name in form.fields):
            return form
    raise PageError(f"{page.url} has no form with a field {field_name}")


def _name(form: Form, field_name: str) -> str:
    """The field's whole name; of the first attachment, where there are several."""
    names = {**form.fields, **dict.fromkeys(form.choices, "")}
    for name in names:
        if name == field_name or name.endswith(f"-{field_name}"):
            return name
    raise PageError(f"the form has no field {field_name}; it has {', '.join(names)}")


def _button(form: Form, word: str) -> str:
    for text in form.buttons:
        if word in text.lower():
            return text
    raise PageError(f'the form has no button "{word}"; it has {", ".join(form.buttons)}')


def _require(page: Page, *, leaves: str) -> None:
    if page.url == leaves:
        raise PageError(f"{leaves} refused: {'; '.join(page.errors) or page.html[:2000]}")
