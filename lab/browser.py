"""A person at the web site, without a browser: loads a page, fills in its form, sends it, as HTML says.

Hidden fields (the CSRF token among them), preselected options and default values go along as a browser would send
them; so what the demo does is what a user does, with real HTTP and real cookies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urljoin

import requests

TIMEOUT_S = 20


class PageError(RuntimeError):
    """The site did not do what the page offers; the message says which address and what it answered."""


@dataclass
class Form:
    """A form of a page: `fields` are the values that would be sent, `choices` each select's options by their text."""

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)
    choices: dict[str, dict[str, str]] = field(default_factory=dict)
    buttons: dict[str, tuple[str, str]] = field(default_factory=dict)  # text -> name, value


class _FormReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self.errors: list[str] = []
        self._form: Form | None = None
        self._select: str | None = None
        self._option: str | None = None
        self._textarea: str | None = None
        self._button: tuple[str, str] | None = None
        self._error_depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if {"error", "errorlist", "errornote"} & set(given.get("class", "").split()) or self._error_depth:
            self._error_depth += tag not in {"input", "br", "img", "hr"}
        if tag == "form":
            self._form = Form(given.get("action", ""), given.get("method", "get").lower())
            self.forms.append(self._form)
        elif self._form is None:
            return
        elif tag == "input":
            self._input(self._form, given)
        elif tag == "select":
            self._select = given.get("name")
            if self._select is not None:
                self._form.choices[self._select] = {}
        elif tag == "option" and self._select is not None:
            self._option = given.get("value")
            if "selected" in given or self._select not in self._form.fields:
                self._form.fields[self._select] = self._option or ""
        elif tag == "textarea":
            self._textarea = given.get("name")
        elif tag == "button":
            self._button = (given.get("name", ""), given.get("value", ""))

    @staticmethod
    def _input(form: Form, given: Mapping[str, str]) -> None:
        kind, name = given.get("type", "text"), given.get("name")
        if kind in {"submit", "button", "image", "reset"}:
            form.buttons[given.get("value", "")] = (name or "", given.get("value", ""))
        elif name is None or "disabled" in given:
            return
        elif kind in {"checkbox", "radio"}:
            if "checked" in given:
                form.fields[name] = given.get("value", "on")
        else:
            form.fields[name] = given.get("value", "")

    def handle_data(self, data: str) -> None:
        text = " ".join(data.split())
        if self._error_depth and text:
            self.errors.append(text)
        if self._form is None:
            return
        if self._option is not None and self._select is not None and text:
            self._form.choices[self._select][text] = self._option
        elif self._textarea is not None:
            self._form.fields[self._textarea] = data.strip()
        elif self._button is not None and text:
            self._form.buttons[text] = self._button

    def handle_endtag(self, tag: str) -> None:
        self._error_depth = max(0, self._error_depth - 1) if self._error_depth else 0
        if tag == "form":
            self._form = None
        elif tag == "select":
            self._select = None
        elif tag == "option":
            self._option = None
        elif tag == "textarea":
            self._textarea = None
        elif tag == "button":
            self._button = None


@dataclass(frozen=True)
class Page:
    """What the site answered: where we are, the text, its forms, and the error texts that it shows."""

    url: str
    html: str
    forms: list[Form]
    errors: list[str]

    def form(self, *with_fields: str) -> Form:
        """The form that has all these fields. Raises `PageError`."""
        for form in self.forms:
            if all(name in form.fields or name in form.choices for name in with_fields):
                return form
        raise PageError(f"{self.url} has no form with the fields {', '.join(with_fields)}")


class Browser:
    """One person's session."""

    def __init__(self, site_url: str) -> None:
        self._session = requests.Session()
        self._session.trust_env = False  # a proxy of the machine has no business in the lab
        self._site_url = site_url

    def open(self, path: str) -> Page:
        """Raises `PageError` for anything but a page."""
        return self._page(self._session.get(urljoin(self._site_url, path), timeout=TIMEOUT_S))

    def send(self, page: Page, form: Form, values: Mapping[str, str | None], *, button: str | None = None) -> Page:
        """Fill in and send a form; None leaves a field out, like a box that is not ticked. Raises `PageError`."""
        data = form.fields | {name: value for name, value in values.items() if value is not None}
        for name, value in values.items():
            if value is None:
                data.pop(name, None)
        if button is not None:
            name, value = form.buttons[button]
            if name:
                data[name] = value
        headers = {"Referer": page.url}
        target = urljoin(page.url, form.action)
        if form.method == "post":
            return self._page(self._session.post(target, data=data, headers=headers, timeout=TIMEOUT_S))
        return self._page(self._session.get(target, params=data, headers=headers, timeout=TIMEOUT_S))

    def download(self, path: str) -> bytes:
        answer = self._session.get(urljoin(self._site_url, path), timeout=TIMEOUT_S)
        if answer.status_code != requests.codes.ok:
            raise PageError(f"{answer.url} answered {answer.status_code}")
        return answer.content

    @staticmethod
    def _page(answer: requests.Response) -> Page:
        if answer.status_code != requests.codes.ok:
            raise PageError(f"{answer.url} answered {answer.status_code}: {answer.text[:300]}")
        reader = _FormReader()
        reader.feed(answer.text)
        return Page(answer.url, answer.text, reader.forms, reader.errors)
