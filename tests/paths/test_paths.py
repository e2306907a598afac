"""Limits along SCION paths that somebody pasted: whose figures who reads, and what is said of the rest."""

from __future__ import annotations

import io
import json
import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from bandwidth_config import Limits
from scionlab.accounts.models import User
from scionlab.enforcement.models import HostReceipt, LinkEnforcement
from scionlab.limits.update import link_update
from scionlab.linktests.link_test import link_test_create
from scionlab.linktests.models import LinkTest
from scionlab.paths.path_view import PathView, path_views
from scionlab.platform.field_errors import FieldRuleError
from scionlab.testbed.models import AttachmentPoint, Link
from scionlab_bw.__main__ import main
from tests.factories import InterfaceFactory, LinkFactory, api_token, attach, spec
from tests.support.html import Element, Page
from tests.support.polling import WebServer
from tests.usage_world import add_slot, series_of

pytestmark = pytest.mark.django_db

USER, AP, CORE = "17-ffaa:1:1", "17-ffaa:0:1107", "17-ffaa:0:2001"


def infrastructure_link(ap: AttachmentPoint, number: int) -> Link:
    router = ap.host.border_routers.first()
    near = InterfaceFactory(host=ap.host, border_router=router, interface_id=number, public_port=20_000 + number)
    return LinkFactory(interface_a=near, interface_b__interface_id=5)


@pytest.fixture
def core(ap: AttachmentPoint) -> Link:
    """From the attachment point to the core AS, which nobody limits."""
    return infrastructure_link(ap, 900)


@pytest.fixture
def other(ap: AttachmentPoint, teammate: User) -> Link:
    """Somebody else's, at the same attachment point."""
    made = attach(teammate, spec(ap, public_ip="198.51.100.8", bandwidth_kbit=400, from_user_kbit=300), label="Secret")
    return Link.objects.get(interface_b__AS=made.pk)


def across(*links: Link) -> str:
    """From the B end of each Link to its A end, as links of one path: text for people."""
    words = [str(links[0].interface_b.AS.isd_as)]
    for one in links:
        words += [f"{one.interface_b.interface_id}>{one.interface_a.interface_id}", one.interface_a.AS.isd_as]
    return " ".join(words)


def back(text: str) -> str:
    """The same path in the other direction."""
    return re.sub(r"(\d+)>(\d+)", r"\2>\1", " ".join(reversed(text.split())))


def look(text: str, reader: User, traceroute: str = "") -> PathView:
    [found] = path_views(text, traceroute, reader=reader, now=timezone.now())
    return found


def enforce(link: Link, limits: Limits) -> None:
    """The receipt of the fixture says so."""
    LinkEnforcement.objects.filter(link=link).update(
        to_user_rate_kbit=limits.to_user_kbit,
        from_user_rate_kbit=limits.from_user_kbit,
        to_user_kbit=limits.to_user_kbit,
        from_user_kbit=limits.from_user_kbit,
    )


def test_the_limit_and_the_use_are_those_of_the_direction_of_travel(
    link: Link, owner: User, receipt: HostReceipt
) -> None:
    Link.objects.filter(pk=link.pk).update(from_user_kbit=200)
    enforce(link, Limits(1000, 200))
    series = series_of(link)
    for minutes, kbytes in ((70, 9000), (20, 3000), (10, 1500)):
        add_slot(
            series,
            timezone.now() - timedelta(minutes=minutes),
            **{f"{way}_{name}": value * times for way, times in (("to_user", 2), ("from_user", 1)) for name, value in (
                ("bytes", kbytes * 1000), ("rated_bytes", kbytes * 1000), ("limit_kbit", 1000))},
            to_user_covered_ms=300_000, from_user_covered_ms=300_000, from_user_at_limit_ms=60_000,
        )  # fmt: skip
    text = across(link)
    for written, direction, kbit, used_kbit, at_limit_s in (
        (text, "from_user", 200, 60, 120),
        (back(text), "to_user", 1000, 120, 0),
    ):
        [found] = look(written, owner).links
        assert (found.kind, found.direction, found.limit_kbit, found.enforced_kbit) == ("shown", direction, kbit, kbit)
        assert found.status is not None
        assert found.status.stage == "enforced"
        assert found.used is not None
        assert (found.used.kbit, found.used.at_limit_s) == (used_kbit, at_limit_s)


