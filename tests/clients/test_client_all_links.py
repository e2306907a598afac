"""`scionlab-bw test AS --all-links`: what it asks for, prints and returns. Its ends run in tests/e2e/test_joint.py."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from scionlab.accounts.models import User
from scionlab.linktests.joint_test import joint_test_create
from scionlab.linktests.models import JointTest, LinkTest
from scionlab.testbed.models import AttachmentPoint, UserAS
from scionlab_bw import all_links
from tests.clients.test_client import Run, _own_folder, logged_in, run, url
from tests.factories import spec
from tests.joint_world import enforced, links_of, measured

__all__ = ["_own_folder", "logged_in", "run", "url"]  # the fixtures
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def wide(owner: User, ap: AttachmentPoint, ap_b: AttachmentPoint) -> UserAS:
    """A Link of 1000 kbit/s to `ap` and one of 500 to `ap_b`."""
    fast = spec(ap, public_ip="198.51.100.21", bandwidth_kbit=1000)
    return enforced(owner, fast, spec(ap_b, public_ip="198.51.100.22", bandwidth_kbit=500), label="Wide")


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """In place of the user's ends: both ends of each part report that it went well, or a person interrupts."""
    told: dict[str, Any] = {"interrupt": False, "parts": []}

    def run_ends(_service: object, parts: list[dict[str, Any]], _arguments: object) -> Iterator[str]:
        told["parts"] = parts
        if told["interrupt"]:
            raise KeyboardInterrupt
        measured(JointTest.objects.get())
        yield "Link 7: as if."

    monkeypatch.setattr(all_links, "_run_ends", run_ends)
    return told


def test_it_prints_what_passed_alone_and_together_of_each_link_and_of_all(
    run: Run, logged_in: str, wide: UserAS, ends: dict[str, Any]
) -> None:
    code, out, err = run("test", wide.isd_as, "--all-links")
    assert (code, err) == (0, ""), out
    made = JointTest.objects.get()
    lines = out.splitlines()
    assert lines[0].startswith(f"Joint test {made.pk} of 2 links from ")
    assert len(ends["parts"]) == 4
    assert "To your AS: together the 2 links passed 1 482 kbit/s of 1 500 kbit/s (99 %)" in out
    first, _ = links_of(wide)
    table = lines[lines.index("To your AS [kbit/s]") + 1 :][:4]
    assert table[0].split("  ")[0] == "LINK"
    assert table[1].split() == [str(first.pk), "17-ffaa:0:1107", "992", "992", "1", "000", "992", "33.6", "%"]
    assert table[3].split() == ["sum", "1", "482", "1", "482", "1", "500", "1", "482", "33.7", "%"]


def test_interrupted_all_of_it_is_cancelled(run: Run, logged_in: str, wide: UserAS, ends: dict[str, Any]) -> None:
    ends["interrupt"] = True
    assert run("test", wide.isd_as, "--all-links")[0] == 130
    assert JointTest.objects.get().cancelled_at is not None
    assert not LinkTest.objects.filter(cancelled_at=None).exists()


def test_one_that_was_scheduled_on_the_page(
    run: Run, logged_in: str, wide: UserAS, owner: User, ends: dict[str, Any]
) -> None:
    made = joint_test_create(user_as_id=wide.pk, actor=owner, begins_at=timezone.now() + timedelta(hours=1))
    code, out, _ = run("test", wide.isd_as, "--all-links", "--id", str(made.pk))
    assert (code, JointTest.objects.count()) == (0, 1), out
    other = enforced(owner, spec(AttachmentPoint.objects.first(), public_ip="198.51.100.23"), label="other")
    code, _, err = run("test", other.isd_as, "--all-links", "--id", str(made.pk))
    assert (code, err) == (2, f"scionlab-bw: Joint test {made.pk} is not one of {other.isd_as}.\n")


def test_wrong_input_and_refusals_have_their_exit_codes(
    run: Run, logged_in: str, wide: UserAS, ends: dict[str, Any]
) -> None:
    assert run("test", wide.isd_as, "--all-links", "--set", "percent=3")[0] == 2
    code, _, err = run("test", wide.isd_as, "--all-links", "--set", "seconds=99")
    assert (code, "99 s for each direction are outside 3 to 20 s" in err) == (1, True)
    assert not JointTest.objects.exists()


def test_own_address_is_taken_where_this_host_has_it() -> None:
    assert all_links._own_address({"public_ip": "127.0.0.2", "bind_ip": None}) == "127.0.0.2"
    assert all_links._own_address({"public_ip": "198.51.100.7", "bind_ip": "127.0.0.3"}) == "127.0.0.3"
    assert all_links._own_address({"public_ip": "198.51.100.7", "bind_ip": None}) is None
