"""What the Links of an AS carry together: page, REST and command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from bandwidth_config import Limits
from scionlab.accounts.models import User
from scionlab.paths.as_paths import PathsReport, paths_report, weights_of
from scionlab.testbed.models import AttachmentPoint, Host, Link, UserAS
from scionlab_bw.__main__ import main
from tests.cases import case
from tests.factories import api_token, attach, spec
from tests.support.html import Page
from tests.support.polling import WebServer

pytestmark = pytest.mark.django_db

PACKAGED = Path(__file__).parents[1] / "packaged_paths.json"  # what packaging/check answers the installed client


def report(user_as: UserAS) -> PathsReport:
    return paths_report(UserAS.objects.get(pk=user_as.pk), now=timezone.now())


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


@pytest.fixture
def wide(owner: User, ap: AttachmentPoint, ap_b: AttachmentPoint) -> UserAS:
    """Two Links to `ap` and one to `ap_b`, from two addresses."""
    return attach(
        owner,
        spec(ap, public_port=50_002, bandwidth_kbit=600, from_user_kbit=300),
        spec(ap, public_port=50_001, bandwidth_kbit=200),
        spec(ap_b, public_ip="198.51.100.8", bandwidth_kbit=400, from_user_kbit=100),
    )


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ([], []),
        ([0, 0], [0, 0]),
        ([1000, 0, 500], [2, 0, 1]),
        ([51_000, 1000], [50, 1]),
        ([100_000_000, 1, 50_000_000], [50, 1, 25]),
        ([1000, 999], [1, 1]),
    ],
)
def test_weights_are_small_whole_numbers_in_proportion_to_the_limits(limits: list[int], expected: list[int]) -> None:
    assert weights_of(limits) == expected


def test_limits_add_up_until_links_share_something(subtests: pytest.Subtests, wide: UserAS) -> None:
    first, second, third = Link.objects.order_by("pk")
    two, one = "The 2 links to 17-ffaa:0:1107 together carry at most", "The link to 17-ffaa:0:1108 carries at most"
    shared = "shared with the links of other ASes."
    for name, at_ap, at_b, most, texts in (
        ("nothing known", {}, {}, (1200, 600), [f"{two} 800 kbit/s to the AS and 500 kbit/s from it."]),
        (
            "a total below the sum of one direction", {"total_kbit": 700}, {}, (1100, 600),
            [f"{two} 700 kbit/s to the AS and 500 kbit/s from it: its total of all links is 700 kbit/s, {shared}"],
        ),
        (
            "uplink and total", {"total_kbit": 700, "uplink_kbit": 100}, {}, (500, 200),
            [f"{two} 100 kbit/s in each direction: its uplink is 100 kbit/s and its total of all links is 700 kbit/s, "
             + shared],
        ),
        (
            "an uplink slower than its only link", {}, {"uplink_kbit": 250}, (1050, 600),
            [f"{two} 800 kbit/s to the AS and 500 kbit/s from it.",
             f"{one} 250 kbit/s to the AS and 100 kbit/s from it: its uplink is 250 kbit/s, {shared}"],
        ),
    ):  # fmt: skip
        with case(subtests, name):
            AttachmentPoint.objects.filter(AS=first.interface_a.AS).update(**at_ap)
            AttachmentPoint.objects.filter(AS=third.interface_a.AS).update(**at_b)
            found = report(wide)
            assert (found.total, found.most) == (Limits(1200, 600), Limits(*most))
            assert [plain(each.text) for each in found.bottlenecks] == texts
            assert found.bottlenecks[0].link_ids == [first.pk, second.pk]
            assert [each.weights for each in found.lines] == [Limits(3, 3), Limits(1, 2), Limits(2, 1)]


def test_one_address_of_the_user_is_one_connection(owner: User, ap: AttachmentPoint, ap_b: AttachmentPoint) -> None:
    made = attach(owner, spec(ap), spec(ap_b, public_port=50_001))
    [found] = report(made).bottlenecks
    assert (found.kind, found.most) == ("address", None)
    assert "have the same address, 198.51.100.7: they share its connection." in found.text


def test_what_is_off_or_blocked_gives_nothing(subtests: pytest.Subtests, wide: UserAS) -> None:
    first, *others = Link.objects.order_by("pk")
    with case(subtests, "inactive"):
        Link.objects.filter(pk=first.pk).update(active=False)
        found = report(wide)
        assert [one.status.link for one in found.lines] == others
        assert found.most == Limits(600, 300)
    with case(subtests, "blocked"):
        Link.objects.filter(pk=first.pk).update(bandwidth_kbit=0, from_user_kbit=None)
        found = report(wide)
        assert (found.most, found.lines[0].weights) == (Limits(600, 300), Limits(0, 0))
    with case(subtests, "none"):
        Link.objects.update(active=False)
        found = report(wide)
        assert (found.text, found.most, found.bottlenecks) == ("This AS has no active link.", Limits(0, 0), [])


# --- over REST, on the page, and in a terminal ----------------------------------------------------------------------


def test_page_and_rest_say_the_same(wide: UserAS, owner: User, client: Client) -> None:
    AttachmentPoint.objects.update(publishes_limits=True, uplink_kbit=700)
    Host.objects.update(limits_only=False)
    document = Client().get(
        f"/api/v1/ases/{wide.pk}/paths/", headers={"Authorization": f"Token {api_token(owner, may_write=False)}"}
    )
    assert document.status_code == 200, document.content
    found: dict[str, Any] = document.json()
    assert found["most"] == {"to_user_kbit": 1100, "from_user_kbit": 600}
    assert [one["published_kbit"] for one in found["links"]] == [300, 200, 100]
    assert [one["weights"]["to_user_kbit"] for one in found["links"]] == [3, 1, 2]
    packaged = json.loads(PACKAGED.read_text(encoding="utf-8"))
    assert packaged.keys() == found.keys()
    for name in ("links", "bottlenecks"):
        assert {tuple(one) for one in packaged[name]} == {tuple(found[name][0])}
    client.force_login(owner)
    Page(client.get(f"/ases/{wide.pk}/")).root.one("a", href=f"/ases/{wide.pk}/paths/")
    page = Page(client.get(f"/ases/{wide.pk}/paths/"))
    for text in (found["text"], *(one["text"] for one in found["bottlenecks"])):
        assert plain(text) in page.root.text
    assert "300 kbit/s in SCION's path metadata" in page.root.text


@pytest.mark.django_db(transaction=True)
def test_the_client_prints_it(
    wide: UserAS,
    owner: User,
    server: WebServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SCIONLAB_BW_URL", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("SCIONLAB_BW_TOKEN", api_token(owner))
    assert main(["paths", wide.isd_as]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("  ")[0].strip() == "LINK"
    first = lines[1].split()
    assert first[1:6] == ["17-ffaa:0:1107", "600", "300", "3", "-"]
    assert lines[2].split()[4:7] == ["1", "/", "2"]
    assert lines[5] == "The 3 active links together carry at most 1 200 kbit/s to the AS and 600 kbit/s from it."
    assert lines[6].startswith("The 2 links to 17-ffaa:0:1107 together carry at most 800 kbit/s")
    assert main(["paths", str(wide.pk), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["total"] == {"to_user_kbit": 1200, "from_user_kbit": 600}
    AttachmentPoint.objects.update(uplink_kbit=50_000)
    assert main(["paths", wide.isd_as]) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Link ")]
    assert [line.partition(": ")[2] for line in notes] == ["uplink of its attachment point 50 Mbit/s."] * 3