def test_who_reads_what_of_a_link(link: Link, other: Link, owner: User, teammate: User, staff: User) -> None:
    text = across(other)
    for reader, kind, kbit in ((teammate, "shown", 300), (staff, "shown", 300), (owner, "withheld", None)):
        [found] = look(text, reader).links
        assert (found.kind, found.limit_kbit, found.status is None) == (kind, kbit, kbit is None), reader
    assert (
        look(text, owner).text == "No limit on this path is known to be in force. Not known: 1 limit of another user."
    )


@pytest.mark.parametrize(
    ("values", "at_ap", "kind", "kbit"),
    [
        ({}, {"publishes_limits": True}, "published", 300),
        ({"from_user_kbit": 900}, {"publishes_limits": True, "maximum_kbit": 250}, "published", 250),
        ({}, {}, "withheld", None),
        ({"observe_only": True}, {"publishes_limits": True}, "withheld", None),
        ({}, {"publishes_limits": True, "observe_only": True}, "withheld", None),
        ({"from_user_kbit": 0}, {"publishes_limits": True}, "withheld", None),
        ({"active": False}, {"publishes_limits": True}, "unknown", None),
    ],
)
def test_of_another_user_s_link_only_what_scion_tells_everybody(
    other: Link, owner: User, values: dict[str, Any], at_ap: dict[str, Any], kind: str, kbit: int | None
) -> None:
    Link.objects.filter(pk=other.pk).update(**values)
    AttachmentPoint.objects.update(**at_ap)
    for text in (across(other), back(across(other))):
        [found] = look(text, owner).links
        assert (found.kind, found.limit_kbit, found.is_narrowest) == (kind, kbit, kbit is not None)
        assert (found.status, found.direction, found.enforced_kbit, found.used) == (None, None, None, None)


def test_a_link_is_known_by_both_of_its_ends(link: Link, core: Link, owner: User) -> None:
    one, two = link.interface_b.interface_id, link.interface_a.interface_id
    for text, kind in (
        (f"{USER} {one}>{two} {AP}", "shown"),
        (f"{AP} 900>5 {core.interface_b.AS.isd_as}", "not_limited"),
        (f"{USER} {one}>900 {AP}", "registered_otherwise"),  # both ends are there, of two Links
        (f"{USER} {one}>{two} 17-ffaa:0:1108", "registered_otherwise"),
        (f"17-ffaa:1:9 {one}>{two} {AP}", "registered_otherwise"),
        (f"18-ffaa:1:1 {one}>{two} 18-ffaa:0:1107", "unknown"),
        (f"{USER} {one + 1}>{two + 100} {AP}", "unknown"),
    ):
        for written in (text, back(text)):
            assert look(written, owner).links[0].kind == kind, written


def test_the_narrowest_known_limit_is_marked_and_what_is_not_known_is_said(
    link: Link, core: Link, other: Link, owner: User, receipt: HostReceipt
) -> None:
    found = look(f"{across(link)} 900>5 {core.interface_b.AS.isd_as} 1>2 64-559", owner)
    assert [one.is_narrowest for one in found.links] == [True, False, False]
    assert (found.hops[0], found.hops[-1], found.narrowest_kbit) == (USER, "64-559", 1000)
    assert found.text.replace("\N{NO-BREAK SPACE}", " ") == (
        f"The narrowest known limit is 1 000 kbit/s from {USER} to {AP}. Not known: the capacity of 1 link without a "
        "limit, 1 link that is not registered."
    )
    AttachmentPoint.objects.update(publishes_limits=True)
    there = re.split(" ", back(across(other)), maxsplit=1)[1]
    found = look(f"{across(link)} {there}", owner)
    assert [(one.kind, one.is_narrowest) for one in found.links] == [("shown", False), ("published", True)]
    assert found.text.endswith(f"300\N{NO-BREAK SPACE}kbit/s from {AP} to 17-ffaa:1:2.")


