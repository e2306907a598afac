"""API tokens: several for each person, shown once, kept as hashes, each with its reach and its end."""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from bandwidth_config import RuleError
from scionlab.accounts import rest, token_auth
from scionlab.accounts.api_token import MAX_TOKENS, api_token_create, api_token_of
from scionlab.accounts.last_use import TOKENS
from scionlab.accounts.mail import mail_send
from scionlab.accounts.models import ApiToken, Mail, MailKind, User
from scionlab.platform import redis_client
from scionlab.platform.field_errors import FieldRuleError
from scionlab.platform.last_contact import Contacts, flush
from scionlab.testbed.models import Link
from tests.cases import table
from tests.factories import PASSWORD, api_token
from tests.support.html import Page

pytestmark = pytest.mark.django_db


@pytest.fixture
def browser(owner: User) -> Client:
    client = Client()
    client.force_login(owner)
    return client


@pytest.fixture(autouse=True)
def _nobody_used_any(monkeypatch: pytest.MonkeyPatch) -> None:
    redis_client.client().delete(TOKENS.key, TOKENS.taken)
    monkeypatch.setattr(token_auth, "TOKENS_USED", Contacts(TOKENS))
    cache.clear()


def make(browser: Client, name: str = "laptop", may: str = "write", days: str = "90") -> Any:
    return browser.post("/account/tokens/", {"name": name, "may": may, "days": days})


def token_in(answer: Any) -> str:
    (found,) = re.findall(r"slbwu_[\w-]{43}", answer.content.decode())
    return str(found)


def ask(token: str, word: str = "Token") -> Any:
    return Client().get("/api/v1/links/", headers={"Authorization": f"{word} {token}"})


def links(token: str, word: str = "Token") -> int:
    return int(ask(token, word).status_code)


