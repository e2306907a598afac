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
from pytest_django import DjangoAssertNumQueries, Settings
from redis.exceptions import ConnectionError as RedisGoneError

from scionlab import redis_client
from scionlab.models import ApiToken, Link, User
from scionlab.services import seen
from scionlab.services.api_token import MAX_TOKENS, api_token_of
from tests.factories import api_token
from tests.web.html import Page

pytestmark = pytest.mark.django_db


@pytest.fixture
def browser(owner: User) -> Client:
    client = Client()
    client.force_login(owner)
    return client


@pytest.fixture(autouse=True)
def _nobody_used_any(monkeypatch: pytest.MonkeyPatch) -> None:
    redis_client.client().delete(seen.TOKENS.key, seen.TOKENS.taken)
    monkeypatch.setattr(seen, "TOKENS_USED", seen.Heard(seen.TOKENS))
    cache.clear()


def make(browser: Client, name: str = "laptop", may: str = "write", days: str = "90") -> Any:
    return browser.post("/account/tokens/", {"name": name, "may": may, "days": days})


def token_in(answer: Any) -> str:
    (found,) = re.findall(r"slbwu_[\w-]{43}", answer.content.decode())
    return str(found)


def links(token: str, word: str = "Token") -> int:
    return int(Client().get("/api/v1/links/", headers={"Authorization": f"{word} {token}"}).status_code)


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


@pytest.mark.parametrize(
    "sent", ["", "slbwu_", "slbwu_" + "A" * 43, "0123456789abcdef0123456789abcdef01234567", "a b", "\xff\xfe"]
)
def test_what_is_no_token_is_401_and_costs_one_look(
    sent: str, link: Link, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(1):
        answer = Client().get("/api/v1/links/", headers={"Authorization": f"Token {sent}"})
    assert (answer.status_code, answer.json()["code"], answer["WWW-Authenticate"]) == (
        401,
        "authentication_failed",
        "Token",
    )


def test_token_that_is_over_withdrawn_or_of_nobody_is_refused_in_the_same_words(
    browser: Client, owner: User, link: Link
) -> None:
    texts = {name: token_in(make(browser, name)) for name in ("over", "gone", "stays")}
    ApiToken.objects.filter(name="over").update(expires_at=timezone.now())
    gone = ApiToken.objects.get(name="gone")
    assert browser.post(f"/account/tokens/{gone.pk}/withdraw/")["Location"] == "/account/tokens/"
    refused = [
        Client().get("/api/v1/links/", headers={"Authorization": f"Token {texts[name]}"}) for name in ("over", "gone")
    ]
    assert links(texts["stays"]) == 200
    User.objects.filter(pk=owner.pk).update(is_active=False)
    refused.append(Client().get("/api/v1/links/", headers={"Authorization": f"Token {texts['stays']}"}))
    assert {(one.status_code, one.content) for one in refused} == {(401, refused[0].content)}


def test_token_that_only_reads_changes_nothing(browser: Client, link: Link) -> None:
    token = token_in(make(browser, may="read"))
    headers = {"Authorization": f"Token {token}"}
    assert links(token) == 200
    for method in ("patch", "put", "post", "delete"):
        ask = getattr(Client(), method)
        answer = ask(
            f"/api/v1/links/{link.pk}/", {"bandwidth_kbit": 1}, content_type="application/json", headers=headers
        )
        assert answer.status_code == 403, method
        assert 'The API token "laptop" only reads.' in answer.json()["message"]
    assert Link.objects.get().bandwidth_kbit == 1000


def test_tokens_of_others_are_not_there(browser: Client, stranger: User) -> None:
    api_token(stranger, "of a stranger")
    token = ApiToken.objects.get()
    assert "of a stranger" not in Page(browser.get("/account/tokens/")).text
    assert browser.post(f"/account/tokens/{token.pk}/withdraw/").status_code == 404
    assert ApiToken.objects.get() == token


def test_each_name_once_and_not_too_many(browser: Client, owner: User) -> None:
    assert token_in(make(browser))
    page = Page(make(browser, " laptop "))
    assert 'You have a token named "laptop".' in page.beside("Name")
    ApiToken.objects.update(expires_at=timezone.now())
    assert token_in(make(browser)), "one that is over is in nobody's way"
    assert "Name the token after" in Page(make(browser, "  ")).beside("Name")
    for number in range(MAX_TOKENS - 1):
        api_token(owner, f"number {number}")
    page = Page(make(browser, "one more"))
    assert f"You have {MAX_TOKENS} API tokens" in page.beside("Name")
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
    assert seen.flush(seen.TOKENS) == 1
    used = ApiToken.objects.get().last_used_at
    assert used is not None
    assert abs(before - used) < timedelta(minutes=1)
    assert links(token) == 200
    assert seen.flush(seen.TOKENS) == 0, "once a minute is enough"
    assert "never" not in Page(browser.get("/account/tokens/")).text


def test_without_redis_its_use_is_written_once_a_minute(
    owner: User, link: Link, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> Any:
        raise RedisGoneError

    token = api_token(owner)
    monkeypatch.setattr("scionlab.redis_client.client", gone)
    assert links(token) == 200
    first = ApiToken.objects.get().last_used_at
    assert first is not None
    assert links(token) == 200
    assert ApiToken.objects.get().last_used_at == first


def test_hash_alone_opens_nothing(owner: User) -> None:
    text = api_token(owner)
    assert api_token_of(text.encode()) is not None
    assert api_token_of(ApiToken.objects.get().token_sha256.encode()) is None
