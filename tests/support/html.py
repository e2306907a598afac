"""A page as its reader meets it: fields by their label, and what stands beside them. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

from django.http import HttpResponse

VOID = {"area", "base", "br", "circle", "col", "hr", "img", "input", "link", "meta", "path", "rect", "use", "wbr"}


@dataclass
class Element:
    tag: str
    attrs: dict[str, str] = field(default_factory=dict)
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """With single spaces, also where the page has one that does not break."""
        parts = [child if isinstance(child, str) else child.text for child in self.children]
        return " ".join(" ".join(parts).replace("\N{NO-BREAK SPACE}", " ").split())

    def all(self, tag: str | None = None, **attrs: str) -> list[Element]:
        found = []
        for child in self.children:
            if isinstance(child, Element):
                names = {name.rstrip("_").replace("_", "-"): value for name, value in attrs.items()}
                if tag in {None, child.tag} and all(child.attrs.get(name) == value for name, value in names.items()):
                    found.append(child)
                found += child.all(tag, **attrs)
        return found

    def one(self, tag: str | None = None, **attrs: str) -> Element:
        found = self.all(tag, **attrs)
        assert len(found) == 1, f"{len(found)} elements {tag} {attrs}, not one"
        return found[0]


class Page(HTMLParser):
    def __init__(self, response: HttpResponse) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("document")
        self._open = [self.root]
        self.feed(response.content.decode())
        assert self._open == [self.root], f"not closed: {[element.tag for element in self._open[1:]]}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open[-1].tag == tag, f"</{tag}> closes <{self._open[-1].tag}>"
            self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)

    @property
    def text(self) -> str:
        return self.root.one("main").text

    def by_id(self, identifier: str) -> Element:
        return self.root.one(id=identifier)

    def field(self, label: str, number: int = 1) -> Element:
        """The control with this label; `number` counts attachments from 1."""
        labels = [one for one in self.root.all("label") if one.text == label]
        assert len(labels) >= number, f'{len(labels)} fields "{label}", fewer than {number}'
        return self.by_id(labels[number - 1].attrs["for"])

    def beside(self, label: str, number: int = 1) -> str:
        """What a screen reader says about the field: all that it is described by."""
        identifiers = self.field(label, number).attrs.get("aria-describedby", "").split()
        return " ".join(self.by_id(one).text for one in identifiers)

    def value(self, label: str, number: int = 1) -> str:
        control = self.field(label, number)
        if control.tag == "select":
            return next(one.attrs["value"] for one in control.all("option") if "selected" in one.attrs)
        return control.attrs.get("value", "")

    def post_data(self, form: Element | None = None) -> dict[str, str]:
        """What a browser sends when the form, by default the page's main one, is submitted as it stands, without any
        button."""
        form = form or next(one for one in self.root.all("form") if "editor" in one.attrs.get("class", ""))
        data = {}
        for control in form.all("input"):
            kind, name = control.attrs.get("type", "text"), control.attrs.get("name", "")
            is_tick = kind in {"checkbox", "radio"}
            if name and kind not in {"submit", "button"} and (not is_tick or "checked" in control.attrs):
                data[name] = control.attrs.get("value", "on" if is_tick else "")
        for control in form.all("textarea"):
            data[control.attrs["name"]] = control.text
        for control in form.all("select"):
            options = control.all("option")
            chosen = [one for one in options if "selected" in one.attrs]
            if chosen or (options and "multiple" not in control.attrs):
                first = (chosen or options)[0]
                data[control.attrs["name"]] = first.attrs.get("value", first.text)
        return data
