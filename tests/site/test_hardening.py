"""What stands between the site and those who try: log-in guard, sessions, headers, throttles, reports, the audit."""

from __future__ import annotations

import logging
import sys
from datetime import timedelta
from secrets import token_hex
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.conf import settings as django_settings
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.db import IntegrityError, connection, transaction
from django.test import Client, RequestFactory, override_settings
from django.utils import timezone
from django.views.debug import ExceptionReporter
from django.views.decorators.debug import sensitive_post_parameters
from pytest_django.fixtures import Settings
from redis.exceptions import ConnectionError as RedisConnectionError
from rest_framework.throttling import SimpleRateThrottle

from scionlab.accounts.models import ApiToken, User
from scionlab.limits.update import link_set_bandwidth
from scionlab.platform import throttles
from scionlab.platform.client_address import client_address, client_network
from scionlab.site.tasks import forget_sessions
from scionlab.testbed.models import AttachmentPoint, BandwidthChange, Link, UserAS
from scionlab.user_ases.user_as import user_as_delete
from tests.admin_pages import confirm_preview
from tests.cases import table
from tests.factories import PASSWORD, UserFactory, api_token
from tests.support.html import Page

pytestmark = pytest.mark.django_db

LOCK_S = 900


def log_in(email: str, password: str, *, address: str = "203.0.113.5", url: str = "/login/", **headers: str) -> Any:
    data = {"username": email, "password": password}
    if url.startswith("/api/"):
        body = {"email": email, "password": password}
        return Client().post(url, body, content_type="application/json", REMOTE_ADDR=address, headers=headers)
    return Client().post(url, data, REMOTE_ADDR=address, headers=headers)


