"""The form in which an AS is created and edited: all of it without JavaScript, and nothing that was typed is lost."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from scionlab.accounts.models import User
from scionlab.testbed.models import BandwidthChange, Host, Link, UserAS
from scionlab.testbed.models.attachment_point import AttachmentPoint
from tests.cases import table
from tests.factories import attach, spec
from tests.support.html import Page

pytestmark = pytest.mark.django_db

BANDWIDTH = "Upper limit for the bandwidth usable for this AS [kbit/s]"
NEW = "/ases/new/"


@pytest.fixture
def client(owner: User) -> Client:
    """The owner's browser."""
    browser = Client()
    browser.force_login(owner)
    return browser


def row(ap: AttachmentPoint, number: int = 0, **values: str) -> dict[str, str]:
    """One attachment as the browser sends it."""
    fields = {
        "attachment_point": str(ap.pk),
        "public_ip": "198.51.100.7",
        "public_port": str(50_000 + number),
        "bandwidth_kbit": "500",
        "bind_ip": "",
        "bind_port": "",
        **values,
    }
    return {f"attachments-{number}-{name}": value for name, value in fields.items()}


def form(*rows: dict[str, str], button: str = "save", value: str = "1", **general: str) -> dict[str, str]:
    given = {name: text for one in rows for name, text in one.items()}
    return {"label": "Office", "installation_type": "dedicated", button: value, **general, **given}


def everything() -> dict[str, Any]:
    """All that a refused form must leave as it was."""
    return {
        "ases": list(UserAS.objects.order_by("pk").values()),
        "links": list(Link.objects.order_by("pk").values()),
        "hosts": list(Host.objects.order_by("pk").values()),
        "changes": BandwidthChange.objects.count(),
    }


# --- creating -----------------------------------------------------------------------------------------------


def test_a_new_form_starts_with_the_default_in_force_and_names_it(client: Client, ap: AttachmentPoint) -> None:
    page = Page(client.get(NEW))
    assert page.value(BANDWIDTH) == "1000"
    assert "Initial value and maximum at 17-ffaa:0:1107: 1 000 kbit/s." in page.beside(BANDWIDTH)
    assert page.value("Public port (UDP)") == "50000"


def test_a_new_as_is_stored_as_it_was_typed(client: Client, owner: User, ap: AttachmentPoint) -> None:
    typed = row(ap, bandwidth_kbit="640", bind_ip="10.0.0.5", bind_port="50007")
    answer = client.post(NEW, form(typed, installation_type="vm"))
    made = UserAS.objects.get()
    assert answer.headers["Location"] == f"/ases/{made.pk}/"
    link = Link.objects.get(interface_b__AS=made)
    end = link.interface_b
    assert (made.owner, made.label, made.installation_type, made.isd_as) == (owner, "Office", "vm", "17-ffaa:1:1")
    assert (link.bandwidth_kbit, link.active, link.attachment_point) == (640, True, ap)
    assert (end.public_ip, end.public_port, end.bind_ip, end.bind_port) == ("198.51.100.7", 50_000, "10.0.0.5", 50_007)


# --- what a person gets wrong -------------------------------------------------------------------------------

# One of each field: limits/test_rules_doors.py has the rules.
MISTAKES = {
    "above the maximum": (
        BANDWIDTH,
        "bandwidth_kbit",
        "1001",
        "Bandwidth 1 001 kbit/s is above this link's maximum of 1 000 kbit/s. Choose at most 1 000, or ask",
    ),
    "no IP": ("Public IP address", "public_ip", "$(reboot)", '"$(reboot)" is not an IP address. Enter one like'),
    "no number": ("Public port (UDP)", "public_port", "5e4", '"5e4" is not a port number. Enter a whole number'),
    "no such AP": ("Attachment point", "attachment_point", "4711", "Attachment point 4711 does not exist."),
    "no VPN there": ("Use VPN", "use_vpn", "on", "17-ffaa:0:1107 has no VPN. Give a public IP, or choose"),
}


@table("mistake", MISTAKES)
def test_a_mistake_is_explained_beside_its_field_and_nothing_is_lost_or_changed(
    client: Client, user_as: UserAS, ap: AttachmentPoint, mistake: str
) -> None:
    label, name, written, sentence = MISTAKES[mistake]
    before = everything()
    answer = client.post(NEW, form(row(ap, **{"public_ip": "198.51.100.8", name: written}), label="Keep me"))
    page = Page(answer)
    assert sentence in page.beside(label)
    control = page.field(label)
    assert control.attrs["aria-invalid"] == "true"
    summary = page.root.one("div", class_="summary")
    (link,) = summary.all("a")
    assert sentence in link.text
    assert link.attrs["href"] == f"#{control.attrs['id']}"
    assert page.value("Label") == "Keep me"
    if name not in {"attachment_point", "use_vpn"}:
        assert control.attrs.get("value", "") == written
    assert everything() == before