def test_only_a_confirmed_limit_is_known(link: Link, owner: User, receipt: HostReceipt) -> None:
    link_update(link_id=link.pk, actor=owner, limits=Limits.both(600))
    found = look(across(link), owner)
    [one] = found.links
    assert one.status is not None
    assert (one.status.state, one.limit_kbit, one.enforced_kbit, found.narrowest_kbit) == ("waiting", 600, 1000, 1000)
    HostReceipt.objects.update(received_at=timezone.now() - timedelta(hours=1))
    found = look(across(link), owner)
    assert (found.links[0].enforced_kbit, found.narrowest_kbit) == (None, None)
    assert found.text == "No limit on this path is known to be in force. Not known: 1 limit that is not confirmed."


def test_the_last_test_of_ones_own_link_stands_beside_it(link: Link, other: Link, owner: User) -> None:
    made = link_test_create(link_id=link.pk, duration_s=10, begins_at=None, actor=owner)
    assert look(across(link), owner).links[0].last_test is None  # it has not begun
    hour = timedelta(hours=1)
    LinkTest.objects.filter(pk=made.pk).update(begins_at=made.begins_at - hour, ends_at=made.ends_at - hour)
    found = look(across(link), owner).links[0].last_test
    assert found is not None
    assert (found.test.pk, found.state) == (made.pk, "missed")
    assert look(across(link), other.interface_b.AS.useras.owner).links[0].last_test is None
    LinkTest.objects.update(cancelled_at=timezone.now())
    assert look(across(link), owner).links[0].last_test is None


def test_a_traceroute_belongs_to_the_path_that_it_went(link: Link, owner: User) -> None:
    one, two = link.interface_b.interface_id, link.interface_a.interface_id
    lines = f"0 {USER},192.0.2.11 IfID={one} 0.4ms 0.2ms 0.3ms\n1 {AP},192.0.2.1 IfID={two} * 0.5ms *\n"
    longer = f"{across(link)} 8>9 17-ffaa:0:9"
    detour = f"17-ffaa:1:9 1>{one + 1} {USER} {one}>{two} {AP}"
    found = path_views("\n".join([across(link), longer, detour]), lines, reader=owner, now=timezone.now())
    assert [[one.rtts_ms for one in path.links] for path in found] == [
        [(0.2, 0.5)],
        [(0.2, 0.5), (None, None)],
        [(None, None), (None, None)],
    ]
    assert [path.is_traced for path in found] == [True, True, False]
    for text, traceroute, field in ((detour, lines, "traceroute"), (longer, "0 x", "traceroute"), ("x", "", "paths")):
        with pytest.raises(FieldRuleError) as refused:
            path_views(text, traceroute, reader=owner, now=timezone.now())
        assert refused.value.field == field


# --- over REST, and on the page -------------------------------------------------------------------------------------


def post(body: Any, person: User, **token: Any) -> Any:
    cache.clear()
    headers = {"Authorization": f"Token {api_token(person, **token)}"}
    return Client().post("/api/v1/paths/", json.dumps(body), content_type="application/json", headers=headers)


