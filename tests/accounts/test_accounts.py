"""Accounts: who asks for one, another address or a password learns nothing of others, and each link works once."""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.core import mail as outbox
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings

from bandwidth_config import RuleError
from scionlab.accounts import account
from scionlab.accounts.account import account_delete, email_change
from scionlab.accounts.mail_links import unsubscribe_link
from scionlab.accounts.models import ApiToken, Mail, MailKind, User
from scionlab.accounts.tasks import send_mail
from scionlab.limits.update import link_set_bandwidth
from scionlab.platform.log_lines import Line
from scionlab.testbed.models import BandwidthChange, Link, UserAS
from scionlab.user_ases.user_as import user_as_delete
from tests.cases import table
from tests.factories import PASSWORD, UserFactory, api_token
from tests.support.html import Page

pytestmark = pytest.mark.django_db

NEW_PASSWORD = "a long new phrase"
FORM = {"full_name": "New Person", "password1": NEW_PASSWORD, "password2": NEW_PASSWORD}


def deliver() -> list[Any]:
    """What the worker and the mail server do; returns the mails sent by it."""
    before = len(outbox.outbox)
    for mail in Mail.objects.filter(sent_at=None):
        send_mail(mail.pk)
    return list(outbox.outbox[before:])


def path_in(mail: Any, settings: Settings) -> str:
    """The one link of a mail, as a browser opens it."""
    (found,) = re.findall(
        rf"{re.escape(settings.SITE_URL)}(/account/(?:confirm|reset)/[^/\s]+/(?:[^/\s]+/)?)", mail.body
    )
    return str(found)


def ask(name: str, email: str, client: Client | None = None, **extra: Any) -> Any:
    return (client or Client()).post(f"/account/{name}/", {"email": email}, **extra)


def opened(path: str) -> Client:
    """A browser that followed the link of a mail."""
    browser = Client()
    answer = browser.get(path)
    assert (answer.status_code, answer["Location"]) == (302, "/account/confirm/")
    assert answer["Referrer-Policy"] == "no-referrer"
    return browser


def registered(email: str, settings: Settings) -> Client:
    ask("register", email)
    (mail,) = deliver()
    assert mail.to == [email]
    return opened(path_in(mail, settings))


# --- registration ---------------------------------------------------------------------------------------------


def test_who_confirms_their_address_gets_an_account_and_may_log_in(settings: Settings) -> None:
    assert ask("register", "New@Example.org")["Location"] == "/account/register/sent/"
    assert not User.objects.exists()
    (mail,) = deliver()
    assert mail.to == ["new@example.org"]
    browser = opened(path_in(mail, settings))
    assert "new@example.org" in Page(browser.get("/account/confirm/")).text
    assert not User.objects.exists(), "mail programs open links by themselves"
    assert browser.post("/account/confirm/", FORM)["Location"] == "/"
    user = User.objects.get()
    assert (user.email, user.full_name, user.is_staff, user.as_quota) == ("new@example.org", "New Person", False, 5)
    assert browser.session["_auth_user_id"] == str(user.pk)
    answer = Client().post("/login/", {"username": "new@example.org", "password": NEW_PASSWORD})
    assert answer["Location"] == "/ases/"


def test_link_works_once_and_not_after_its_day(settings: Settings) -> None:
    ask("register", "new@example.org")
    (mail,) = deliver()
    path = path_in(mail, settings)
    first, second = opened(path), opened(path)
    assert second.get("/account/confirm/").status_code == 200
    assert first.post("/account/confirm/", FORM).status_code == 302
    assert second.post("/account/confirm/", FORM).status_code == 410
    assert opened(path).get("/account/confirm/").status_code == 410
    late = registered("late@example.org", settings)
    Mail.objects.update(created_at=timezone.now() - timedelta(hours=24))
    assert late.post("/account/confirm/", FORM).status_code == 410
    assert User.objects.count() == 1


def test_link_of_a_request_that_a_restored_database_forgot_opens_no_other(settings: Settings) -> None:
    """Keys are given out again then, for other addresses."""
    ask("register", "first@example.org")
    (mail,) = deliver()
    Mail.objects.update(recipient="second@example.org")
    assert opened(path_in(mail, settings)).get("/account/confirm/").status_code == 410


@table("token", ["x", "a:b:c", "WzEsIngiXQ:1vMF0s:forged"])
def test_forged_link_is_one_that_is_not_good_any_more(token: str) -> None:
    browser = opened(f"/account/confirm/{token}/")
    assert Session.objects.count() == 0
    assert browser.get("/account/confirm/").status_code == 410
    assert Client().get(f"/account/mails/{token}/").status_code == 410
    assert Client().get(f"/account/reset/MQ/{token}/").status_code == 410