def test_token_is_shown_in_the_answer_and_nowhere_ever_again(
    browser: Client, owner: User, link: Link, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    answer = make(browser)
    token = token_in(answer)
    assert answer.status_code == 200, "no redirect that would carry it"
    assert "no-store" in answer["Cache-Control"]
    assert links(token) == links(token, "Bearer") == links(token, "bearer") == 200
    again = browser.get("/account/tokens/")
    assert "laptop" in Page(again).text
    elsewhere = [again.content.decode(), str(dict(browser.session)), str(ApiToken.objects.values()), caplog.text]
    assert [one for one in elsewhere if token.removeprefix("slbwu_") in one] == []


@table("sent", ["", "slbwu_" + "A" * 43, "a b", "\xff\xfe"])
def test_what_is_no_token_is_401_and_costs_one_look(
    sent: str, link: Link, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(1):
        answer = ask(sent)
    assert (answer.status_code, answer.json()["code"]) == (401, "authentication_failed")
    assert answer["WWW-Authenticate"] == "Token"


def test_token_that_is_over_revoked_or_of_nobody_is_refused_in_the_same_words(
    browser: Client, owner: User, link: Link
) -> None:
    texts = {name: token_in(make(browser, name)) for name in ("over", "gone", "stays")}
    ApiToken.objects.filter(name="over").update(expires_at=timezone.now())
    gone = ApiToken.objects.get(name="gone")
    assert browser.post(f"/account/tokens/{gone.pk}/revoke/")["Location"] == "/account/tokens/"
    refused = [ask(texts[name]) for name in ("over", "gone")]
    assert links(texts["stays"]) == 200
    User.objects.filter(pk=owner.pk).update(is_active=False)
    refused.append(ask(texts["stays"]))
    assert {(one.status_code, one.content) for one in refused} == {(401, refused[0].content)}


def test_token_that_only_reads_changes_nothing(browser: Client, link: Link) -> None:
    token = token_in(make(browser, may="read"))
    headers = {"Authorization": f"Token {token}"}
    assert links(token) == 200
    for method in ("patch", "put", "post", "delete"):
        send = getattr(Client(), method)
        body = {"bandwidth_kbit": 1}
        answer = send(f"/api/v1/links/{link.pk}/", body, content_type="application/json", headers=headers)
        assert answer.status_code == 403, method
    assert Link.objects.get().bandwidth_kbit == 1000


def test_each_name_once_and_not_too_many(browser: Client, owner: User) -> None:
    assert token_in(make(browser))
    assert 'You already have a token named "laptop".' in Page(make(browser, " laptop ")).beside("Name")
    assert Mail.objects.count() == 1, "one that was refused is told to nobody"
    ApiToken.objects.update(expires_at=timezone.now())
    assert token_in(make(browser)), "one that is over is in nobody's way"
    for number in range(MAX_TOKENS - 1):
        api_token(owner, f"number {number}")
    assert f"You have {MAX_TOKENS} API tokens" in Page(make(browser, "one more")).beside("Name")
    assert ApiToken.objects.count() == MAX_TOKENS


def test_token_ends_when_it_was_said_to(browser: Client) -> None:
    make(browser, "month", days="30")
    make(browser, "for ever", days="")
    ends = dict(ApiToken.objects.values_list("name", "expires_at"))
    assert ends["for ever"] is None
    assert timedelta(days=30) <= ends["month"] - timezone.now() <= timedelta(days=31)


def test_no_request_writes_when_a_token_was_used(browser: Client, link: Link) -> None:
    token = token_in(make(browser))
    assert {links(token) for _ in range(3)} == {200}
    assert ApiToken.objects.get().last_used_at is None
    before = timezone.now()
    assert flush(TOKENS) == 1
    used = ApiToken.objects.get().last_used_at
    assert used is not None
    assert abs(before - used) < timedelta(minutes=1)
    assert links(token) == 200
    assert flush(TOKENS) == 0, "once a minute is enough"
    assert "never" not in Page(browser.get("/account/tokens/")).text


def test_hash_alone_opens_nothing(owner: User) -> None:
    text = api_token(owner)
    assert api_token_of(text.encode()) is not None
    assert api_token_of(ApiToken.objects.get().token_sha256.encode()) is None


# --- a token that makes a token ---------------------------------------------------------------------------------


def make_by(token: str, **body: object) -> Any:
    headers = {"Authorization": f"Token {token}"}
    return Client().post("/api/v1/tokens/", {"name": "child", **body}, content_type="application/json", headers=headers)


def test_a_token_makes_none_that_lasts_longer_than_itself(owner: User) -> None:
    end = timezone.now().replace(microsecond=0) + timedelta(days=1)
    token = api_token(owner, "tomorrow", expires_at=end)
    answer = make_by(token, expires_at=(end + timedelta(minutes=1)).isoformat())
    assert (answer.status_code, answer.json()["code"]) == (400, "token_expiry_bound")
    assert [one.name for one in ApiToken.objects.all()] == ["tomorrow"]
    for number, asked in enumerate(({}, {"expires_at": None}, {"expires_at": end.isoformat()})):
        assert make_by(token, **{"name": f"child {number}", **asked}).status_code == 201
        assert ApiToken.objects.get(name=f"child {number}").expires_at == end
    sooner = end - timedelta(hours=1)
    assert make_by(token, name="sooner", expires_at=sooner.isoformat()).status_code == 201
    assert ApiToken.objects.get(name="sooner").expires_at == sooner


def test_a_token_that_only_reads_makes_none(owner: User) -> None:
    token = api_token(owner, "reader", may_write=False)
    for may_write in (True, False):
        answer = make_by(token, may_write=may_write)
        assert (answer.status_code, answer.json()["code"]) == (403, "token_read_only")
    assert ApiToken.objects.count() == 1


def test_the_service_itself_bounds_what_a_reading_token_makes(owner: User) -> None:
    """Whichever door lets it in."""
    api_token(owner, "reader", may_write=False)
    reader = ApiToken.objects.get()
    with pytest.raises(FieldRuleError) as refused:
        api_token_create(user_id=owner.pk, name="writer", may_write=True, made_by=reader)
    assert refused.value.code == "token_access_bound"
    made = api_token_create(user_id=owner.pk, name="another reader", may_write=False, made_by=reader)
    assert not made.token.may_write


def test_revoking_a_token_revokes_what_it_made_and_nothing_else(browser: Client, owner: User, link: Link) -> None:
    other, first = api_token(owner, "other"), api_token(owner, "first")
    second = make_by(first, name="second").json()["token"]
    third = make_by(second, name="third").json()["token"]
    assert "second created by first" in Page(browser.get("/account/tokens/")).text
    browser.post(f"/account/tokens/{ApiToken.objects.get(name='first').pk}/revoke/")
    assert [links(one) for one in (first, second, third, other)] == [401, 401, 401, 200]


def test_a_token_that_is_revoked_while_it_makes_another_makes_none(owner: User) -> None:
    api_token(owner, "first")
    first = ApiToken.objects.get()
    ApiToken.objects.all().delete()
    with pytest.raises(RuleError) as refused:
        api_token_create(user_id=owner.pk, name="second", made_by=first)
    assert refused.value.code == "token_gone"
    assert not ApiToken.objects.exists()


def test_a_session_and_a_password_make_tokens_without_an_end(browser: Client, owner: User) -> None:
    answer = browser.post("/api/v1/tokens/", {"name": "by session"}, content_type="application/json")
    assert answer.status_code == 201
    body = {"email": owner.email, "password": PASSWORD, "name": "by password"}
    assert Client().post("/api/v1/token/", body, content_type="application/json").status_code == 200
    assert set(ApiToken.objects.values_list("expires_at", "made_by")) == {(None, None)}


def test_a_token_that_is_revoked_twice_at_once(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    token, revoke = api_token(owner), rest.api_token_revoke

    def too_late(**values: Any) -> str:
        ApiToken.objects.all().delete()
        return revoke(**values)

    monkeypatch.setattr(rest, "api_token_revoke", too_late)
    answer = Client().delete("/api/v1/token/", headers={"Authorization": f"Token {token}"})
    assert answer.status_code == 204


# --- the owner is told ------------------------------------------------------------------------------------------


def test_a_mail_tells_the_owner_of_each_new_token_whatever_mails_they_do_without(browser: Client, owner: User) -> None:
    User.objects.filter(pk=owner.pk).update(mail_opt_outs=sorted(MailKind.values))
    on_page = token_in(make(browser, "on the page", may="read", days="30"))
    body = {"email": owner.email, "password": PASSWORD, "name": "night job"}
    by_password = Client().post("/api/v1/token/", body, content_type="application/json").json()["token"]
    by_token = make_by(by_password, name="child").json()["token"]
    mails = list(Mail.objects.order_by("pk"))
    assert [(mail.recipient, mail.kind) for mail in mails] == [(owner.email, "")] * 3
    ways = ["on the site", "with your password, over the REST API", "by your API token night job"]
    assert [way in mail.body for way, mail in zip(ways, mails, strict=True)] == [True] * 3
    assert ["Access: read-only" in mail.body for mail in mails] == [True, False, False]
    assert "from 127.0.0.1" in mails[0].body
    assert not [mail for mail in mails if any(one in mail.body for one in (on_page, by_password, by_token))]
    assert [mail_send(mail.pk) for mail in mails] == [True] * 3


def test_the_mail_gives_its_times_in_the_zone_of_the_owner(browser: Client, owner: User) -> None:
    User.objects.filter(pk=owner.pk).update(time_zone="Asia/Tokyo")
    make(browser, days="30")
    token, body = ApiToken.objects.get(), Mail.objects.get().body
    created = token.created_at + timedelta(hours=9)
    assert f"Created: {created:%Y-%m-%d %H:%M:%S} JST from 127.0.0.1, on the site" in body
    assert re.search(r"Valid until: \d{4}-\d\d-\d\d 08:59:59 JST\n", body)
    make_by(api_token(owner), name="child")
    assert " JST from 127.0.0.1, by your API token script" in Mail.objects.latest("pk").body
