"""Scripts at the same moment: one key does its work once, and of two changes for one state the second is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.core.cache import cache
from rest_framework.test import APIClient

from scionlab.accounts.api_token import api_token_create
from scionlab.accounts.models import User
from scionlab.testbed.models import AttachmentPoint, Link, UserAS
from scionlab.user_ases.rest import link_views
from scionlab.web.models import ApiRequest
from scionlab.web.rest import base
from tests.concurrency.conftest import AtOnce, MeetIn
from tests.factories import attach, spec


@pytest.fixture
def api(owner: User) -> APIClient:
    cache.clear()
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Token {api_token_create(user_id=owner.pk, name='test').text}")
    return client


def create(api: APIClient, ap: AttachmentPoint, number: int, key: str) -> Callable[[], Any]:
    body = {"attachments": [{"attachment_point_id": ap.pk, "public_ip": f"198.51.100.{number}"}]}
    return lambda: api.post("/api/v1/ases/", body, format="json", headers={"Idempotency-Key": key})


def test_with_it_it_is_done_once_and_all_get_the_same_answer(
    at_once: AtOnce, api: APIClient, ap: AttachmentPoint
) -> None:
    answers = at_once(*[create(api, ap, 30, "k")] * 4)
    assert [one.status_code for one in answers] == [201] * 4
    assert len({one.content for one in answers}) == 1
    assert sorted("Idempotency-Replayed" in one for one in answers) == [False, True, True, True]
    assert (UserAS.objects.count(), ApiRequest.objects.count()) == (1, 1)


OF_A_LINK = ({"to_user_kbit": 5}, {"from_user_kbit": 5})
OF_AN_AS = ({"label": "one"}, {"label": "two"})


@pytest.mark.parametrize(("url", "bodies"), [("links/{link}/", OF_A_LINK), ("ases/{user_as}/", OF_AN_AS)])
def test_with_it_the_second_is_refused(
    url: str,
    bodies: tuple[dict[str, Any], ...],
    at_once: AtOnce,
    api: APIClient,
    owner: User,
    ap: AttachmentPoint,
    meet_in: MeetIn,
) -> None:
    user_as = attach(owner, spec(ap))
    link = Link.objects.get(interface_b__AS=user_as.pk)
    url = f"/api/v1/{url.format(link=link.pk, user_as=user_as.pk)}"
    headers = {"If-Match": api.get(url)["ETag"]}
    meet_in(base, "check_if_match")
    answers = at_once(*(partial(api.patch, url, body, format="json", headers=headers) for body in bodies))
    assert sorted(one.status_code for one in answers) == [200, 412]


def test_two_directions_at_once_do_not_undo_each_other(
    at_once: AtOnce, api: APIClient, owner: User, ap: AttachmentPoint, meet_in: MeetIn
) -> None:
    link = Link.objects.get(interface_b__AS=attach(owner, spec(ap)).pk)
    meet_in(link_views, "_requested")
    url = f"/api/v1/links/{link.pk}/"
    at_once(
        lambda: api.patch(url, {"to_user_kbit": 5}, format="json"),
        lambda: api.patch(url, {"from_user_kbit": 7}, format="json"),
    )
    link.refresh_from_db()
    assert tuple(link.requested) == (5, 7)