def test_link_for_one_thing_does_no_other(owner: User, settings: Settings) -> None:
    ask("register", "new@example.org")
    (mail,) = deliver()
    token = path_in(mail, settings).split("/")[3]
    with pytest.raises(RuleError, match="has been used"):
        email_change(token=token)
    assert Client().get(f"/account/mails/{token}/").status_code == 410
    assert Mail.objects.get().used_at is None


def test_a_weak_password_is_refused_and_the_link_stays_good(settings: Settings) -> None:
    browser = registered("somebody.long@example.org", settings)
    for password, said in (("12345678", "too common"), ("somebody.long", "too similar to the email address")):
        page = Page(browser.post("/account/confirm/", {"password1": password, "password2": password}))
        assert said in page.text
    assert not User.objects.exists()
    assert browser.post("/account/confirm/", FORM).status_code == 302


# --- nobody learns who has an account -------------------------------------------------------------------------


@table("name", ["register", "reset"])
def test_an_address_with_an_account_is_answered_like_any_other(owner: User, name: str) -> None:
    """Text, status, headers and work: the same statements."""

    def answered(email: str) -> tuple[Any, ...]:
        with CaptureQueriesContext(connection) as statements:
            answer = ask(name, email, REMOTE_ADDR="198.51.100.8")
        sql = [re.sub(r"'[^']*'|\d+", "?", one["sql"]) for one in statements]  # before the next request forgets them
        shown = Client().get(answer["Location"])
        return answer.status_code, answer["Location"], answer.content, Page(shown).text, sql

    switched_off = UserFactory(email="off@example.org", is_active=False)
    known, unknown, off = (answered(one) for one in (owner.email, "nobody@example.org", switched_off.email))
    assert known == unknown == off
    assert 2 <= len(known[-1]) <= 5
    assert not any("accounts_user" in sql for sql in known[-1]), "the request never looks at accounts"


def test_only_the_address_itself_is_told_that_it_has_an_account(owner: User) -> None:
    ask("register", "OWNER@example.org")
    (mail,) = deliver()
    assert mail.to == [owner.email]
    assert "/account/confirm/" not in mail.body
    ask("reset", "nobody@example.org")
    UserFactory(email="off@example.org", is_active=False)
    ask("reset", "off@example.org")
    assert deliver() == []


@pytest.mark.parametrize("name", ["register", "reset"])
@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ('"a\x0bb"@example.org', "This is not an email address."),
        ('"a\x0cBcc:b"@example.org', "This is not an email address."),
        # Each of its 126 letters is two in lower case.
        ("a@" + ".".join(["\u0130" * 18] * 7) + ".org", "at most 254 characters"),
    ],
)
def test_an_address_that_no_mail_can_name_is_refused(name: str, address: str, sentence: str) -> None:
    answer = ask(name, address)
    assert (answer.status_code, Mail.objects.count()) == (200, 0)
    assert sentence in Page(answer).root.one("main").text


def test_an_address_gets_few_mails_and_nobody_is_told(owner: User) -> None:
    answers = [ask("reset", owner.email, REMOTE_ADDR=f"198.51.100.{n}") for n in range(5)]
    assert {(one.status_code, one["Location"]) for one in answers} == {(302, "/account/reset/sent/")}
    assert len(deliver()) == account.REQUESTS_PER_EMAIL == 3
    Mail.objects.update(created_at=timezone.now() - timedelta(hours=1, seconds=1))
    ask("reset", owner.email)
    assert len(deliver()) == 1


def test_who_asks_for_accounts_in_somebodys_name_keeps_no_new_password_from_them(owner: User) -> None:
    for number in range(5):
        ask("register", owner.email, REMOTE_ADDR=f"198.51.100.{number}")
    ask("reset", owner.email)
    assert [mail.subject for mail in deliver()].count("Choose a new password") == 1


def test_a_network_that_asks_for_many_is_sent_away_for_a_while(settings: Settings) -> None:
    settings.ACCOUNT_REQUESTS_PER_ADDRESS = 3
    for number in range(3):
        assert ask("register", f"p{number}@example.org", REMOTE_ADDR=f"2001:db8:1:2::{number}").status_code == 302
    refused = ask("reset", "p9@example.org", REMOTE_ADDR="2001:db8:1:2::ff")
    assert (refused.status_code, refused["Retry-After"]) == (429, "3600")
    assert "Too many email requests" in Page(refused).text
    assert ask("reset", "p9@example.org", REMOTE_ADDR="2001:db8:1:3::1").status_code == 302


