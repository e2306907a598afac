"""The second factor: what a password alone no longer opens, and what an account's owner is told."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import struct
import time
from datetime import timedelta
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.test import Client
from pytest_django import Settings
from redis.exceptions import ConnectionError as RedisAway

from scionlab.accounts.account import account_delete
from scionlab.accounts.mail_links import password_link
from scionlab.accounts.models import Mail, User
from scionlab.delivery.signing import signing_key_rotate, signing_keys_rewrap
from tests.cases import table
from tests.factories import PASSWORD
from tests.support.html import Page
from tests.web.test_expired_sessions import EXPIRED, expire, fields_of, form_with

pytestmark = pytest.mark.django_db

HOME, APP, CODES = "/account/second-factor/", "/account/second-factor/app/", "/account/second-factor/recovery-codes/"


def totp(secret: str, *, steps: int = 0) -> str:
    """RFC 6238, written down a second time."""
    counter = struct.pack(">Q", int(time.time()) // 30 + steps)
    digest = hmac.new(base64.b32decode(secret), counter, hashlib.sha1).digest()
    number = struct.unpack(">I", digest[digest[-1] & 15 :][:4])[0] & 0x7FFFFFFF
    return f"{number % 10**6:06}"


def first_half(email: str, *, address: str = "203.0.113.5", **more: str) -> tuple[Client, Any]:
    """A browser behind the right password."""
    browser = Client(REMOTE_ADDR=address)
    return browser, browser.post("/login/", {"username": email, "password": PASSWORD, **more})


def confirmed(user: User) -> Client:
    """A browser whose person has given their password just now."""
    browser = Client()
    browser.force_login(user)
    assert browser.post(f"{HOME}password/", {"password": PASSWORD}).status_code == 302
    return browser


def set_up(user: User) -> tuple[str, list[str]]:
    """The secret of the app and the recovery codes, as the pages showed them."""
    browser = confirmed(user)
    shown = Page(browser.get(APP))
    (secret,) = re.findall(r"[A-Z2-7]{32}", shown.text)
    assert browser.post(APP, {"code": totp(secret, steps=-1)})["Location"] == CODES
    return secret, re.findall(r"\b\d{8}\b", Page(browser.get(CODES)).text)


def logged_in(browser: Client) -> bool:
    return browser.get("/account/").status_code == 200


# --- log-in -----------------------------------------------------------------------------------------------------


def test_password_alone_logs_nobody_in_who_has_a_second_factor(owner: User) -> None:
    secret, codes = set_up(owner)
    for wrong in ("000000", ""):
        browser, answer = first_half(owner.email)
        assert (answer.status_code, answer["Location"]) == (302, "/login/code/")
        assert browser.post("/login/code/", {"code": wrong}).status_code == 200
        assert not logged_in(browser)
    for right in (totp(secret), codes[0], codes[1]):
        browser, _ = first_half(owner.email)
        assert browser.post("/login/code/", {"code": right})["Location"] == "/ases/"
        assert logged_in(browser)
        browser, _ = first_half(owner.email)
        cache.delete(f"allauth.mfa.totp.used?user={owner.pk}&code={right}")  # as after half a minute
        again = f"{right[:3]}-{right[3:]}"
        assert browser.post("/login/code/", {"code": again}).status_code == 200, "each works once"
    assert Client().get("/login/code/")["Location"] == "/login/", "nobody gets there without a password"


def test_wrong_codes_close_the_account_to_all_addresses_and_a_new_password_opens_it(owner: User) -> None:
    secret, _ = set_up(owner)
    statuses = []
    for number in range(5):
        browser, _ = first_half(owner.email, address=f"203.0.113.{number}")
        statuses.append(browser.post("/login/code/", {"code": "000000"}).status_code)
    assert statuses == [200, 200, 200, 200, 429]
    browser, _ = first_half(owner.email, address="198.51.100.9")
    assert browser.post("/login/code/", {"code": totp(secret)}).status_code == 429
    assert not logged_in(browser)
    _reset(owner)
    browser, _ = first_half(owner.email, address="198.51.100.9")
    assert browser.post("/login/code/", {"code": totp(secret)}).status_code == 302


def _reset(user: User) -> None:
    """By the link of the mail; the same password again, so that the other helpers know it."""
    browser = Client()
    there = browser.get("/account/" + password_link(user).split("/account/")[1])["Location"]
    assert browser.post(there, {"new_password1": PASSWORD, "new_password2": PASSWORD})["Location"] == "/login/"


def test_what_was_typed_waits_behind_the_second_factor(owner: User) -> None:
    _, codes = set_up(owner)
    browser, _ = first_half(owner.email)
    browser.post("/login/code/", {"code": codes[0]})
    form = form_with(browser.get("/account/"), "full_name")
    expire()
    asked = browser.post("/account/", {**fields_of(form), "full_name": "Ada"})
    sent = {**fields_of(form_with(asked, "username")), "username": owner.email, "password": PASSWORD}
    assert browser.post("/login/", sent)["Location"] == "/login/code/"
    assert browser.post("/login/code/", {"code": codes[1]})["Location"] == "/account/"
    back = browser.get("/account/")
    assert EXPIRED in Page(back).text
    assert fields_of(form_with(back, "full_name"))["full_name"] == "Ada"


def test_while_redis_is_away_recovery_codes_log_in_and_the_app_says_why_not(
    owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, codes = set_up(owner)

    def away(*_args: Any, **_kwargs: Any) -> None:
        raise RedisAway

    monkeypatch.setattr(type(cache._connections["default"]), "add", away)
    browser, _ = first_half(owner.email)
    answer = browser.post("/login/code/", {"code": totp(secret)})
    assert "Use a recovery code" in Page(answer).text
    assert not logged_in(browser)
    assert browser.post("/login/code/", {"code": codes[0]}).status_code == 302


def test_a_password_gets_no_api_token(owner: User, staff: User, settings: Settings) -> None:
    def asked(user: User) -> Any:
        body = {"email": user.email, "password": PASSWORD, "name": "job"}
        return Client().post("/api/v1/token/", body, content_type="application/json")

    assert asked(owner).status_code == asked(staff).status_code == 200
    set_up(owner)
    settings.REQUIRE_SECOND_FACTOR_OF_STAFF = True
    for user in (owner, staff):
        refused = asked(user)
        assert (refused.status_code, refused.json()["code"]) == (403, "second_factor_required")


# --- one's own --------------------------------------------------------------------------------------------------


@table("page", [APP, "/account/second-factor/keys/add/"])
def test_setting_up_asks_for_the_password_and_counts_wrong_ones(owner: User, page: str) -> None:
    browser = Client()
    browser.force_login(owner)
    asked = browser.get(page)
    assert asked["Location"].startswith(f"{HOME}password/?next=")
    wrong = [browser.post(asked["Location"], {"password": "wrong"}) for _ in range(5)]
    assert "The password is wrong." in Page(wrong[0]).beside("Current password")
    assert [one.status_code for one in wrong] == [200, 200, 200, 200, 429]
    assert not Authenticator.objects.exists()


@table("url", [f"{CODES}new/", CODES, f"{APP}remove/"])
def test_pages_of_the_second_factor_ask_again_after_a_while(owner: User, url: str) -> None:
    set_up(owner)
    browser = Client()
    browser.force_login(owner)
    before = list(Authenticator.objects.values())
    for answer in (browser.get(url), browser.post(url)):
        assert answer.status_code == 405 or answer["Location"].startswith(f"{HOME}password/")
    assert list(Authenticator.objects.values()) == before


def test_every_change_is_told_in_its_own_transaction(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    def told() -> list[str]:
        mails = Mail.objects.filter(key__startswith="second_factor:").order_by("pk")
        assert all(mail.recipient == owner.email for mail in mails)
        return [mail.body for mail in mails]

    set_up(owner)
    assert [("- authenticator app" in one, "- recovery codes" in one) for one in told()] == [(True, True)]
    browser = confirmed(owner)
    browser.post(f"{CODES}new/")
    assert len(told()) == 2
    monkeypatch.setattr("scionlab.accounts.second_factor.mails_create", _fails)
    with pytest.raises(OSError, match="no mail"):
        browser.post(f"{APP}remove/")
    assert Authenticator.objects.count() == 2, "no change without its mail"
    monkeypatch.undo()
    assert browser.post(f"{APP}remove/")["Location"] == HOME
    assert "with only your password" in told()[2]
    assert not Authenticator.objects.exists()
    assert first_half(owner.email)[1]["Location"] == "/ases/"


def test_the_mail_gives_its_time_in_the_zone_of_the_account(owner: User, staff: User) -> None:
    User.objects.filter(pk=owner.pk).update(time_zone="Asia/Tokyo")
    User.objects.filter(pk=staff.pk).update(time_zone="Europe/Zurich")
    set_up(owner)
    client = Client()
    client.force_login(staff)
    client.post("/admin/accounts/user/", {"action": "remove_second_factor", "_selected_action": [owner.pk]})
    mails = list(Mail.objects.filter(key__startswith="second_factor:"))
    times = [re.findall(r"Changed: (.* JST) from", mail.body) for mail in mails]
    assert times == [[f"{mail.created_at + timedelta(hours=9):%Y-%m-%d %H:%M:%S} JST"] for mail in mails]
    assert len(times) == 2


def _fails(*_args: Any) -> None:
    raise OSError("no mail")


def test_secrets_are_sealed_and_survive_another_signing_secret(owner: User, settings: Settings) -> None:
    signing_key_rotate(actor=None)
    secret, codes = set_up(owner)
    rows = str(list(Authenticator.objects.values("data")))
    assert secret not in rows
    assert not re.search(r"'seed': '[0-9a-f]{80}'", rows)
    settings.SIGNING_SECRET_FALLBACKS = [settings.SIGNING_SECRET]
    settings.SIGNING_SECRET = "another secret of fifty characters, or a little more"
    signing_keys_rewrap()
    settings.SIGNING_SECRET_FALLBACKS = []
    for right in (totp(secret), codes[0]):
        browser, _ = first_half(owner.email)
        assert browser.post("/login/code/", {"code": right}).status_code == 302


def test_who_closes_an_account_takes_its_second_factor_along(owner: User) -> None:
    set_up(owner)
    account_delete(user_id=owner.pk)
    assert not Authenticator.objects.exists()
    assert not Mail.objects.filter(recipient=owner.email, sent_at=None).exists()


# --- administrators ---------------------------------------------------------------------------------------------


def test_log_in_of_django_admin_is_the_one_log_in(staff: User, owner: User) -> None:
    answer = Client().get("/admin/login/?next=/admin/testbed/link/")
    assert answer["Location"] == "/login/?next=/admin/testbed/link/"
    posted = Client().post("/admin/login/", {"username": staff.email, "password": PASSWORD})
    assert posted["Location"].startswith("/login/")
    assert not Session.objects.exists()
    browser = Client()
    browser.force_login(staff)
    assert browser.get("/admin/login/", follow=True).redirect_chain[-1] == ("/admin/", 302)
    browser.post("/admin/login/", {"username": owner.email, "password": PASSWORD})
    assert browser.session["_auth_user_id"] == str(staff.pk), "no way round the second factor of somebody else"
    browser.force_login(owner)
    assert browser.get("/admin/", follow=True).status_code == 403


@table("url", ["/cockpit/", "/admin/", "/admin/testbed/link/", "/account/tokens/", "/ases/"])
def test_site_may_require_it_of_administrators(staff: User, owner: User, settings: Settings, url: str) -> None:
    users, admins = Client(), Client()
    users.force_login(owner)
    admins.force_login(staff)
    assert admins.get(url).status_code == 200
    settings.REQUIRE_SECOND_FACTOR_OF_STAFF = True
    refused = admins.get(url, follow=True)
    assert refused.redirect_chain == [(HOME, 302)]
    assert admins.get("/api/v1/traffic/").json()["code"] == "second_factor_required"
    assert users.get("/ases/").status_code == 200
    set_up(staff)
    assert admins.get(url).status_code == 200


@table("door", ["Django admin", "command"])
def test_administrators_remove_what_was_lost_and_its_owner_is_told(owner: User, staff: User, door: str) -> None:
    for user in (owner, staff):
        set_up(user)
    Mail.objects.all().delete()
    if door == "command":
        call_command("remove_second_factor", "OWNER@example.org")
        for unknown in ("owner@example.org", "nobody@example.org"):
            with pytest.raises(CommandError):
                call_command("remove_second_factor", unknown)
    else:
        browser = Client()
        browser.force_login(staff)
        data = {"action": "remove_second_factor", "_selected_action": [owner.pk, staff.pk]}
        assert browser.post("/admin/accounts/user/", data).status_code == 302
    assert set(Authenticator.objects.values_list("user", flat=True)) == {staff.pk}, "not one's own"
    assert [mail.recipient for mail in Mail.objects.all()] == [owner.email]
    assert first_half(owner.email)[1]["Location"] == "/ases/"
