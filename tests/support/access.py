"""For the matrix of access: every address of the service, who asks, and the world that is asked about.

A `Rule` says by what it is (a page of one's own, an endpoint of hosts, an administrators' page) who gets which status
for which method; nothing in it was recorded from the service's answers.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.handlers.base import BaseHandler
from django.db import transaction
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone
from pytest_django.plugin import DjangoDbBlocker
from rest_framework.throttling import SimpleRateThrottle

from bandwidth_config import Limits, LinkStep
from scionlab.accounts.models import ApiToken, Mail, User
from scionlab.delivery.enrolment import enrolment_token_create
from scionlab.delivery.models import EnrolmentToken, SigningKey
from scionlab.limits.default_changes import default_change_preview
from scionlab.limits.default_plan import Operation
from scionlab.limits.exceptions import exception_request
from scionlab.limits.models import MaximumException
from scionlab.limits.profiles import Profile
from scionlab.limits.timed_limit import timed_limit_create
from scionlab.limits.update import link_set_bandwidth
from scionlab.linktests.link_test import link_test_create
from scionlab.linktests.models import JointTest, TestPolicy
from scionlab.platform.notation.isd_as import parse_as_id
from scionlab.testbed.models import Host, Link, UserAS
from tests.factories import (
    AttachmentPointFactory,
    HostReceiptFactory,
    LinkEnforcementFactory,
    UserFactory,
    VPNFactory,
    api_token,
    attach,
    spec,
)

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")
SAFE = {"GET", "HEAD", "OPTIONS", "TRACE"}
Statuses = Mapping[str, int | set[int]]


# --- who asks -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Caller:
    """`person` and `host` are who the service should take it for; `basic_of` is the host whose id is sent."""

    name: str
    cookie: str = ""
    authorization: str = ""
    page_person: User | None = None
    api_person: User | None = None
    host: Host | None = None
    token_refused: bool = False  # sends an API token that is none: refused even where nobody need be known
    has_csrf_token: bool = True  # or is a form on another site, sent by the browser of who is logged in here
    enrolment_token: str = ""


@dataclass(frozen=True)
class Marker:
    """A text that a body must not hold, but for these people and hosts (by key)."""

    kind: str
    text: str
    people: frozenset[int] = frozenset()
    hosts: frozenset[int] = frozenset()


@dataclass
class World:
    """What the callers want something of."""

    owner: User
    stranger: User
    administrator: User
    user_as: UserAS
    link: Link
    ap_host: Host
    user_host: Host
    other_host: Host
    callers: list[Caller]
    objects: dict[str, Any] = field(default_factory=dict)  # model name -> one of it
    markers: list[Marker] = field(default_factory=list)


@contextmanager
def undone(blocker: DjangoDbBlocker) -> Iterator[None]:
    """Nothing is throttled, and of what is written meanwhile nothing stays."""
    with blocker.unblock(), pytest.MonkeyPatch.context() as patch, transaction.atomic():
        for scope in SimpleRateThrottle.THROTTLE_RATES:
            patch.setitem(SimpleRateThrottle.THROTTLE_RATES, scope, "100000/min")
        yield
        transaction.set_rollback(True)


@pytest.fixture(scope="module")
def site() -> BaseHandler:
    """All of the service below the web server."""
    handler = BaseHandler()
    handler.load_middleware()
    return handler


def basic(host: Host, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{host.uid}:{secret}".encode()).decode()


def session_of(user: User) -> str:
    browser = Client()
    browser.force_login(user)
    return browser.cookies["sessionid"].value


def build_world() -> World:
    """The owner's AS at one attachment point, a stranger's at another, and an administrator."""
    owner, stranger = UserFactory(email="mark-owner@example.org"), UserFactory(email="mark-stranger@example.org")
    administrator = UserFactory(email="mark-administrator@example.org", is_staff=True)
    root = UserFactory(email="mark-root@example.org", is_staff=True, is_superuser=True)
    superuser = UserFactory(email="mark-superuser@example.org", is_superuser=True)
    inactive = UserFactory(email="mark-inactive@example.org", is_staff=True)
    ap = AttachmentPointFactory(AS__as_id=parse_as_id("ffaa:0:1107"), host__public_ipv4="192.0.2.1")
    ap_b = AttachmentPointFactory(AS__as_id=parse_as_id("ffaa:0:1108"), host__public_ipv4="192.0.2.2")
    user_as = attach(owner, spec(ap, public_ip="198.51.100.71"), label="Marked")
    attach(stranger, spec(ap_b, public_ip="198.51.100.99"), label="Strange")
    link = Link.objects.get(interface_b__AS=user_as.pk)
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=640, actor=owner)
    ap_host, user_host = Host.objects.get(pk=ap.host_id), Host.objects.get(AS=user_as.pk)
    late = Host.objects.get(pk=ap_b.host_id)
    for host, previous, until in ((ap_host, "d" * 32, timedelta(hours=1)), (late, "e" * 32, -timedelta(hours=1))):
        host.previous_secret, host.previous_secret_until = previous, timezone.now() + until
        host.save()
    random = enrolment_token_create(host_id=ap_host.pk, actor=administrator).text.split(".")[1]
    now = timezone.now()
    objects = {
        "link": link,
        "bandwidthchange": link.changes.first(),
        "mail": Mail.objects.create(key="x", recipient=owner.email, subject="Enforced", body="now"),
        "hostreceipt": HostReceiptFactory(host=ap_host, received_at=now),
        "linkenforcement": LinkEnforcementFactory(link=link, received_at=now),
        "host": ap_host,
        "isd": ap.AS.isd,
        "as": ap.AS,
        "interface": link.interface_a,
        "borderrouter": ap_host.border_routers.first(),
        "vpn": VPNFactory(host=ap_host),
        "attachmentpoint": ap,
        "defaultchange": default_change_preview(
            keys=[ap.pk], operation=Operation("set", 320), chosen="one", actor=administrator
        ),
        "user": owner,
        "useras": user_as,
        "signingkey": SigningKey.objects.get(),
        "enrolmenttoken": EnrolmentToken.objects.get(),
    }
    world = World(owner, stranger, administrator, user_as, link, ap_host, user_host, late, [], objects)
    outage = Profile("outage", (LinkStep(0, Limits.both(0)),), 3600)
    objects["timedlimit"] = timed_limit_create(
        link_id=link.pk, profile=outage, begins_at=now + timedelta(days=1), actor=owner
    )
    objects["linktest"] = link_test_create(
        link_id=link.pk, duration_s=60, begins_at=now + timedelta(days=1), actor=owner
    )
    objects["jointtest"] = JointTest.objects.create(
        user_as=user_as,
        begins_at=now + timedelta(days=2),
        ends_at=now + timedelta(days=2, minutes=1),
        created_by=owner,
    )
    objects["maximumexception"] = exception_request(
        link_id=link.pk, maximum_kbit=5000, ends_at=now + timedelta(days=7), reason="A measurement.", actor=owner
    )
    objects["groupexception"] = MaximumException.objects.create(
        group=Group.objects.create(name="Course"),
        maximum_kbit=5000,
        ends_at=now + timedelta(days=7),
        reason="A course.",
        state="approved",
    )
    objects["testpolicy"] = TestPolicy.objects.create(
        applies_to="everybody", max_seconds=60, runs_per_day=9, max_pending=9, horizon_hours=48
    )
    objects["group"] = Group.objects.create(name="students")
    tokens = {user: api_token(user) for user in (owner, stranger, administrator, inactive)}
    objects["apitoken"] = ApiToken.objects.get(user=owner)
    revoked = "f" * 40
    people = {
        "owner": owner,
        "stranger": stranger,
        "administrator": administrator,
        "administrator who is superuser too": root,
        "superuser who is no administrator": superuser,
    }
    world.callers = [
        Caller("nobody"),
        *(Caller(name, cookie=session_of(one), page_person=one, api_person=one) for name, one in people.items()),
        *(
            Caller(
                f"{name} by a form on another site",
                session_of(one),
                page_person=one,
                api_person=one,
                has_csrf_token=False,
            )
            for name, one in (("owner", owner), ("administrator", administrator))
        ),
        Caller("session of an account switched off", cookie=session_of(inactive)),
        *(
            Caller(f"{name} with token", authorization=f"Token {tokens[one]}", api_person=one)
            for name, one in (("owner", owner), ("stranger", stranger), ("administrator", administrator))
        ),
        Caller("token of an account switched off", authorization=f"Token {tokens[inactive]}", token_refused=True),
        Caller("revoked token", authorization=f"Token {revoked}", token_refused=True),
        Caller("enrolment token as token", authorization=f"Token {random}", token_refused=True),
        Caller("attachment point's host", authorization=basic(ap_host, ap_host.secret), host=ap_host),
        Caller("the same with its former secret", authorization=basic(ap_host, "d" * 32), host=ap_host),
        Caller("another attachment point's host", authorization=basic(late, late.secret), host=late),
        Caller("a former secret after its time", authorization=basic(late, "e" * 32)),
        Caller("user AS's host", authorization=basic(user_host, user_host.secret), host=user_host),
        Caller("host with another's secret", authorization=basic(ap_host, user_host.secret)),
        Caller("host with a wrong secret", authorization=basic(ap_host, "0" * 32)),
        Caller("host with no secret", authorization=basic(ap_host, "")),
        Caller("host with an enrolment token for a secret", authorization=basic(ap_host, random)),
        Caller("host that does not exist", authorization=basic(Host(), "0" * 32)),
        Caller("agent with an enrolment token", enrolment_token=random),
    ]
    User.objects.filter(pk=inactive.pk).update(is_active=False)
    world.markers = list(_markers(world, tokens, random, revoked))
    return world


def _markers(world: World, tokens: dict[User, str], random: str, revoked: str) -> Iterator[Marker]:
    for host in Host.objects.select_related("AS__useras"):
        of_user_as = getattr(host.AS, "useras", None)
        people = frozenset() if of_user_as is None else frozenset([of_user_as.owner_id])
        yield Marker("secret", host.secret, people, frozenset([host.pk]))
        if host.previous_secret:
            yield Marker("former secret", host.previous_secret)
        if of_user_as is not None:
            for end in host.interfaces.select_related("link_as_b__interface_a"):
                # The attachment point limits this address, so its host is told.
                hosts = frozenset([host.pk, end.link_as_b.interface_a.host_id])
                yield Marker("address", str(end.public_ip), people, hosts)
    for user in User.objects.all():
        yield Marker("email address", user.email, frozenset([user.pk]))
        yield Marker("password hash", user.password.rsplit("$", 1)[-1])
    for user, key in tokens.items():
        yield Marker("API token", key, frozenset([user.pk]))
    yield Marker("API token", revoked)
    yield Marker("enrolment token", random)
    for key in SigningKey.objects.all():
        yield Marker("signing key", key.private_encrypted)


# --- what is asked ------------------------------------------------------------------------------------------


def addresses() -> list[tuple[str, str]]:
    """(route, name) of everything that the service answers at. A pattern without a name has its route for a name."""

    def walk(resolver: URLResolver, prefix: str, spaces: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        for pattern in resolver.url_patterns:
            route = prefix + str(pattern.pattern)
            if isinstance(pattern, URLPattern):
                yield route, ":".join([*spaces, pattern.name]) if pattern.name else route
            else:
                yield from walk(pattern, route, (*spaces, pattern.namespace) if pattern.namespace else spaces)

    return list(walk(get_resolver(), "", ()))


@dataclass(frozen=True)
class Rule:
    """Public: everybody is served; other methods are 405."""

    statuses: Statuses
    json: bool = False
    own: bool = False  # what belongs to somebody else does not exist
    shows: frozenset[str] = frozenset()  # kinds of secrets that the answer holds for whoever may ask

    def refusal(self, caller: Caller, method: str, world: World, host: Host | None) -> set[int] | None:
        """How the request is refused; None: it is served."""
        return None if method in self.statuses else {405}

    def expected(self, caller: Caller, method: str, world: World, host: Host | None) -> set[int]:
        refusal = self.refusal(caller, method, world, host)
        found = self.statuses[method] if refusal is None else refusal
        return found if isinstance(found, set) else {found}


class Form(Rule):
    """A page for everybody, whose forms are protected anyway."""

    def refusal(self, caller: Caller, method: str, world: World, host: Host | None) -> set[int] | None:
        if not caller.has_csrf_token and method not in SAFE:
            return {403, 405}
        return super().refusal(caller, method, world, host)


class LogIn(Form):
    """Who is logged in is sent on."""

    def refusal(self, caller: Caller, method: str, world: World, host: Host | None) -> set[int] | None:
        refusal = super().refusal(caller, method, world, host)
        return {302, *(refusal or ())} if caller.page_person is not None else refusal


class Page(Rule):
    """For people who are logged in."""

    def refusal(self, caller: Caller, method: str, world: World, host: Host | None) -> set[int] | None:
        if not caller.has_csrf_token and method not in SAFE:
            return {403}
        if method not in self.statuses:
            return {405}
        if caller.page_person is None:
            return {403 if method == "POST" else 302}  # the log-in page, which carries what was typed
        return {404} if self.own and not may_see(caller.page_person, world) else None


class PageOwner(Page):
    """What not even administrators see of somebody else."""

    def refusal(self, caller: Caller, method: str, world: World, host: Host | None) -> set[int] | None:
        refusal = super().refusal(caller, method, world, host)
        return {404} if refusal is None and caller.page_person != world.owner else refusal


class Staff(Page):
    """The cockpit: for administrators; everybody else who is logged in is refused."""

    def refusal(self, caller: Caller, method: str, world: World, host: Host | None) -> set[int] | None:
        refusal = super().refusal(caller, method, world, host)
        if refusal is None and caller.page_person is not None and not caller.page_person.is_staff:
            return {403}
        return refusal


class Rest(Rule):
    """The REST API: who asks is looked at before what."""

    def refusal(self, caller: Caller, method: str, world: World, host: Host | None) -> set[int] | None:
        if caller.token_refused:
            return {401}
        if caller.api_person is not None and not caller.has_csrf_token and method not in SAFE:
            return {403}
        if method not in self.statuses:
            return {405} if self.serves_anybody(method) or caller.api_person is not None else {401}
        if caller.api_person is None:
            return None if self.serves_anybody(method) else {401}
        return {404} if self.own and method != "OPTIONS" and not may_see(caller.api_person, world) else None

    def serves_anybody(self, method: str) -> bool:
        return False


class RestStaff(Rest):
    """Everybody may look, administrators write."""

    def refusal(self, caller: Caller, method: str, world: World, host: Host | None) -> set[int] | None:
        refusal = super().refusal(caller, method, world, host)
        is_administrator = caller.api_person is not None and caller.api_person.is_staff
        if refusal is None and method not in SAFE and caller.api_person is not None and not is_administrator:
            return {403}
        return refusal


class RestAdministrators(Rest):
    """Others are refused whatever they do."""

    def refusal(self, caller: Caller, method: str, world: World, host: Host | None) -> set[int] | None:
        refusal = super().refusal(caller, method, world, host)
        is_another = caller.api_person is not None and not caller.api_person.is_staff
        return {403} if refusal in (None, {405}) and is_another else refusal


class RestOwner(Rest):
    """What not even administrators see of somebody else."""

    def refusal(self, caller: Caller, method: str, world: World, host: Host | None) -> set[int] | None:
        refusal = super().refusal(caller, method, world, host)
        is_another = caller.api_person is not None and caller.api_person != world.owner
        return {404} if refusal is None and is_another and method != "OPTIONS" else refusal


class Token(Rest):
    """Who has no token yet may ask for one."""

    def serves_anybody(self, method: str) -> bool:
        return method == "POST"


class PublicRest(Rest):
    def serves_anybody(self, method: str) -> bool:
        return True


class HostApi(Rule):
    """A host reads and writes itself alone."""

    def refusal(self, caller: Caller, method: str, world: World, host: Host | None) -> set[int] | None:
        if method not in self.statuses:
            return {405}
        return None if caller.host is not None and caller.host == host else {401}


class Enrolment(Rule):
    """For whoever has a token that was not used yet."""

    def refusal(self, caller: Caller, method: str, world: World, host: Host | None) -> set[int] | None:
        if method not in self.statuses:
            return {405}
        return None if caller.enrolment_token else {403}


class Admin(Rule):
    """For administrators; everybody else is sent to the log-in, and learns nothing of what is there."""

    def refusal(self, caller: Caller, method: str, world: World, host: Host | None) -> set[int] | None:
        if method not in {"GET", "HEAD", "POST"}:
            return {405}
        if not caller.has_csrf_token and method not in SAFE:
            return {403}
        if caller.page_person is None or not caller.page_person.is_staff:
            return {302}
        return None if method in self.statuses else {405}


def may_see(person: User, world: World) -> bool:
    return person == world.owner or person.is_staff


def body_of(content: bytes) -> str:
    return (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode("utf-8", "replace")