@pytest.mark.parametrize(("step", "most"), [(1, 6), (256, 12)])
def test_a_network_of_many_64_is_sent_away_too(settings: Settings, step: int, most: int) -> None:
    """A /56 and a /48: twice and four times 3."""
    settings.ACCOUNT_REQUESTS_PER_ADDRESS = 3
    answers = [
        ask("register", f"p{number}@example.org", REMOTE_ADDR=f"2001:db8:1:{number * step:x}::1").status_code
        for number in range(20)
    ]
    assert answers == [302] * most + [429] * (20 - most)
    assert ask("register", "p99@example.org", REMOTE_ADDR="2001:db8:2::1").status_code == 302


def test_the_site_has_a_hundred_unconfirmed_registrations_an_hour(settings: Settings) -> None:
    def register(number: int) -> int:
        return int(ask("register", f"p{number}@example.org", REMOTE_ADDR=f"10.0.{number}.1").status_code)

    assert [register(number) for number in range(110)] == [302] * 100 + [429] * 10
    assert ask("reset", "p1@example.org", REMOTE_ADDR="10.1.0.1").status_code == 302, "other mails go on"
    Mail.objects.filter(recipient="p7@example.org").update(used_at=timezone.now())
    assert [register(200), register(201)] == [302, 429]


# --- rules of the site ----------------------------------------------------------------------------------------


def test_registration_can_be_closed_also_for_who_has_a_link(settings: Settings) -> None:
    browser = registered("early@example.org", settings)
    settings.REGISTRATION_OPEN = False
    for page in (Client().get("/account/register/"), ask("register", "new@example.org")):
        assert "Ask the administrators for an account." in Page(page).text
    assert "Ask the administrators" in Page(browser.post("/account/confirm/", FORM)).text
    assert not User.objects.exists()
    assert Mail.objects.count() == 1


def test_registration_can_be_for_some_domains(settings: Settings) -> None:
    settings.REGISTRATION_DOMAINS = ["example.org"]
    page = Page(ask("register", "me@example.com"))
    assert "Addresses of example.com cannot register. Use one of example.org" in page.beside("Email address")
    assert ask("register", "me@Example.org").status_code == 302


# --- password reset -------------------------------------------------------------------------------------------


def test_forgotten_password_is_replaced_once_and_ends_what_the_old_one_opened(owner: User, settings: Settings) -> None:
    token = api_token(owner)
    deliver()  # the mail about the token
    ask("reset", owner.email)
    (mail,) = deliver()
    assert mail.subject == "Choose a new password"
    path = path_in(mail, settings)
    browser = Client()
    there = browser.get(path)["Location"]
    assert there.endswith("/set-password/")
    new = {"new_password1": NEW_PASSWORD, "new_password2": NEW_PASSWORD}
    assert browser.post(there, new)["Location"] == "/login/"
    assert Client().get(path).status_code == 410
    assert Client().get("/api/v1/links/", headers={"Authorization": f"Token {token}"}).status_code == 401
    answer = browser.post("/login/", {"username": owner.email, "password": NEW_PASSWORD})
    assert answer["Location"] == "/ases/"


# --- links stay secret ----------------------------------------------------------------------------------------


