"""What the maximum means, at every door: a number that is new must not be above it, one that is stored may stay."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from bandwidth_config import Limits
from scionlab.accounts.models import User
from scionlab.limits.profiles import constant
from scionlab.limits.timed_limit import timed_limit_create
from scionlab.limits.update import link_update
from scionlab.platform.field_errors import FieldRuleError
from scionlab.testbed.models import AttachmentPoint, Link, TimedLimit, UserAS
from tests.cases import table
from tests.factories import save, spec
from tests.support.html import Page

MAXIMUM = 300
BOTH, TO_USER, FROM_USER = "bandwidth_kbit", "bandwidth_kbit", "from_user_kbit"

# Stored before the maximum was lowered to 300, what is asked for now, and the fields that refuse it.
CASES: dict[str, tuple[tuple[int, int], tuple[int, int], set[str]]] = {
    "the same as is stored": ((1000, 200), (1000, 200), set()),
    "another number beside a clamped one": ((1000, 200), (1000, 100), set()),
    "a clamped number in the other direction too": ((1000, 200), (1000, 1000), {BOTH}),
    "the directions exchanged": ((1000, 200), (200, 1000), {FROM_USER}),
    "less in both directions, but still above": ((1000, 1000), (999, 999), {BOTH}),
    "two numbers that are above": ((200, 200), (400, 500), {TO_USER, FROM_USER}),
    "the maximum": ((1000, 200), (300, 300), set()),
    "one above the maximum": ((200, 100), (301, 100), {TO_USER}),
    "one above the maximum from the user AS": ((200, 100), (200, 301), {FROM_USER}),
}


@pytest.fixture
def place(link: Link, user_as: UserAS, owner: User, staff: User) -> Place:
    return Place(link, user_as, owner, staff)


class Place:
    """One Link that is stored with some limits, and its doors; each answers with the fields that refuse."""

    def __init__(self, link: Link, user_as: UserAS, owner: User, staff: User) -> None:
        self.link, self.user_as, self.owner, self.staff = link, user_as, owner, staff
        self.ap = AttachmentPoint.objects.get(AS=link.interface_a.AS_id)
        self.page, self.admin = Client(), Client()
        self.page.force_login(owner)
        self.admin.force_login(staff)

    def store(self, limits: Limits) -> None:
        other = None if limits.is_symmetric else limits.from_user_kbit
        Link.objects.filter(pk=self.link.pk).update(bandwidth_kbit=limits.to_user_kbit, from_user_kbit=other)
        AttachmentPoint.objects.update(default_bandwidth_kbit=MAXIMUM, maximum_kbit=MAXIMUM)

    def stored(self) -> Limits:
        return Link.objects.get(pk=self.link.pk).requested

    def service(self, new: Limits) -> set[str]:
        return refused_by(lambda: link_update(link_id=self.link.pk, limits=new, actor=self.owner))

    def service_of_the_as(self, new: Limits) -> set[str]:
        other = None if new.is_symmetric else new.from_user_kbit
        one = spec(self.ap, bandwidth_kbit=new.to_user_kbit, from_user_kbit=other, link_id=self.link.pk)
        return refused_by(lambda: save(self.user_as, one, actor=self.owner))

    def page_of_the_link(self, new: Limits) -> set[str]:
        data = {f"link-{self.link.pk}-{name}": value for name, value in typed(new).items()}
        url = f"/ases/{self.user_as.pk}/links/{self.link.pk}/bandwidth/"
        response = self.page.post(url, data)
        return set() if response.status_code == 302 else set(response.context["form"].errors)

    def edit_page(self, new: Limits) -> set[str]:
        url = f"/ases/{self.user_as.pk}/edit/"
        data = {f"attachments-0-{name}": value for name, value in typed(new).items()}
        response = self.page.post(url, Page(self.page.get(url)).post_data() | data | {"save": "1"})
        return set() if response.status_code == 302 else set(response.context["editor"].rows[0].errors)

    def patch(self, new: Limits) -> set[str]:
        names = {"to_user_kbit": new.to_user_kbit, "from_user_kbit": new.from_user_kbit}
        sent = {"bandwidth_kbit": new.to_user_kbit} if new.is_symmetric else names
        response = self.page.patch(f"/api/v1/links/{self.link.pk}/", sent, content_type="application/json")
        fields = set() if response.status_code == 200 else set(response.json()["fields"])
        return {{"to_user_kbit": TO_USER}.get(name, name) for name in fields}

    def administrators(self, new: Limits) -> set[str]:
        data = {"bandwidth_kbit": str(new.to_user_kbit), "active": "on", "reason": ""}
        response = self.admin.post(f"/admin/testbed/link/{self.link.pk}/change/", data)
        return set() if response.status_code == 302 else set(response.context["adminform"].form.errors)


def typed(limits: Limits) -> dict[str, str]:
    return {
        "bandwidth_kbit": str(limits.to_user_kbit),
        "from_user_kbit": "" if limits.is_symmetric else str(limits.from_user_kbit),
    }


def refused_by(service: Callable[[], object]) -> set[str]:
    try:
        service()
    except FieldRuleError as exc:
        return {exc.field}
    return set()


DOORS = ("service", "service_of_the_as", "page_of_the_link", "edit_page", "patch", "administrators")
FIRST_ERROR = {"service", "service_of_the_as", "page_of_the_link", "patch"}  # they stop at the first


# What shows that a door asks the rule, knows what is stored, and tells the field; the services have every case.
AT_EVERY_DOOR = {
    "the same as is stored",
    "another number beside a clamped one",
    "less in both directions, but still above",
    "the directions exchanged",
    "two numbers that are above",
    "the maximum",
}
TABLE = [
    (name, door)
    for name, (_, new, _) in CASES.items()
    for door in DOORS
    # The administrators' page has one number for both directions.
    if (door != "administrators" or Limits(*new).is_symmetric) and (name in AT_EVERY_DOOR or door.startswith("service"))
]


@table(("name", "door"), TABLE)
def test_every_door_judges_a_number_alike(name: str, door: str, place: Place) -> None:
    old, new, fields = Limits(*CASES[name][0]), Limits(*CASES[name][1]), CASES[name][2]
    place.store(old)
    found = getattr(place, door)(new)
    if door in FIRST_ERROR and fields:
        assert len(found) == 1
        assert found <= fields
    else:
        assert found == fields
    assert place.stored() == (old if fields else new)


@table(("limits", "fields"), [((300, 0), set()), ((301, 0), {"steps"}), ((0, 1000), {"steps"})])
def test_a_timed_limit_is_new_whatever_is_stored(limits: tuple[int, int], fields: set[str], place: Place) -> None:
    place.store(Limits(1000, 1000))
    profile = constant(Limits(*limits), 60)
    refused = refused_by(
        lambda: timed_limit_create(link_id=place.link.pk, profile=profile, begins_at=None, actor=place.owner)
    )
    assert refused == fields
    assert TimedLimit.objects.count() == (0 if fields else 1)


def test_nobody_learns_the_stored_limit_of_another_persons_link_while_typing(
    place: Place, stranger: User, staff: User
) -> None:
    """The stored number, above the maximum of 300, is accepted from its owner and from administrators alone."""
    place.store(Limits(1000, 1000))
    row = {"bandwidth_kbit": 1000, "link_id": place.link.pk, "attachment_point": place.ap.pk}
    query = {"row": "a", **{f"a-{name}": value for name, value in row.items()}}
    page = Client()
    for person, is_refused in ((place.owner, False), (stranger, True), (staff, False)):
        page.force_login(person)
        response = page.get("/ases/preview/", query)
        assert bool(response.context["row"].limit_errors) == is_refused


def test_an_attachment_that_goes_to_another_attachment_point_brings_no_clamped_number_along(
    place: Place, ap_b: AttachmentPoint
) -> None:
    place.store(Limits(1000, 1000))
    moved = spec(ap_b, bandwidth_kbit=1000, link_id=place.link.pk)
    assert refused_by(lambda: save(place.user_as, moved, actor=place.owner)) == {"bandwidth_kbit"}
    assert place.stored() == Limits(1000, 1000)
