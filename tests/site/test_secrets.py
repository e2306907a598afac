"""Hosts' secrets: the former one is accepted for a while or not at all, as administrators choose; enrolment tokens."""

from __future__ import annotations

import io
import json
import logging
import tarfile
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from scionlab.accounts.models import User
from scionlab.delivery.models import EnrolmentToken
from scionlab.testbed.host import host_rotate_secret
from scionlab.testbed.models import Host
from scionlab.testbed.models.host import secret_fits
from tests.admin_pages import CHANGE, LIST, page, versions
from tests.cases import table
from tests.delivery.test_host_api import basic, poll

pytestmark = pytest.mark.django_db

GRACE = timedelta(hours=24)
NOW = timezone.now()


def rotate(host: Host, actor: User) -> str:
    """The new secret; `host` stays as it was read."""
    host_rotate_secret(host_id=host.pk, actor=actor)
    return Host.objects.get(pk=host.pk).secret


def is_accepted(host: Host, secret: str) -> bool:
    status = poll(host, headers=basic(host.uid, secret)).status_code
    assert status in {200, 401}
    return status == 200


def test_only_one_former_secret_is_kept(host: Host, staff: User) -> None:
    first = host.secret
    second = rotate(host, staff)
    third = rotate(host, staff)
    assert [is_accepted(host, one) for one in (first, second, third)] == [False, True, True]


def test_grace_time_is_a_setting(host: Host, staff: User, settings: Any) -> None:
    settings.SECRET_GRACE_HOURS = 3
    rotate(host, staff)
    until = Host.objects.get(pk=host.pk).previous_secret_until
    assert until is not None
    assert abs(until - timezone.now() - timedelta(hours=3)) < timedelta(minutes=1)


@table(
    ("given", "previous", "until", "fits"),
    [
        (b"new", "old", None, True),
        (b"old", "old", None, False),
        (b"old", "old", NOW + timedelta(seconds=1), True),
        (b"old", "old", NOW, False),
        (b"", "", NOW + GRACE, False),
        (b"other", "old", NOW + GRACE, False),
        (b"\xff", "old", NOW + GRACE, False),
    ],
)
def test_what_fits(given: bytes, previous: str, until: Any, fits: bool) -> None:
    assert secret_fits(given, secret="new", previous=previous, previous_until=until, now=NOW) is fits


def test_agent_hears_of_its_new_secret_with_the_former_one(host: Host, staff: User) -> None:
    """L rises, so a poll with the former secret is answered with the configuration that carries the new one."""
    host.refresh_from_db()
    had = f"?version=1.{host.config_version}&limits={host.limits_version}"
    headers = basic(host.uid, host.secret)
    assert poll(host, had, headers=headers).status_code == 304
    new = rotate(host, staff)
    answer = poll(host, had, headers=headers)
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as tar:
        file = tar.extractfile("scionlab-config.json")
        assert file is not None
        assert json.load(file)["host_secret"] == new


# --- the pages ----------------------------------------------------------------------------------------------


def rotate_by_page(door: Client, host: Host, how: str | None, *, from_list: bool) -> HttpResponse:
    choice = {} if how is None else {"how": how}
    if from_list:
        data = {"action": "rotate_secret", "_selected_action": [host.pk], **choice}
        return door.post(page(Host, LIST), data, follow=True)  # type: ignore[return-value]
    return door.post(page(Host, "rotate", host.pk), choice, follow=True)  # type: ignore[return-value]


@table("from_list", [True, False])
@table(
    ("how", "former_fits", "config_rises", "said"),
    [
        ("keep", True, 0, "have a new secret. The previous one stays valid for 24 hours."),
        ("restart", True, 1, "have a new secret, which stock clients fetch now."),
        ("stolen", False, 0, "The previous one is revoked: enrol them again."),
    ],
)
def test_administrator_chooses_how(
    door: Client, host: Host, from_list: bool, how: str, former_fits: bool, config_rises: int, said: str
) -> None:
    ((config, limits),) = versions(host)
    answer = rotate_by_page(door, host, how, from_list=from_list)
    assert said in answer.content.decode()
    assert Host.objects.get(pk=host.pk).secret != host.secret
    assert is_accepted(host, host.secret) is former_fits
    assert versions(host) == [(config + config_rises, limits + 1)]


@table("from_list", [True, False])
@table("how", [None, "", "whatever"])
def test_nothing_is_rotated_without_a_choice(door: Client, host: Host, from_list: bool, how: str | None) -> None:
    before = Host.objects.values().get(pk=host.pk)
    text = rotate_by_page(door, host, how, from_list=from_list).content.decode()
    assert "Revoke the stolen secret" in text
    assert "restarts SCION and OpenVPN" in text, "the page says what each choice does to the stock client"
    assert Host.objects.values().get(pk=host.pk) == before


def test_rotation_is_in_the_history_without_the_secret(
    door: Client, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    rotate_by_page(door, host, "stolen", from_list=False)
    new = Host.objects.get(pk=host.pk).secret
    assert [one.change_message for one in LogEntry.objects.all()] == ["Rotated the secret (revoke the stolen secret)."]
    for secret in (host.secret, new):
        assert secret not in caplog.text


# --- the enrolment token on the page ------------------------------------------------------------------------


def token_in(answer: HttpResponse) -> str:
    text = answer.content.decode()
    (token,) = {word for word in text.replace("<", " ").replace(">", " ").split() if word.startswith("slbw1.")}
    assert text.count(token) == 1
    return token


def test_token_is_shown_in_the_answer_and_nowhere_ever_again(
    door: Client, host: Host, staff: User, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    settings.SITE_URL = "https://lab.example.org"
    answer = door.post(page(Host, "enrol", host.pk))
    assert answer.status_code == 200, "no redirect that would carry it"
    assert "no-store" in answer["Cache-Control"]
    token = token_in(answer)
    assert "sudo scionlab-bw-agent enrol https://lab.example.org<" in answer.content.decode()
    random = token.split(".")[1]
    pages = [page(Host, what, host.pk) for what in ("agent", CHANGE, "history")]
    pages += [page(EnrolmentToken, LIST), page(EnrolmentToken, CHANGE, EnrolmentToken.objects.get().pk)]
    elsewhere = [
        str(dict(door.session)),
        str(answer.cookies),
        str(LogEntry.objects.values_list()),
        str(EnrolmentToken.objects.values_list()),
        caplog.text,
        *(door.get(url).content.decode() for url in pages),
    ]
    assert [one for one in elsewhere if random in one] == []
    assert [(one.user, one.change_message) for one in LogEntry.objects.all()] == [
        (staff, "Created an enrolment token.")
    ]
    body = json.dumps({"token": random})
    enrolled = Client().post("/api/v4/enrol", body, content_type="application/json")
    assert enrolled.json()["host_secret"] == host.secret


def test_token_is_not_made_by_following_a_link(door: Client, host: Host) -> None:
    assert door.get(page(Host, "enrol", host.pk)).status_code == 405
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = door.cookies
    assert strict.post(page(Host, "enrol", host.pk)).status_code == 403
    assert not EnrolmentToken.objects.exists()


def test_host_without_as_gets_no_token_and_is_told_why(door: Client) -> None:
    host = Host.objects.create(label="spare")
    assert "belongs to no AS" in door.post(page(Host, "enrol", host.pk), follow=True).content.decode()