def test_links_are_in_mails_only(owner: User, settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    """Not in the database, the log, or what the pages show; Django logs paths that it refuses."""
    caplog.set_level(logging.DEBUG)
    ask("register", "new@example.org")
    ask("reset", owner.email)
    mails = deliver()
    secrets = [path_in(mail, settings).rstrip("/").rsplit("/")[-1] for mail in mails]
    for mail in mails:
        Client().put(path_in(mail, settings))
        opened(path_in(mail, settings)).get("/account/confirm/") if "/confirm/" in path_in(mail, settings) else None
    stored = str(list(Mail.objects.values()))
    line = Line("%(message)s")
    logged = "\n".join(line.format(one) for one in caplog.records if not one.name.startswith("django.db"))
    assert "Method Not Allowed (PUT): /account/confirm/..." in logged
    for secret in secrets:
        assert secret not in stored
        assert secret not in logged


def test_mail_that_waited_until_its_link_is_over_is_not_sent() -> None:
    ask("register", "new@example.org")
    Mail.objects.update(created_at=timezone.now() - timedelta(hours=24))
    assert deliver() == []
    assert Mail.objects.get().last_error == "not sent: its link is no longer valid"


# --- profile and address --------------------------------------------------------------------------------------


@pytest.fixture
def browser(owner: User) -> Client:
    client = Client()
    client.force_login(owner)
    return client


def test_profile_keeps_name_zone_and_mail_choices(browser: Client, owner: User) -> None:
    data = {"full_name": "Anna", "time_zone": "Europe/Zurich", "mails": ["away", "failed"]}
    assert browser.post("/account/", data).status_code == 302
    owner.refresh_from_db()
    assert (owner.full_name, str(owner.tz)) == ("Anna", "Europe/Zurich")
    assert owner.mail_opt_outs == ["changed", "clamped", "enforced", "tested"]
    refused = Page(browser.post("/account/", {**data, "time_zone": "Mars/Base"}))
    assert '"Mars/Base" is not a time zone.' in refused.text


def test_new_address_is_confirmed_there_and_the_old_one_is_told(
    browser: Client, owner: User, settings: Settings
) -> None:
    data = {"email": "New@example.org", "password": PASSWORD}
    assert browser.post("/account/email/", data)["Location"] == "/account/"
    told, asked = sorted(deliver(), key=lambda mail: mail.to != [owner.email])
    assert (told.to, "to new@example.org" in told.body) == (["owner@example.org"], True)
    assert asked.to == ["new@example.org"]
    reader = opened(path_in(asked, settings))
    assert "owner@example.org" in Page(reader.get("/account/confirm/")).text
    owner.refresh_from_db()
    assert owner.email == "owner@example.org"
    assert reader.post("/account/confirm/").status_code == 302
    owner.refresh_from_db()
    assert owner.email == "new@example.org"
    (done,) = deliver()
    assert (done.to, "new@example.org" in done.body) == (["owner@example.org"], True)


def test_no_address_keeps_the_old_one_from_being_told(browser: Client, owner: User, settings: Settings) -> None:
    browser.post("/account/email/", {"email": "{link}@example.org", "password": PASSWORD})
    asked = next(mail for mail in deliver() if mail.to != [owner.email])
    assert len([mail for mail in outbox.outbox if mail.to == [owner.email]]) == 1
    opened(path_in(asked, settings)).post("/account/confirm/")
    (done,) = deliver()
    assert (done.to, "{link}@example.org" in done.body) == (["owner@example.org"], True)


def test_link_for_a_new_password_goes_to_no_former_address(browser: Client, owner: User) -> None:
    ask("reset", owner.email)
    User.objects.update(email="new@example.org")
    assert deliver() == []


def test_address_of_somebody_else_is_not_taken_and_not_told(
    browser: Client, owner: User, teammate: User, settings: Settings
) -> None:
    answer = browser.post("/account/email/", {"email": teammate.email, "password": PASSWORD})
    assert answer["Location"] == "/account/"
    mails = {mail.to[0]: mail for mail in deliver()}
    assert set(mails) == {owner.email, teammate.email}
    assert "/account/confirm/" not in mails[teammate.email].body
    assert "tried to register" not in mails[teammate.email].body
    browser.post("/account/email/", {"email": "free@example.org", "password": PASSWORD})
    asked = next(mail for mail in deliver() if mail.to == ["free@example.org"])
    reader = opened(path_in(asked, settings))
    UserFactory(email="free@example.org")
    assert "An account with the address free@example.org already exists." in Page(reader.post("/account/confirm/")).text
    owner.refresh_from_db()
    assert owner.email == "owner@example.org"


def test_address_is_changed_by_who_knows_the_password_and_until_there_is_another(
    browser: Client, owner: User, settings: Settings
) -> None:
    refused = browser.post("/account/email/", {"email": "evil@example.org", "password": "wrong"})
    assert "The password is wrong." in Page(refused).beside("Current password")
    assert not Mail.objects.exists()
    browser.post("/account/email/", {"email": "evil@example.org", "password": PASSWORD})
    asked = next(mail for mail in deliver() if mail.to == ["evil@example.org"])
    owner.set_password(NEW_PASSWORD)
    owner.save()
    assert opened(path_in(asked, settings)).get("/account/confirm/").status_code == 410


def test_guessing_a_password_in_a_session_counts_like_a_log_in(browser: Client, owner: User) -> None:
    answers = [browser.post("/account/delete/", {"password": f"wrong {n}"}).status_code for n in range(5)]
    assert answers == [200, 200, 200, 200, 429]
    assert browser.post("/account/delete/", {"password": PASSWORD}).status_code == 429
    assert User.objects.filter(pk=owner.pk).exists()


# --- the end --------------------------------------------------------------------------------------------------


def test_account_is_deleted_only_without_ases_and_its_record_stays(
    browser: Client, owner: User, user_as: UserAS, link: Link
) -> None:
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=400, actor=owner)
    page = Page(browser.get("/account/delete/"))
    assert user_as.isd_as in page.text
    refused = browser.post("/account/delete/", {"password": PASSWORD})
    assert refused.status_code == 200
    with pytest.raises(RuleError) as error:
        account_delete(user_id=owner.pk)
    assert error.value.code == "account_has_ases"
    user_as_delete(user_as_id=user_as.pk, actor=owner)
    api_token(owner)
    assert browser.post("/account/delete/", {"password": PASSWORD})["Location"] == "/login/"
    assert not User.objects.filter(email="owner@example.org").exists()
    assert not ApiToken.objects.exists()
    assert BandwidthChange.objects.filter(actor_email="owner@example.org", new_kbit=400).exists()
    assert browser.get("/account/").status_code == 302