def test_all_mistakes_are_shown_at_once_each_in_its_attachment(
    client: Client, ap: AttachmentPoint, ap_b: AttachmentPoint
) -> None:
    rows = (row(ap, 0, bandwidth_kbit="1e3", public_port="http"), row(ap_b, 1, bandwidth_kbit="2000"))
    page = Page(client.post(NEW, form(*rows)))
    assert '"1e3" is not' in page.beside(BANDWIDTH, 1)
    assert '"http" is not a port number' in page.beside("Public port (UDP)", 1)
    assert "Bandwidth 2 000 kbit/s is above" in page.beside(BANDWIDTH, 2)
    assert [link.text.rpartition(": ")[0] for link in page.root.one("div", class_="summary").all("a")] == [
        f"Attachment 1: {BANDWIDTH}",
        "Attachment 1: Public port (UDP)",
        f"Attachment 2: {BANDWIDTH}",
    ]


def test_what_the_service_refuses_is_told_on_top_of_the_form(
    client: Client, owner: User, user_as: UserAS, ap: AttachmentPoint
) -> None:
    User.objects.filter(pk=owner.pk).update(as_quota=1)
    page = Page(client.post(NEW, form(row(ap, public_port="50009"), label="One too many")))
    assert "owner@example.org has 1 AS; the quota is 1." in page.text
    assert page.value("Label") == "One too many"
    assert UserAS.objects.count() == 1


def test_what_was_typed_is_shown_as_text_and_never_as_markup(client: Client, ap: AttachmentPoint) -> None:
    answer = client.post(NEW, form(row(ap, bandwidth_kbit="<script>1</script>"), label="<b>x</b>"))
    assert b"<script>1" not in answer.content
    assert b"<b>x" not in answer.content
    assert Page(answer).value("Label") == "<b>x</b>"


# --- rows ---------------------------------------------------------------------------------------------------


def test_a_row_more_keeps_all_that_was_typed_and_judges_nothing(
    client: Client, ap: AttachmentPoint, ap_b: AttachmentPoint, ap_other: AttachmentPoint
) -> None:
    typed = row(ap, bandwidth_kbit="1e3", public_ip="not yet", use_vpn="on", bind_port="7")
    page = Page(client.post(NEW, form(typed, button="add", label="Half done", installation_type="dedicated")))
    assert not page.root.all("div", class_="summary")
    assert page.value("Label") == "Half done"
    assert (page.value(BANDWIDTH, 1), page.value("Public IP address", 1)) == ("1e3", "not yet")
    assert page.field("Use VPN", 1).attrs["checked"] == ""
    # The new one: an attachment point of the same ISD that is not used yet, its maximum, a port that is free.
    assert page.value("Attachment point", 2) == str(ap_b.pk)
    assert page.value(BANDWIDTH, 2) == "1000"
    assert page.value("Public port (UDP)", 2) == "50001"
    assert not UserAS.objects.exists()


def test_the_page_that_a_row_was_added_to_can_be_sent_as_it_is(
    client: Client, ap: AttachmentPoint, ap_b: AttachmentPoint
) -> None:
    page = Page(client.post(NEW, form(row(ap), button="add")))
    data = page.post_data() | {"save": "1", "attachments-1-public_ip": "198.51.100.7"}
    assert client.post(NEW, data).status_code == 302
    assert [link.attachment_point for link in Link.objects.order_by("pk")] == [ap, ap_b]


def test_a_removed_row_takes_nothing_else_with_it(client: Client, ap: AttachmentPoint, ap_b: AttachmentPoint) -> None:
    rows = (row(ap, 0, bandwidth_kbit="100"), row(ap_b, 1, bandwidth_kbit="200"), row(ap, 2, bandwidth_kbit="300"))
    page = Page(client.post(NEW, form(*rows, button="remove", value="1")))
    assert [page.value(BANDWIDTH, number) for number in (1, 2)] == ["100", "300"]
    assert len(page.root.all("section", class_="card attachment")) == 2
    assert not UserAS.objects.exists()


def test_enter_in_a_text_field_saves_and_does_not_remove(client: Client, ap: AttachmentPoint) -> None:
    """Browsers press the first submit button of a form in the order of the document."""
    page = Page(client.post(NEW, form(row(ap), button="add")))
    form_ = page.root.one("form", class_="editor")
    assert form_.all("button")[0].attrs["name"] == "save"


# --- editing ------------------------------------------------------------------------------------------------


