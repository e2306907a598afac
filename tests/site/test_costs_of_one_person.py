"""What one person may make the service do: read their own rows, and two dear requests at once."""

from __future__ import annotations

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from scionlab.accounts.models import User
from scionlab.testbed.models import AttachmentPoint
from scionlab.testbed.selectors import links_of
from tests.factories import attach, spec

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("asked", ["state=waiting", "stage=waiting"])
def test_the_state_of_ones_links_reads_nobody_elses(
    owner: User, stranger: User, ap: AttachmentPoint, ap_b: AttachmentPoint, client: Client, asked: str
) -> None:
    attach(owner, spec(ap))
    attach(stranger, spec(ap_b, public_ip="198.51.100.9"))
    client.force_login(owner)
    with CaptureQueriesContext(connection) as statements:
        answer = client.get(f"/api/v1/links/?{asked}")
    assert len(answer.json()["results"]) <= 1
    of_links = [one["sql"] for one in statements if '"testbed_link"' in one["sql"]]
    assert len(of_links) >= 3
    assert [sql for sql in of_links if f'"owner_id" = {owner.pk}' not in sql] == []


@pytest.mark.parametrize(
    "door",
    [
        "/api/v1/links/{link}/usage/?step=10s",
        "/ases/{user_as}/links/{link}/usage.csv",
        "/ases/{user_as}/links/{link}/why/",
    ],
)
def test_a_person_has_two_dear_requests_running(owner: User, teammate: User, ap: AttachmentPoint, door: str) -> None:
    cache.clear()
    paths = {}
    for person, address in ((owner, "198.51.100.7"), (teammate, "198.51.100.8")):
        user_as = attach(person, spec(ap, public_ip=address))
        paths[person] = door.format(user_as=user_as.pk, link=links_of(user_as)[0].pk)
    for number in range(2):
        cache.set(f"dear:{owner.pk}:{number}", 1, 30)

    def get(person: User) -> tuple[int, str, str]:
        browser = Client()
        browser.force_login(person)
        answer = browser.get(paths[person])
        return answer.status_code, answer.get("Retry-After", ""), answer.content.decode()

    status, after, text = get(owner)
    assert (status, after) == (429, "1")
    assert "You have 2 requests of this kind running." in text
    assert get(teammate)[0] == 200, "others are not held up"
    cache.delete(f"dear:{owner.pk}:1")
    assert [get(owner)[0], get(owner)[0]] == [200, 200], "each gives its place back"


def test_the_page_of_a_link_has_no_plots_while_two_dear_requests_run(owner: User, ap: AttachmentPoint) -> None:
    cache.clear()
    user_as = attach(owner, spec(ap))
    browser = Client()
    browser.force_login(owner)
    page = f"/ases/{user_as.pk}/links/{links_of(user_as)[0].pk}/"
    busy, empty = "You have 2 requests of this kind running.", "No data for this period"
    for running, shown in ((2, True), (1, False)):
        cache.clear()
        for number in range(running):
            cache.set(f"dear:{owner.pk}:{number}", 1, 30)
        answer = browser.get(page)
        text = answer.content.decode()
        assert (running, answer.status_code, busy in text, empty in text) == (running, 200, shown, not shown)