@pytest.fixture(autouse=True)
def many_tokens_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the guard of log-ins is looked at, which stands behind the throttle."""
    monkeypatch.setitem(SimpleRateThrottle.THROTTLE_RATES, "token", "1000/min")


# --- guessing passwords -------------------------------------------------------------------------------------


@table("url", ["/login/", "/api/v1/token/"])
@table("email", ["staff@example.org", "nobody@example.org"])
def test_the_fifth_failure_closes_the_account_to_that_address_and_says_for_how_long(
    staff: User, url: str, email: str
) -> None:
    answers = [log_in(email, f"wrong {number}", url=url) for number in range(5)]
    assert [one.status_code for one in answers] == [401 if "api" in url else 200] * 4 + [429]
    right = log_in(email, PASSWORD, url=url)
    assert right.status_code == 429
    assert LOCK_S - 60 < int(right["Retry-After"]) <= LOCK_S
    if "api" in url:
        assert right.json()["code"] == "login_locked"
        assert "Try again in 15 minutes." in right.json()["message"]
    else:
        assert "blocked for 15 minutes" in Page(right).text
    assert not Session.objects.exists()
    assert not ApiToken.objects.exists()


def test_all_doors_count_together_whatever_the_capitals(owner: User) -> None:
    names = ["owner@example.org", "Owner@example.org", "OWNER@EXAMPLE.ORG", " owner@example.org "]
    urls = ["/login/", "/api/v1/token/", "/api/v1/token/", "/login/"]
    for name, url in zip(names, urls, strict=True):
        log_in(name, "wrong", url=url)
    assert log_in(owner.email, "wrong").status_code == 429
    assert log_in(owner.email, PASSWORD, url="/api/v1/token/").status_code == 429


def test_nobody_is_locked_out_by_somebody_elsewhere_and_other_accounts_go_on(owner: User, teammate: User) -> None:
    for _ in range(6):
        log_in(owner.email, "wrong")
    assert log_in(owner.email, PASSWORD).status_code == 429
    assert log_in(owner.email, PASSWORD, address="203.0.113.6").status_code == 302
    assert log_in(teammate.email, PASSWORD).status_code == 302


def test_an_address_that_tries_many_accounts_is_closed_to_all(owner: User, settings: Settings) -> None:
    settings.LOGIN_FAILURES_PER_ADDRESS = 6
    for number in range(6):
        log_in(f"guess{number}@example.org", "Spring2026!")
    assert log_in(owner.email, PASSWORD).status_code == 429
    assert log_in(owner.email, PASSWORD, address="203.0.113.6").status_code == 302


@pytest.mark.parametrize(("width", "passed"), [(56, 12), (48, 24)])
def test_guessers_from_many_64_of_one_network_are_closed_out_together(
    owner: User, settings: Settings, width: int, passed: int
) -> None:
    """Limits of the /56 and the /48: twice and four times 6. Each guesser has another /64."""
    settings.LOGIN_FAILURES_PER_ADDRESS = 6
    step = 1 if width == 56 else 256
    addresses = [f"2001:db8:1:{number * step:x}::5" for number in range(40)]
    answers = [log_in(f"guess{n}@example.org", "x", address=address).status_code for n, address in enumerate(addresses)]
    assert answers == [200] * (passed - 1) + [429] * (41 - passed)
    assert log_in(owner.email, PASSWORD, address="2001:db8:1:ff::1").status_code == 429
    assert log_in(owner.email, PASSWORD, address="2001:db8:2::1").status_code == 302
    AccessAttempt.objects.update(attempt_time=timezone.now() - timedelta(seconds=LOCK_S + 1))
    assert log_in(owner.email, PASSWORD, address=addresses[0]).status_code == 302


def test_a_wide_network_with_few_failures_at_a_time_is_never_closed(owner: User, settings: Settings) -> None:
    settings.LOGIN_FAILURES_PER_ADDRESS = 6
    for hour in range(30):
        log_in(f"typo{hour}@example.org", "x", address=f"2001:db8:1:{hour:x}::5")
        AccessAttempt.objects.update(attempt_time=timezone.now() - timedelta(seconds=LOCK_S + 1))
    assert log_in(owner.email, PASSWORD, address="2001:db8:1:1::5").status_code == 302


def test_an_own_account_does_not_clear_what_its_address_guessed(
    owner: User, stranger: User, settings: Settings
) -> None:
    settings.LOGIN_FAILURES_PER_ADDRESS = 6
    for number in range(5):
        log_in(f"guess{number}@example.org", "Spring2026!")
        assert log_in(stranger.email, PASSWORD).status_code == 302
    log_in(owner.email, "wrong")
    assert log_in(owner.email, PASSWORD).status_code == 429


def test_the_right_password_clears_the_failures_before_it(owner: User) -> None:
    for _ in range(3):
        for _ in range(4):
            log_in(owner.email, "wrong")
        assert log_in(owner.email, PASSWORD).status_code == 302


def test_the_lock_ends_by_itself_and_trying_meanwhile_does_not_prolong_it(owner: User) -> None:
    for _ in range(8):
        log_in(owner.email, "wrong")
    earlier = timezone.now() - timedelta(seconds=LOCK_S - 30)
    AccessAttempt.objects.update(attempt_time=earlier)
    still = log_in(owner.email, PASSWORD)
    assert (still.status_code, int(still["Retry-After"]) <= 30) == (429, True)
    assert "blocked for 1 minute" in Page(still).text
    AccessAttempt.objects.update(attempt_time=earlier - timedelta(seconds=31))
    assert log_in(owner.email, PASSWORD).status_code == 302


def test_the_log_names_address_and_never_account_or_password(owner: User, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for _ in range(6):
            log_in(owner.email, "hunter2hunter2", **{"X-Forwarded-For": "198.51.100.1"})
    assert "login.failed address=203.0.113.5" in caplog.messages
    assert "login.locked address=203.0.113.5" in caplog.messages
    assert any(one.startswith("login.proxy TRUSTED_PROXIES is 0") for one in caplog.messages)
    assert "owner@example.org" not in caplog.text
    assert "hunter2" not in caplog.text
    stored = str(list(AccessAttempt.objects.values()))
    assert "hunter2" not in stored
    assert "csrfmiddlewaretoken=" not in stored


@table(
    ("remote", "forwarded", "proxies", "address", "network"),
    [
        ("192.0.2.1", "198.51.100.9", 0, "192.0.2.1", "192.0.2.1"),
        ("10.0.0.1", "1.1.1.1, 198.51.100.9", 1, "198.51.100.9", "198.51.100.9"),
        ("10.0.0.1", "1.1.1.1, 198.51.100.9, 10.0.0.2", 2, "198.51.100.9", "198.51.100.9"),
        ("10.0.0.1", "unknown", 1, "10.0.0.1", "10.0.0.1"),
        ("2001:DB8:0:7::1", "", 0, "2001:db8:0:7::1", "2001:db8:0:7::"),
        ("10.0.0.1", "[2001:db8:0:7:a:b:c:d]", 1, "2001:db8:0:7:a:b:c:d", "2001:db8:0:7::"),
        ("::ffff:192.0.2.1", "", 0, "192.0.2.1", "192.0.2.1"),
        ("fe80::1%eth0", "", 0, "fe80::1", "fe80::"),
        ("", "", 0, None, None),
    ],
)
def test_a_request_counts_for_the_address_that_our_outermost_proxy_saw(
    settings: Settings, remote: str, forwarded: str, proxies: int, address: str | None, network: str | None
) -> None:
    settings.TRUSTED_PROXIES = proxies
    headers = {"X-Forwarded-For": forwarded} if forwarded else {}
    request = RequestFactory().get("/", REMOTE_ADDR=remote, headers=headers)
    assert (client_address(request), client_network(request)) == (address, network)


@override_settings(PASSWORD_HASHERS=["django.contrib.auth.hashers.Argon2PasswordHasher"])
def test_an_unknown_account_costs_the_same_hash_as_a_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    known = UserFactory(email="known@example.org")
    off = UserFactory(email="off@example.org", is_active=False)
    hasher = "django.contrib.auth.hashers.Argon2PasswordHasher"
    done: list[str] = []
    monkeypatch.setattr(f"{hasher}.encode", lambda *_: done.append("hash") or "")
    monkeypatch.setattr(f"{hasher}.verify", lambda *_: done.append("hash") or False)
    answers = {}
    for email in (known.email, off.email, "nobody@example.org"):
        done.clear()
        answer = log_in(email, "wrong")
        answers[email] = (len(done), answer.status_code, Page(answer).root.one(id="login-error").text)
    assert len(set(answers.values())) == 1
    assert answers[known.email][0] == 1


# --- sessions -----------------------------------------------------------------------------------------------


def test_logging_in_gives_a_new_session_key(owner: User) -> None:
    browser = Client()
    session = browser.session
    session["planted"] = "by somebody else"
    session.save()
    planted = session.session_key
    browser.post("/login/", {"username": owner.email, "password": PASSWORD})
    assert browser.session.session_key != planted
    assert not Session.objects.filter(session_key=planted).exists()


def test_another_password_ends_every_session_and_the_token(owner: User, door: Client) -> None:
    browsers = [Client(), Client()]
    for browser in browsers:
        browser.force_login(owner)
        assert browser.get("/ases/").status_code == 200
    api_token(owner)
    new = {"password1": "a new long phrase", "password2": "a new long phrase", "usable_password": "true"}
    assert door.post(f"/admin/accounts/user/{owner.pk}/password/", new).status_code == 302
    assert [browser.get("/ases/").status_code for browser in browsers] == [302, 302]
    assert not ApiToken.objects.exists()


def test_ones_own_new_password_ends_the_other_sessions_and_the_token(owner: User) -> None:
    here, elsewhere = Client(), Client()
    for browser in (here, elsewhere):
        browser.force_login(owner)
    api_token(owner)
    new = {"old_password": PASSWORD, "new_password1": "a new long phrase", "new_password2": "a new long phrase"}
    here.post("/password/", {**new, "old_password": "wrong"})
    assert elsewhere.get("/ases/").status_code == 200
    assert here.post("/password/", new).headers["Location"] == "/ases/"
    assert [browser.get("/ases/").status_code for browser in (here, elsewhere)] == [200, 302]
    assert not ApiToken.objects.exists()


def test_sessions_that_are_over_are_deleted(owner: User) -> None:
    for _ in range(2):
        Client().force_login(owner)
    over = Session.objects.order_by("pk")[0]
    Session.objects.filter(pk=over.pk).update(expire_date=timezone.now() - timedelta(seconds=1))
    forget_sessions()
    assert Session.objects.count() == 1
    assert django_settings.CELERY_BEAT_SCHEDULE["forget_sessions"]["task"] == forget_sessions.name


def test_cookies_are_for_no_script_and_no_other_site(owner: User) -> None:
    answer = log_in(owner.email, PASSWORD)
    cookie = answer.cookies["sessionid"]
    assert (cookie["httponly"], cookie["samesite"], cookie["max-age"]) == (True, "Lax", 12 * 3600)
    csrf = Client().get("/login/").cookies["csrftoken"]
    assert (csrf["httponly"], csrf["samesite"]) == (True, "Lax")


# --- headers ------------------------------------------------------------------------------------------------

POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}
KEEP_OUT = [
    ("Cache-Control", "no-store"),
    ("Cache-Control", "private"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", "geolocation=()"),
]


@table("url", ["/ases/new/", "/nowhere/", "/admin/testbed/link/", "/api/v1/links/", "/api/v4/host/x/config", "/readyz"])
def test_every_answer_tells_browsers_and_caches_to_keep_out(door: Client, url: str) -> None:
    headers = door.get(url).headers
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy == POLICY
    for name, text in KEEP_OUT:
        assert text in headers[name], name


def test_static_files_may_be_cached() -> None:
    answer = Client().get("/static/scionlab/site.css")
    assert answer.status_code == 200
    answer.close()
    assert "no-store" not in answer.headers.get("Cache-Control", "")


# --- throttles ----------------------------------------------------------------------------------------------


def test_without_redis_requests_are_served_uncounted_and_the_log_says_so_once(
    owner: User, link: Link, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def gone(*_args: object, **_kwargs: object) -> None:
        raise RedisConnectionError("Connection refused.")

    monkeypatch.setitem(SimpleRateThrottle.THROTTLE_RATES, "user", "1/min")
    monkeypatch.setattr(throttles, "_warned_at", -throttles.WARN_EVERY_S)
    monkeypatch.setattr(cache, "get", gone)
    browser = Client()
    browser.force_login(owner)
    assert [browser.get(f"/api/v1/links/{link.pk}/").status_code for _ in range(3)] == [200, 200, 200]
    assert [one for one in caplog.messages if one.startswith("throttle.off")] == [
        "throttle.off requests are not counted: the cache does not answer (ConnectionError)"
    ]
    for _ in range(5):
        guessed = log_in(owner.email, "wrong", url="/api/v1/token/")
    assert guessed.status_code == 429  # the guard of log-ins counts in the database


# --- what an error shows ------------------------------------------------------------------------------------


@table("debug", [False, True])
def test_a_report_of_an_exception_shows_no_secret(settings: Settings, debug: bool) -> None:
    secrets = [token_hex(12) for _ in range(5)]
    settings.REDIS_URL, settings.SIGNING_SECRET, settings.DEBUG = f"redis://:{secrets[0]}@redis/0", secrets[1], debug
    shown = report_with(header_secret=secrets[2], host_secret=secrets[3], password_secret=secrets[4])
    assert "host_secret" in shown
    assert "HTTP_AUTHORIZATION" in shown
    assert [one for one in secrets if one in shown] == []


def report_with(*, header_secret: str, host_secret: str, password_secret: str) -> str:
    sent = {"username": "x", "password": password_secret}
    request = RequestFactory().post("/", sent, headers={"Authorization": f"Basic {header_secret}"})
    sensitive_post_parameters()(lambda request: request.POST)(request)  # as Django's log-in view is decorated
    try:
        raise RuntimeError(len(host_secret))
    except RuntimeError:
        reporter = ExceptionReporter(request, *sys.exc_info())
        return reporter.get_traceback_html() + reporter.get_traceback_text()


# --- who changed which limit --------------------------------------------------------------------------------


@pytest.fixture
def change(link: Link, owner: User) -> BandwidthChange:
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=640, actor=owner)
    return BandwidthChange.objects.get(link=link, new_kbit=640)


@table(
    "sql",
    [
        "UPDATE testbed_bandwidthchange SET new_kbit = 1",
        "UPDATE testbed_bandwidthchange SET actor_email = 'somebody@example.org', address = '192.0.2.99'",
        "UPDATE testbed_bandwidthchange SET actor_id = (SELECT max(id) FROM accounts_user)",
        "DELETE FROM testbed_bandwidthchange",
    ],
)
def test_the_database_itself_refuses_to_alter_the_record(change: BandwidthChange, teammate: User, sql: str) -> None:
    before = list(BandwidthChange.objects.values())
    with pytest.raises(IntegrityError, match="only ever added to"), transaction.atomic():
        connection.cursor().execute(sql)
    assert list(BandwidthChange.objects.values()) == before


def test_the_record_outlives_link_as_and_account(change: BandwidthChange, user_as: UserAS, owner: User) -> None:
    user_as_delete(user_as_id=user_as.pk, actor=owner)
    owner.delete()
    change.refresh_from_db()
    assert (change.link, change.actor, change.actor_email) == (None, None, "owner@example.org")
    assert (change.old_kbit, change.new_kbit) == (1000, 640)
    staff = UserFactory(email="auditor@example.org", is_staff=True)
    auditor = Client()
    auditor.force_login(staff)
    assert "owner@example.org (deleted)" in Page(auditor.get("/cockpit/history/")).text
    removed = BandwidthChange.objects.first()
    assert removed is not None
    assert (removed.new_kbit, removed.actor_email) == (None, "owner@example.org")


def test_every_door_leaves_who_from_where_and_what(
    owner: User, staff: User, door: Client, user_as: UserAS, link: Link, ap: AttachmentPoint, settings: Settings
) -> None:
    settings.TRUSTED_PROXIES = 1
    person, token = Client(), api_token(owner)
    person.force_login(owner)

    def newest() -> tuple[str, str, str | None, int | None, int | None]:
        found = BandwidthChange.objects.first()
        assert found is not None
        return found.kind, found.actor_email, found.address, found.old_kbit, found.new_kbit

    def send(who: Client, url: str, data: dict[str, object]) -> None:
        headers = {"X-Forwarded-For": "198.51.100.77"}
        answer = who.post(url, data, headers=headers)
        assert answer.status_code == 302
        if "/cockpit/" in answer.headers["Location"]:
            confirm_preview(who, answer, headers=headers)

    own = f"/ases/{user_as.pk}/"
    send(person, f"{own}links/{link.pk}/bandwidth/", {f"link-{link.pk}-bandwidth_kbit": "600"})
    assert newest() == ("link", owner.email, "198.51.100.77", 1000, 600)

    page = Page(person.get(f"{own}edit/")).post_data()
    send(person, f"{own}edit/", {**page, "save": "1", "attachments-0-bandwidth_kbit": "500"})
    assert newest() == ("link", owner.email, "198.51.100.77", 600, 500)

    headers = {"Authorization": f"Token {token}", "X-Forwarded-For": "2001:db8::77"}
    url, body = f"/api/v1/links/{link.pk}/", {"bandwidth_kbit": 400}
    assert Client().patch(url, body, content_type="application/json", headers=headers).status_code == 200
    assert newest() == ("link", owner.email, "2001:db8::77", 500, 400)

    send(door, f"/admin/testbed/link/{link.pk}/change/", {"bandwidth_kbit": "350", "active": "on", "mtu": "1472"})
    assert newest() == ("link", staff.email, "198.51.100.77", 400, 350)
    send(door, "/admin/testbed/bandwidthpolicy/1/change/", {"default_bandwidth_kbit": "900"})
    assert newest() == ("site_default", staff.email, "198.51.100.77", 1000, 900)

    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=300, actor=None)  # by the service: from nowhere
    assert newest() == ("link", "", None, 350, 300)
