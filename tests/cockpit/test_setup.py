"""The setup page: from an empty database to the first user AS, each step whole or refused, and skipped when done."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from scionlab.accounts.models import User
from scionlab.delivery.models import EnrolmentToken
from scionlab.enforcement.generation import generation_raise
from scionlab.scion_config.models import TRC
from scionlab.testbed import selectors
from scionlab.testbed.models import AS, ISD, VPN, AttachmentPoint, BandwidthChange, Host, Link
from tests.cases import table
from tests.factories import HostReceiptFactory, attach, spec
from tests.support.html import Element, Page

pytestmark = pytest.mark.django_db

SETUP = "/cockpit/setup/"
CORE = {"step": "core", "isd_id": "17", "isd_label": "Laboratory", "as_text": "FFAA:0:1101", "label": "Core"}
CORE |= {"public_ipv4": "198.51.100.1"}
POINT = {"step": "attachment-point", "as_text": "ffaa:0:1107", "label": "AP", "public_ipv4": "198.51.100.7"}
POINT |= {"vpn_subnet": "10.10.1.0/24"}


@pytest.fixture
def core(door: Client) -> AS:
    post(door, CORE)
    return AS.objects.get()


def steps(page: Page) -> list[Element]:
    return page.root.one("ol", class_="setup").all("li", class_="card")


def states(door: Client, query: str = "") -> list[str]:
    """`done`, `next` or `to do` of each step, as the page shows them."""
    return [one.one("h2").one("span").text for one in steps(Page(door.get(SETUP + query)))]


def post(door: Client, values: dict[str, str]) -> Page:
    """The page that follows a step that was done."""
    answer = door.post(SETUP, values)
    assert answer.status_code == 302, Page(answer).root.one("main").text
    return Page(door.get(answer["Location"]))


def test_five_steps_from_an_empty_site_to_a_user_as(door: Client, owner: User, settings: Settings) -> None:
    settings.SITE_URL = "https://lab.example.org"
    assert states(door) == ["next", "to do", "to do", "to do", "to do"]
    overview = Page(door.get("/cockpit/")).root.one("main")
    assert overview.one("a", href=SETUP).text == "Set up this site"

    post(door, {"step": "default", "default_bandwidth_kbit": "2M"})
    assert selectors.policy().default_bandwidth_kbit == 2000
    assert states(door) == ["done", "next", "to do", "to do", "to do"]

    assert "Core AS 17-ffaa:0:1101 (Core) was created" in post(door, CORE).text
    as_ = AS.objects.get()
    assert (as_.is_core, as_.isd.label, TRC.objects.filter(isd=as_.isd).count()) == (True, "Laboratory", 1)
    assert states(door) == ["done", "done", "next", "to do", "to do"]

    post(door, POINT)
    ap = AttachmentPoint.objects.get()
    link = Link.objects.get()
    assert (link.interface_a.AS, link.interface_b.AS, link.type) == (as_, ap.AS, Link.Type.PROVIDER)
    assert (ap.maximum_kbit, VPN.objects.get().host) == (2000, ap.host)
    assert states(door) == ["done", "done", "done", "next", "to do"]

    shown = Page(door.post(SETUP, {"step": "agent"}))
    command, token = (one.text for one in shown.root.all("pre"))
    assert command == "sudo scionlab-bw-agent enrol https://lab.example.org"
    answer = Client().post("/api/v4/enrol", json.dumps({"token": token.split(".")[1]}), "application/json")
    assert answer.json()["host_id"] == ap.host.uid
    assert "has not reported. Run scionlab-bw-agent status there." in steps(Page(door.get(SETUP)))[3].text
    HostReceiptFactory(host=ap.host, received_at=timezone.now())
    assert states(door) == ["done", "done", "done", "done", "next"]

    attach(owner, spec(ap, public_ip="203.0.113.7"))
    assert states(door) == ["done"] * 5
    assert "All steps are done." in Page(door.get(SETUP)).text
    assert not Page(door.get("/cockpit/")).root.one("main").all("a", href=SETUP)


def test_a_revoked_token_is_not_called_valid(door: Client, core: AS) -> None:
    post(door, POINT)
    door.post(SETUP, {"step": "agent"})
    assert "is valid until" in steps(Page(door.get(SETUP)))[3].text
    generation_raise()
    words = steps(Page(door.get(SETUP)))[3].text
    assert "was revoked at" in words
    assert "Create another one." in words
    assert "valid until" not in words


def test_the_default_may_stay_as_it_is(door: Client) -> None:
    following = door.post(SETUP, {"step": "default", "default_bandwidth_kbit": "1000"})["Location"]
    assert not BandwidthChange.objects.exists()
    assert states(door, following.removeprefix(SETUP)) == ["to do", "next", "to do", "to do", "to do"]
    post(door, CORE)
    assert states(door)[:2] == ["done", "done"]


def test_a_default_that_links_feel_is_not_set_here(door: Client, owner: User, ap: AttachmentPoint) -> None:
    attach(owner, spec(ap))
    assert states(door)[0] == "done"
    post(door, {"step": "default", "default_bandwidth_kbit": "2M"})
    assert selectors.policy().default_bandwidth_kbit == 1000


def test_a_step_that_cannot_be_done_yet_is_not_opened(door: Client) -> None:
    for name in ("attachment-point", "agent", "user-as", "nonsense"):
        assert states(door, f"?step={name}")[0] == "next"
        assert door.post(SETUP, {"step": name})["Location"] == SETUP
    assert not EnrolmentToken.objects.exists()


def test_the_core_as_itself_may_be_the_attachment_point(door: Client, core: AS) -> None:
    post(door, {"step": "attachment-point", "as_text": ""})
    assert core == AttachmentPoint.objects.get().AS
    assert not Link.objects.exists()


@table(
    ("base", "values", "field", "sentence"),
    [
        (CORE, {"isd_id": "0"}, "isd_id", "ISD 0 is outside 1 to 65535. Choose a number in that range."),
        (CORE, {"isd_id": ""}, "isd_id", '"" is not the number of an ISD. Enter one from 1 to 65535.'),
        (CORE, {"as_text": "ffaa:1:7"}, "as_text", "is in the range of user ASes"),
        (CORE, {"public_ipv4": "127.0.0.1"}, None, "127.0.0.1"),
        ({"step": "default"}, {"default_bandwidth_kbit": "-1"}, "default_bandwidth_kbit", "-1"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_made(
    door: Client, base: dict[str, str], values: dict[str, str], field: str | None, sentence: str
) -> None:
    assert refused(door, base | values, field, sentence) == [0, 0, 0, 0]


@table(
    ("values", "field", "sentence"),
    [
        ({"as_text": "ffaa:0:1101"}, None, "already exists"),
        ({"public_ipv4": "", "public_ipv6": "2001:db8::7"}, None, "no common address family"),
        ({"as_text": ""}, "label", "Without an AS id the core AS 17-ffaa:0:1101 (Core) is the attachment point."),
    ],
)
def test_an_attachment_point_is_made_whole_or_not_at_all(
    door: Client, core: AS, values: dict[str, str], field: str | None, sentence: str
) -> None:
    assert refused(door, POINT | values, field, sentence) == [1, 1, 1, 0]


def refused(door: Client, values: dict[str, str], field: str | None, sentence: str) -> list[int]:
    """How many ISDs, ASes, hosts and attachment points there are after the refusal."""
    answer = door.post(SETUP, values)
    assert answer.status_code == 200
    main = Page(answer).root.one("main")
    assert sentence in main.text
    if field is not None:
        assert sentence in main.one("ul", id=f"setup_{field}_error").text
    for name, value in values.items():
        if name not in {"step", "default_bandwidth_kbit"}:
            assert main.one("input", name=name).attrs.get("value", "") == value, "what was typed stays"
    models: tuple[Any, ...] = (ISD, AS, Host, AttachmentPoint)
    return [model.objects.count() for model in models]


def test_a_step_that_is_done_is_not_done_again(door: Client, core: AS) -> None:
    said = post(door, CORE | {"as_text": "ffaa:0:1102", "public_ipv4": "198.51.100.2"})
    assert "Nothing was changed: this step is already done, or another one comes first." in said.text
    assert AS.objects.get() == core