def test_an_address_that_a_closed_account_asked_for_gets_no_mail(browser: Client, owner: User) -> None:
    browser.post("/account/email/", {"email": "new@example.org", "password": PASSWORD})
    account_delete(user_id=owner.pk)
    assert deliver() == []


def test_a_closed_account_gets_no_waiting_mail_at_a_former_address(owner: User) -> None:
    fields = {"recipient": owner.email, "kind": MailKind.AWAY, "subject": "S", "body": "B\n", "user": owner}
    Mail.objects.create(key="waits", **fields)
    Mail.objects.create(key="sent", sent_at=owner.date_joined, **fields)
    User.objects.filter(pk=owner.pk).update(email="moved@example.org")
    account_delete(user_id=owner.pk)
    assert deliver() == []
    assert Mail.objects.get().key == "sent", "a record"


def test_the_last_administrator_stays(staff: User) -> None:
    with pytest.raises(RuleError) as error:
        account_delete(user_id=staff.pk)
    assert error.value.code == "account_last_administrator"
    other = UserFactory(email="other@example.org", is_staff=True)
    account_delete(user_id=staff.pk)
    assert list(User.objects.all()) == [other]


# --- fewer mails ----------------------------------------------------------------------------------------------


def test_one_click_of_a_mail_program_ends_a_kind_of_mail(owner: User, settings: Settings) -> None:
    path = unsubscribe_link(owner.pk, MailKind.AWAY).removeprefix(settings.SITE_URL)
    strict = Client(enforce_csrf_checks=True)
    shown = strict.get(path)
    assert "Unsubscribe?" in Page(shown).text
    assert shown["Referrer-Policy"] == "no-referrer"
    owner.refresh_from_db()
    assert owner.mail_opt_outs == [], "looking changes nothing"
    for _ in range(2):
        answer = strict.post(path, {"List-Unsubscribe": "One-Click"})
        assert (answer.status_code, "You are unsubscribed" in Page(answer).text) == (200, True)
    owner.refresh_from_db()
    assert owner.mail_opt_outs == ["away"]
    assert not owner.accepts_mail("away")
    assert owner.accepts_mail("failed")
    owner.delete()
    assert strict.post(path, {"List-Unsubscribe": "One-Click"}).status_code == 200


def test_mail_of_an_event_says_how_to_get_no_more_and_goes_where_its_person_reads(
    owner: User, settings: Settings
) -> None:
    fields = {"recipient": owner.email, "subject": "S", "body": "B\n", "user": owner}
    Mail.objects.create(key="a", kind=MailKind.AWAY, **fields)
    Mail.objects.create(key="b", kind=MailKind.FAILED, **fields)
    Mail.objects.create(key="c", **fields)
    User.objects.filter(pk=owner.pk).update(email="moved@example.org", mail_opt_outs=["failed"])
    event, plain = deliver()
    link = event.extra_headers["List-Unsubscribe"].strip("<>")
    assert event.extra_headers["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    assert link in event.body
    assert (event.to, plain.to) == (["moved@example.org"], ["owner@example.org"])
    assert "List-Unsubscribe" not in plain.extra_headers
    assert Client().post(link.removeprefix(settings.SITE_URL)).status_code == 200
    assert Mail.objects.get(key="b").last_error == "not sent: the user is unsubscribed from this kind"