def edit_url(user_as: UserAS) -> str:
    return reverse("user_as_edit", args=[user_as.pk])


def test_saving_the_edit_form_untouched_changes_nothing(client: Client, owner: User, ap_b: AttachmentPoint) -> None:
    made = attach(owner, spec(ap_b, use_vpn=True, bandwidth_kbit=300), spec(ap_b, public_port=50_001, active=False))
    before = everything()
    data = Page(client.get(edit_url(made))).post_data() | {"save": "1"}
    page = Page(client.post(edit_url(made), data, follow=True))
    assert "Saved. No changes." in page.text
    assert everything() == before


def test_attachments_are_added_and_removed_by_saving(
    client: Client, user_as: UserAS, link: Link, ap_b: AttachmentPoint
) -> None:
    page = Page(client.post(edit_url(user_as), Page(client.get(edit_url(user_as))).post_data() | {"add": "1"}))
    data = page.post_data() | {"save": "1", "attachments-1-public_ip": "198.51.100.7"}
    assert client.post(edit_url(user_as), data).status_code == 302
    assert Link.objects.filter(interface_b__AS=user_as).count() == 2

    page = Page(client.get(edit_url(user_as)))
    page = Page(client.post(edit_url(user_as), page.post_data() | {"remove": "0"}))
    assert client.post(edit_url(user_as), page.post_data() | {"save": "1"}).status_code == 302
    (left,) = Link.objects.filter(interface_b__AS=user_as)
    assert left.attachment_point == ap_b


def test_one_attachment_is_switched_off_and_on(client: Client, user_as: UserAS, link: Link) -> None:
    data = Page(client.get(edit_url(user_as))).post_data() | {"save": "1"}
    del data["attachments-0-active"]
    client.post(edit_url(user_as), data)
    link.refresh_from_db()
    assert link.active is False
    page = Page(client.get(edit_url(user_as)))
    client.post(edit_url(user_as), page.post_data() | {"save": "1", "attachments-0-active": "on"})
    link.refresh_from_db()
    assert link.active is True


def test_an_attachment_of_somebody_else_is_taken_by_no_door(
    client: Client, user_as: UserAS, teammate: User, ap: AttachmentPoint
) -> None:
    theirs = Link.objects.get(interface_b__AS=attach(teammate, spec(ap, public_ip="198.51.100.99")))
    before, data = everything(), Page(client.get(edit_url(user_as))).post_data()
    answer = client.post(edit_url(user_as), data | {"save": "1", "attachments-0-link_id": str(theirs.pk)})
    assert answer.status_code == 200
    row = {"attachment_point_id": ap.pk, "public_ip": "198.51.100.7", "link_id": theirs.pk}
    body = {"label": "", "installation_type": "dedicated", "attachments": [row]}
    answer = client.put(f"/api/v1/ases/{user_as.pk}/", body, content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (400, "link_unknown")
    assert everything() == before


@table(
    ("to_user", "from_user", "sentence"),
    [
        ("0.5M", "64k", "To the user AS 500 kbit/s, from it 64 kbit/s."),
        ("500", "", "500 kbit/s leave 486 kbit/s for SCION packets of 1 472 bytes."),
        ("0", "", "To the user AS blocked, from it blocked. 0 blocks the link"),
        ("1,5M", "", "Enter 1.5 Mbit/s or 15 Mbit/s."),
        ("500", "2M", "maximum of 1 000 kbit/s"),
    ],
)
def test_the_form_says_while_one_types_what_it_understood(
    client: Client, ap: AttachmentPoint, to_user: str, from_user: str, sentence: str
) -> None:
    query = row(ap, 3, bandwidth_kbit=to_user, from_user_kbit=from_user) | {"row": "attachments-3"}
    page = Page(client.get("/ases/preview/", query))
    assert sentence in page.root.text


@table("values", [{"public_ip": "198.51"}, {"use_vpn": "on"}])
def test_it_says_nothing_of_scion_before_the_address_is_known(
    client: Client, ap: AttachmentPoint, values: dict[str, str]
) -> None:
    query = row(ap, 3, **values) | {"row": "attachments-3"}
    assert "leave" not in Page(client.get("/ases/preview/", query)).root.text


def test_two_directions_are_stored_and_shown_again(client: Client, ap: AttachmentPoint) -> None:
    client.post(NEW, form(row(ap, bandwidth_kbit="0.9M", from_user_kbit="64")))
    link = Link.objects.get()
    assert tuple(link.requested) == (900, 64)
    page = Page(client.get(edit_url(UserAS.objects.get())))
    assert (page.value(BANDWIDTH), page.value("Upper limit from your AS [kbit/s]")) == ("900", "64")