def test_rest_answers_a_read_only_token_and_names_what_is_wrong(link: Link, owner: User, receipt: HostReceipt) -> None:
    trace = f"0 {USER},192.0.2.11 IfID={link.interface_b.interface_id} 0.4ms\n1 ?? * * *"
    answer = post({"paths": across(link), "traceroute": trace}, owner, may_write=False)
    assert answer.status_code == 200, answer.content
    [path] = answer.json()["paths"]
    assert (path["hops"], path["narrowest_kbit"]) == ([USER, AP], 1000)
    [found] = path["links"]
    named = ("kind", "link_id", "direction", "limit_kbit", "enforced_kbit", "state", "is_narrowest")
    assert [found[name] for name in named] == ["shown", link.pk, "from_user", 1000, 1000, "enforced", True]
    for body, field, code in (
        ({}, "paths", "required"),
        ({"paths": "x"}, "paths", "path_hops"),
        ({"paths": across(link), "traceroute": "x"}, "traceroute", "path_none"),
        ({"paths": across(link), "more": 1}, "more", "unknown_field"),
    ):
        answer = post(body, owner)
        assert (answer.status_code, answer.json()["fields"][field][0]["code"]) == (400, code)


def test_rest_tells_a_stranger_nothing_of_the_owner(other: Link, owner: User, teammate: User) -> None:
    [found] = post({"paths": across(other)}, owner).json()["paths"][0]["links"]
    assert {name: value for name, value in found.items() if value is not None} == {
        "from_isd_as": "17-ffaa:1:1",
        "from_interface_id": other.interface_b.interface_id,
        "to_isd_as": AP,
        "to_interface_id": other.interface_a.interface_id,
        "kind": "withheld",
        "is_narrowest": False,
        "text": "Another user's link. It is limited, and its limit is not public.",
    }


@pytest.mark.django_db(transaction=True)
def test_the_client_reads_what_scion_showpaths_prints(
    link: Link,
    owner: User,
    receipt: HostReceipt,
    server: WebServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SCIONLAB_BW_URL", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("SCIONLAB_BW_TOKEN", api_token(owner))
    text = across(link)
    trace = tmp_path / "trace"
    trace.write_text(
        f"0 {USER},192.0.2.11 IfID={link.interface_b.interface_id} 0.4ms\n"
        f"1 {AP},192.0.2.1 IfID={link.interface_a.interface_id} 1.5ms * 1.25ms\n"
    )
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert main(["path", "-", "--traceroute", str(trace)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"Path 1: {USER} to {AP}"
    ends = [f"{USER}#{link.interface_b.interface_id}", f"{AP}#{link.interface_a.interface_id}"]
    assert lines[2].split() == [*ends, *["1", "000"] * 2, "enforced", "-", "1.25", "narrowest"]
    assert lines[3] == f"The narrowest known limit is 1 000 kbit/s from {USER} to {AP}."
    trace.write_text("17-ffaa:1:1 1>2")
    assert main(["path", str(trace)]) == 1
    assert "Path 1, hop 2, character 13" in capsys.readouterr().err
    assert main(["path", str(tmp_path / "none")]) == 2


def shown(answer: HttpResponse) -> Element:
    assert answer.status_code == 200
    return Page(answer).root.one("main")


def test_the_page_shows_the_link_and_leads_to_it(
    link: Link, core: Link, owner: User, receipt: HostReceipt, client: Client
) -> None:
    client.force_login(owner)
    text = f"{across(link)} 900>5 {core.interface_b.AS.isd_as}"
    page = shown(client.post(reverse("paths"), {"paths": text}))
    first, second = page.one("tbody").all("tr")
    assert first.one("a").attrs["href"] == reverse("link_detail", args=[link.interface_b.AS_id, link.pk])
    assert "This service does not limit this link." in second.text
    assert page.one("textarea", name="paths").text == text

    wrong = shown(client.post(reverse("paths"), {"paths": "17-ffaa:1:1 1>2"}))
    assert "Path 1, hop 2, character 13" in wrong.one("div", class_="summary").text
    assert wrong.one("textarea", name="paths").attrs["aria-invalid"] == "true"
    assert "Paste the output of scion showpaths" in shown(client.post(reverse("paths"), {})).text
    assert shown(client.get(reverse("paths"))).all("table") == []
