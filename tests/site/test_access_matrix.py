"""Every address x every kind of caller x every method: the status is what the rule says, a refusal changes nothing, and
no body holds a secret, an email address or an address of somebody else.

An address that is not in `RULES` fails: whoever adds one says here who may use it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from itertools import product
from typing import Any
from urllib.parse import urlencode

import pytest
from django.apps import apps
from django.contrib.sessions.models import Session
from django.core.handlers.base import BaseHandler
from django.db import connection, transaction
from django.http.response import HttpResponseBase
from django.test import RequestFactory
from pytest_django.plugin import DjangoDbBlocker

from scionlab.delivery.polls import known
from scionlab.delivery.polls.application import read_poll
from scionlab.testbed.models import Host
from tests.support.access import (
    METHODS,
    SAFE,
    Admin,
    Caller,
    Enrolment,
    Form,
    HostApi,
    LogIn,
    Marker,
    Page,
    PageOwner,
    PublicRest,
    Rest,
    RestAdministrators,
    RestOwner,
    RestStaff,
    Rule,
    Staff,
    Statuses,
    Token,
    World,
    addresses,
    body_of,
    build_world,
    site,
    undone,
)
from tests.support.polling import AGENT

__all__ = ["site"]  # the fixture
pytestmark = pytest.mark.django_db
FROM_ANYWHERE = RequestFactory()

READ = {"GET": 200, "HEAD": 200}
ENTER = READ | {"POST": 200}
LOOK = {"OPTIONS": 200}
TO_OURS = {method: {302, 403} for method in METHODS}  # 403: who is logged in and no administrator
ENTER_IF_ASKED = dict.fromkeys(ENTER, 302)  # the password is asked for first
DONE = {200, 302}  # a form with its errors, or what was wanted was done
SECRET, TOKEN = frozenset({"secret"}), frozenset({"token"})

RULES: dict[str, Rule] = {
    "front": LogIn(READ),
    "security_txt": Form({"GET": 404, "HEAD": 404}),  # no contact is set
    "livez": Form(READ),
    "readyz": Form(READ),
    "metrics": Form({"GET": 404, "HEAD": 404}),  # nobody may, unless a setting says so
    "mails": Form({"GET": 404, "HEAD": 404}),  # only with development settings
    "login": LogIn(ENTER),
    "password": Page(ENTER),
    "logout": Form({"POST": 302, "OPTIONS": 200}),
    "register": LogIn(ENTER),
    "register_sent": Form(READ),
    "account_confirm_link": Form({"GET": 302, "HEAD": 302}),
    "account_confirm": Form({"GET": 410, "HEAD": 410, "POST": 410}),  # without a link
    "password_reset": Form(ENTER),
    "password_reset_sent": Form(READ),
    "account_reset_password_from_key": Form({"GET": 410, "HEAD": 410, "POST": 410}),
    "mail_unsubscribe": Rule({"GET": 410, "HEAD": 410, "POST": 410}),  # the link is the proof, not the session
    "profile": Page(ENTER),
    "email_change": Page(ENTER),
    "account_login": LogIn(ENTER),
    "mfa_authenticate": Form({"GET": 302, "HEAD": 302, "POST": 302}),  # without the right password
    "mfa_index": Page(READ),
    "mfa_list_webauthn": Page(READ),
    "account_reauthenticate": Page(ENTER),
    "mfa_reauthenticate": Page(ENTER_IF_ASKED),
    "mfa_reauthenticate_webauthn": Page(ENTER_IF_ASKED),
    "mfa_activate_totp": Page(ENTER_IF_ASKED),
    "mfa_deactivate_totp": Page(dict.fromkeys(ENTER, 404)),  # there is none
    "mfa_view_recovery_codes": Page(dict.fromkeys(READ, 404)),
    "mfa_generate_recovery_codes": Page(ENTER_IF_ASKED),
    "mfa_add_webauthn": Page(ENTER_IF_ASKED),
    "mfa_remove_webauthn": Page(ENTER_IF_ASKED),
    "api_tokens": Page(ENTER),
    "api_token_revoke": PageOwner({"POST": 302}),
    "account_delete": Page(ENTER),
    "search": Page(READ),
    "user_as_list": Page(READ),
    "ases_now": Page(READ),
    "user_as_create": Page(ENTER),
    "attachment_preview": Page(READ),
    "user_as_detail": Page(READ, own=True),
    "user_as_paths": Page(READ, own=True),
    "joint_test_new": Page(READ | {"POST": DONE}, own=True),
    "joint_test": Page(READ, own=True),
    "joint_test_cancel": Page({"POST": 302}, own=True),
    "user_as_edit": Page(READ | {"POST": DONE}, own=True),
    "user_as_limit": Page({"POST": 302}, own=True),
    "user_as_active": Page({"POST": 302}, own=True),
    "user_as_delete": Page(READ | {"POST": 302}, own=True),
    "user_as_download": Page(READ, own=True, shows=SECRET),
    "link_detail": Page(READ, own=True),
    "link_bandwidth": Page({"GET": 302, "HEAD": 302, "POST": DONE}, own=True),
    "link_preview": Page(READ, own=True),
    "link_history": Page(READ, own=True),
    "link_now": Page(READ, own=True),
    "link_why": Page(READ, own=True),
    "timed_new": Page(READ | {"POST": DONE}, own=True),
    "timed_preview": Page(READ, own=True),
    "timed_cancel": Page({"POST": 302}, own=True),
    "exception_new": Page(READ | {"POST": DONE}, own=True),
    "watch_new": Page(READ | {"POST": DONE}, own=True),
    "link_test": Page(READ, own=True),
    "test_csv": Page(READ, own=True),
    "test_new": Page(READ | {"POST": DONE}, own=True),
    "test_cancel": Page({"POST": 302}, own=True),
    "link_usage": Page(READ, own=True),
    "paths": Page(ENTER),
    "api_paths": Rest(LOOK | {"POST": {200, 400}}, json=True),
    "api_as_list": Rest(LOOK | READ | {"POST": {201, 400}}, json=True),
    "api_as_detail": Rest(LOOK | READ | {"PUT": {200, 400}, "PATCH": 200, "DELETE": 204}, json=True, own=True),
    "api_as_paths": Rest(LOOK | READ, own=True),
    # One Link is too few; of an AS with more it is in test_joint_tests.py.
    "api_as_tests": Rest(LOOK | READ | {"POST": 400}, json=True, own=True),
    "api_joint_test_detail": Rest(LOOK | READ | {"DELETE": 204}, json=True, own=True),
    "api_as_configuration": Rest(LOOK | READ, own=True, shows=SECRET),
    "api_link_list": Rest(LOOK | READ),
    "api_link_detail": Rest(LOOK | READ | {"PATCH": 200}, json=True, own=True),
    "api_link_history": Rest(LOOK | READ, own=True),
    "api_link_timed_limits": Rest(LOOK | READ | {"POST": 201}, json=True, own=True),
    "api_link_tests": Rest(LOOK | READ | {"POST": 201}, json=True, own=True),
    "api_link_test_detail": Rest(LOOK | READ | {"DELETE": 204}, json=True, own=True),
    # A watch has neither; of one that sends both are in test_sending_tests.py.
    "api_link_test_start": RestOwner(LOOK | {"POST": 400}, json=True, own=True),
    "api_link_test_report": RestOwner(LOOK | {"POST": 400}, json=True, own=True),
    "api_timed_limit_detail": Rest(LOOK | READ | {"DELETE": 204}, json=True, own=True),
    "api_attachment_point_list": RestStaff(LOOK | READ),
    "api_attachment_point_detail": RestStaff(LOOK | READ | {"PATCH": 200}, json=True),
    "api_policy": RestStaff(LOOK | READ | {"PATCH": 200}, json=True),
    "api_link_usage": Rest(LOOK | READ, own=True),
    "api_traffic": RestAdministrators(LOOK | READ),
    "api_profile": Rest(LOOK | READ | {"PATCH": 200}, json=True),
    "api_token": Token(LOOK | {"POST": 400, "DELETE": 204}, json=True, shows=TOKEN),
    "api_token_list": Rest(LOOK | READ | {"POST": 201}, json=True),
    "api_token_detail": RestOwner(LOOK | READ | {"DELETE": 204}, json=True),
    "api_schema": PublicRest(LOOK | READ),
    "api_docs": Form(READ),
    "api_operations": Form(READ),
    "host_config": HostApi(READ, shows=SECRET),
    "host_deployed_version": HostApi({"POST": {200, 304}}),
    "host_installed": HostApi({"POST": 200}, json=True),
    "host_enforcement": HostApi({"POST": 200}, json=True),
    "host_live": HostApi({"POST": {200, 400}}, json=True),
    "host_usage": HostApi({"POST": {200, 400}}, json=True),
    "host_test_results": HostApi({"POST": {200, 400}}, json=True),
    "host_enrol": Enrolment({"POST": 200}, json=True, shows=SECRET),
    "api/^(?:v[23]/)?host(?:/(?P<rest>.*))?$": Rule(dict.fromkeys(METHODS, 410)),
    "cockpit": Staff(READ),
    "cockpit_setup": Staff(READ | {"POST": DONE}),
    "cockpit_ap": Staff(READ),
    "cockpit_uplink": Staff({"POST": DONE}),
    "cockpit_not_enforced": Staff(READ),
    "cockpit_history": Staff(READ),
    "cockpit_traffic": Staff(READ),
    "cockpit_traffic_csv": Staff(READ),
    "cockpit_cost": Staff({"POST": DONE}),
    "cockpit_exceptions": Staff(READ | {"POST": DONE}),
    "cockpit_exception_decide": Staff({"POST": DONE}),
    "cockpit_exception_end": Staff({"POST": DONE}),
    "cockpit_group_new": Staff(READ | {"POST": DONE}),
    "cockpit_group": Staff(READ | {"POST": DONE}),
    "cockpit_defaults": Staff(READ | {"POST": DONE}),
    "cockpit_defaults_change": Staff(READ),
    "cockpit_defaults_apply": Staff({"POST": DONE}),
    "cockpit_defaults_put_back": Staff({"POST": DONE}),
    "admin/login/": Form(TO_OURS),
    "admin:login": Form(TO_OURS),
    "admin:index": Admin(ENTER),
    "admin:logout": Admin({"POST": DONE}),
    "admin:password_change": Admin(READ | {"POST": DONE}),
    "admin:password_change_done": Admin(READ),
    "admin:autocomplete": Admin(READ),
    "admin:jsi18n": Admin(READ),
    "admin:view_on_site": Admin(dict.fromkeys(METHODS, 404)),  # no model of ours has such a page
    "admin:app_list": Admin(ENTER),
    "admin/(?P<url>.*)$": Admin(dict.fromkeys(METHODS, 404)),
    "admin:auth_user_password_change": Admin(READ | {"POST": DONE}),
    "admin:testbed_host_agent": Admin({"GET": 200}, shows=SECRET),
    "admin:testbed_host_config": Admin({"GET": 200}, shows=SECRET),
    "admin:testbed_host_files": Admin({"GET": 200}, shows=SECRET),
    "admin:testbed_host_files_change": Admin({"POST": DONE}),
    "admin:testbed_host_enrol": Admin({"POST": DONE}, shows=SECRET),
    "admin:testbed_as_keys": Admin(READ | {"POST": DONE}),
    "admin:delivery_signingkey_rotate": Admin(READ | {"POST": DONE}),
    "admin:delivery_signingkey_revoke": Admin(READ | {"POST": DONE}),
    "admin:testbed_host_rotate": Admin({"POST": DONE}),
}

# What an administrator may do with the rows of each model; looking at them always.
MAY: dict[str, set[str]] = {
    "link": {"add", "change", "delete"},
    "mail": set(),
    "hostreceipt": set(),
    "host": {"add", "change"},
    "isd": {"add", "change", "delete"},
    "as": {"add", "change", "delete"},
    "interface": set(),
    "borderrouter": {"add"},
    "vpn": {"add", "change", "delete"},
    "bandwidthpolicy": {"change"},
    "attachmentpoint": {"add", "change", "delete"},
    "user": {"add", "change", "delete"},
    "useras": {"delete"},
    "signingkey": set(),
    "enrolmenttoken": set(),
    "testpolicy": {"add", "change", "delete"},
    "group": {"add", "change", "delete"},
}


def is_of_a_table(route: str) -> bool:
    return route.startswith(tuple(f"admin/{one.label}/" for one in apps.get_app_configs()))


def rule_of(route: str, name: str) -> Rule | None:
    if name in RULES:
        return RULES[name]
    parts = route.split("/")
    if not is_of_a_table(route) or parts[2] not in MAY:
        return None
    may, what = MAY[parts[2]], parts[-2]
    if name.endswith("_changelist"):
        what = "changelist"
    kinds: dict[str, Statuses] = {
        "changelist": {"GET": DONE, "HEAD": DONE, "POST": DONE},
        "history": ENTER,
        "<path:object_id>": dict.fromkeys(METHODS, 302),  # leads to "change"
        "change": READ | {"POST": DONE if "change" in may else 403},
        "add": dict.fromkeys(METHODS, DONE if "add" in may else 403),
        "delete": dict.fromkeys(METHODS, DONE if "delete" in may else 403),
    }
    return Admin(kinds[what]) if what in kinds else None


# What would do harm behind each address, if it got there.
HARM_FORM = {
    "save": "1",
    "_save": "Save",
    "post": "yes",
    "active": "0",
    "label": "taken over",
    "installation_type": "dedicated",
    "action": "delete_selected",
    "version": "1.1",
    "bandwidth_kbit": "1",
    "reason": "",
    "kind": "set",
    "value": "1",
    "uplink_kbit": "1",
    "cost_per_gb": "1",
    "currency": "XXX",
    "default_bandwidth_kbit": "1",
    "usable_password": "true",
    "password1": "a phrase of mine",
    "password2": "a phrase of mine",
}
HARM_JSON: dict[tuple[str, str], Any] = {
    ("api_as_detail", "PATCH"): {"active": False},
    ("api_link_detail", "PATCH"): {"bandwidth_kbit": 1, "active": False},
    ("api_link_timed_limits", "POST"): {"kind": "outage", "duration_s": 60},
    ("api_link_tests", "POST"): {"duration_s": 60},
    ("api_as_tests", "POST"): {"seconds": 5},
    ("api_attachment_point_detail", "PATCH"): {"own_default_bandwidth_kbit": 1},
    ("api_profile", "PATCH"): {"full_name": "taken over"},
    ("api_policy", "PATCH"): {"default_bandwidth_kbit": 1},
    ("api_token_list", "POST"): {"name": "another"},
    ("host_installed", "POST"): {},
}
HARM_AS: dict[str, Any] = {"label": "taken over", "attachments": []}
RECEIPT = {
    "schema": 1,
    "agent_version": "0.1.0",
    "version": "1.1",
    "limits_version": 1,
    "observed_at": "2026-11-21T06:00:00Z",
    "writes": 0,
    "links": {},
    "problems": [],
}


@pytest.fixture(scope="module")
def world(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[World]:
    """Built once, and undone at the end with all that the requests did."""
    with undone(django_db_blocker):
        built = build_world()
        before = everything()
        yield built
        assert everything() == before  # whatever was refused, and whatever was served and undone


def everything() -> dict[str, list[tuple[object, ...]]]:
    return {
        model._meta.label: list(model._base_manager.order_by("pk").values_list())
        for model in apps.get_models()
        if model is not Session  # looking at a page may begin one
    }


class Writes:
    """Collects statements that wrote: what is refused writes nothing. (Looking at a page may begin a session, and it is
    noted which limits a configuration has that somebody is given.)"""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        harmless = sql.lstrip().startswith(("SELECT", "SAVEPOINT", "RELEASE SAVEPOINT", "ROLLBACK TO SAVEPOINT"))
        result = execute(sql, params, many, context)
        is_note = '"django_session"' in sql or '"delivery_issuedlimits"' in sql
        if not harmless and not is_note and context["cursor"].rowcount != 0:
            self.seen.append(sql[:120])
        return result


def urls_of(route: str, name: str, world: World) -> list[tuple[str, Host | None]]:
    """Concrete addresses, with the host that each is about."""
    if "<str:uid>" in route:
        hosts = (world.ap_host, world.user_host, world.other_host)
        return [("/" + route.replace("<str:uid>", host.uid), host) for host in hosts]
    if name == "admin/(?P<url>.*)$":
        return [("/admin/testbed/nothing/", None)]
    parts = route.split("/")
    starts = {
        "account/tokens/": "apitoken",
        "cockpit/aps/": "attachmentpoint",
        "cockpit/exceptions/": "maximumexception",
        "cockpit/groups/": "groupexception",
        "cockpit/defaults/": "defaultchange",
        "api/v1/links/": "link",
        "api/v1/timed-limits/": "timedlimit",
        "api/v1/tests/": "linktest",
        "api/v1/joint-tests/": "jointtest",
        "api/v1/attachment-points/": "attachmentpoint",
        "api/v1/tokens/": "apitoken",
    }
    for start, what in starts.items():
        if route.startswith(start):
            route = route.replace("<key:pk>", str(world.objects[what].pk))
    thing = world.objects.get(parts[2]) if is_of_a_table(route) and len(parts) > 2 else None
    pk = str(thing.pk if thing is not None else 1)
    values = {
        "<key:pk>": str(world.user_as.pk),
        "<str:tool>": "quick",
        "<str:token>": "WzEsIngiXQ:1vMF0s:forged",
        "<str:uidb64>": "MQ",
        "<key:link_id>": str(world.link.pk),
        "<key:timed_id>": str(world.objects["timedlimit"].pk),
        "<key:joint_id>": str(world.objects["jointtest"].pk),
        "<key:test_id>": str(world.objects["linktest"].pk),
        "<usage_kind:kind>": "json",
        "<int:pk>": str(world.link.pk) if "links/" in route else pk if thing is not None else str(world.user_as.pk),
        "<path:content_type_id>": "1",
        "<path:object_id>": pk,
        "<id>": pk,
        "^(?:v[23]/)?host(?:/(?P<rest>.*))?$": "v3/host/x",
    }
    for place, value in values.items():
        route = route.replace(place, value)
    route = re.sub(r"\^\(\?P<app_label>[a-z_|]+\)/\$", "testbed/", route)
    return [("/" + route, None)]


def ask(
    site: BaseHandler, caller: Caller, method: str, url: str, name: str, rule: Rule, world: World
) -> HttpResponseBase:
    sent = {"headers": {"Authorization": caller.authorization} | AGENT} if caller.authorization else {}
    if caller.cookie:
        sent.setdefault("headers", {})["Cookie"] = f"sessionid={caller.cookie}"
    if method in SAFE:
        query = "?app_label=testbed&model_name=link&field_name=interface_a" if name == "admin:autocomplete" else ""
        request = FROM_ANYWHERE.generic(method, url + query, **sent)
    elif rule.json:
        body: dict[str, Any] = RECEIPT if name == "host_enforcement" else HARM_JSON.get((name, method), HARM_AS)
        if name == "host_enrol":
            body = {"token": caller.enrolment_token or "x" * 43}
        request = FROM_ANYWHERE.generic(method, url, json.dumps(body), content_type="application/json", **sent)
    else:
        form = HARM_FORM | {f"link-{world.link.pk}-bandwidth_kbit": "1", "_selected_action": str(world.link.pk)}
        form_type = "application/x-www-form-urlencoded"
        request = FROM_ANYWHERE.generic(method, url, urlencode(form), content_type=form_type, **sent)
    request._dont_enforce_csrf_checks = caller.has_csrf_token
    return site.get_response(request)


def leaks(caller: Caller, rule: Rule, host: Host | None, world: World, body: str) -> list[str]:
    """Kinds of what the body holds and this caller may not read, or not here."""
    person = caller.page_person or caller.api_person
    known = {host.pk} if host is not None and caller.host == host else set()
    if caller.enrolment_token and isinstance(rule, Enrolment):
        known = {world.ap_host.pk}

    def may_read(marker: Marker) -> bool:
        is_admin = person is not None and person.is_staff
        mine = (person is not None and person.pk in marker.people) or bool(known & marker.hosts)
        match marker.kind:
            case "secret":
                return "secret" in rule.shows and (mine or is_admin)
            case "address" | "email address":
                return mine or is_admin
            case "API token":
                return "token" in rule.shows and mine
            case _:
                return False

    return [marker.kind for marker in world.markers if marker.text in body and not may_read(marker)]


EVERYTHING = os.environ.get("SLBW_EVERY_CALLER") == "1"
# Of the callers whose kind of credentials an address does not look at: the most privileged one of each kind.
ELSEWHERE = {"administrator", "administrator with token", "revoked token", "attachment point's host"}
# Of an administrators' page: its gate knows people who are administrators, people who are not, and nobody.
AT_ADMIN = {
    "nobody": ("GET", "POST"),
    "owner": ("GET", "POST"),
    "superuser who is no administrator": ("GET", "POST"),
    "administrator": ("GET", "HEAD", "POST", "PUT"),
    "administrator who is superuser too": ("POST",),
    "administrator by a form on another site": ("POST",),
    "administrator with token": ("POST",),
}


def methods_for(rule: Rule, caller: Caller) -> tuple[str, ...]:
    """What is tried: with SLBW_EVERY_CALLER=1 all of it. Else a request for each answer that can differ: every method
    by an administrator, those that the address knows by nobody and the owner, reading and writing by the others."""
    if EVERYTHING:
        return METHODS
    if isinstance(rule, Admin):
        return AT_ADMIN.get(caller.name, ())
    unsafe = tuple(method for method in rule.statuses if method not in SAFE) or ("POST",)
    if caller.name == "administrator":
        return METHODS
    if caller.name in {"nobody", "owner"}:
        return ("GET", *unsafe, "BREW")
    if isinstance(rule, HostApi):
        is_at_home = caller.authorization.startswith("Basic")
    elif isinstance(rule, Rest):
        is_at_home = bool(caller.cookie) or caller.authorization.startswith("Token")
    else:
        is_at_home = bool(caller.cookie)
    if is_at_home:
        return ("GET", *unsafe)
    return unsafe[:1] if caller.name in ELSEWHERE or isinstance(rule, Enrolment) else ()


def tried(rule: Rule, world: World) -> list[tuple[Caller, str]]:
    return [(caller, method) for caller in world.callers for method in methods_for(rule, caller)]


@pytest.mark.parametrize(("route", "name"), addresses(), ids=str)
def test_who_may_do_what(route: str, name: str, world: World, site: BaseHandler) -> None:
    rule = rule_of(route, name)
    assert rule is not None, f"{route} ({name}) is in no rule: say who may use it"
    wrong: list[str] = []

    def judge(caller: Caller, method: str, url: str, host: Host | None) -> None:
        answer = ask(site, caller, method, url, name, rule, world)
        expected, body = rule.expected(caller, method, world, host), body_of(answer.content)
        if answer.status_code not in expected:
            wrong.append(f"{caller.name}: {method} {url} is {answer.status_code}, not {sorted(expected)}")
        for kind in leaks(caller, rule, host, world, body):
            wrong.append(f"{caller.name}: {method} {url} ({answer.status_code}) shows a {kind}")

    served: list[tuple[Caller, str, str, Host | None]] = []
    writes = Writes()
    with connection.execute_wrapper(writes):
        for url, host in urls_of(route, name, world):
            for caller, method in tried(rule, world):
                changes = method not in SAFE or isinstance(rule, HostApi)  # a host that fetches is noted
                if changes and rule.refusal(caller, method, world, host) is None:
                    served.append((caller, method, url, host))
                    continue
                judge(caller, method, url, host)
                wrong += [f"{caller.name}: {method} {url} wrote: {sql}" for sql in writes.seen]
                writes.seen.clear()
    assert wrong == []
    for caller, method, url, host in served:
        with transaction.atomic():
            judge(caller, method, url, host)
            transaction.set_rollback(True)
    assert wrong == []


def test_polls_that_never_reach_django_are_the_hosts_own(world: World) -> None:
    """The one answer that is given in front of Django, 304, tells that the newest version is this one."""
    hosts = [world.ap_host, world.user_host, world.other_host]
    states = known.read_states([host.uid for host in hosts])
    answered = set()
    for host, caller, method in product(hosts, world.callers, METHODS):
        state = states[host.uid]
        newest = f"version={state.generation}.{state.config_version}&limits={state.limits_version}"
        sent = [(b"host", b"testserver"), (b"authorization", caller.authorization.encode())]
        if caller.cookie:
            sent.append((b"cookie", f"sessionid={caller.cookie}".encode()))
        path = f"/api/v4/host/{host.uid}/config"
        poll = read_poll({"method": method, "path": path, "query_string": newest.encode(), "headers": sent})
        if poll is not None and poll.is_up_to_date(state):
            answered.add((caller.name, method))
            assert caller.host == host, (caller.name, host)
    assert answered == {(caller.name, "GET") for caller in world.callers if caller.host is not None}


def test_every_rule_is_of_an_address_that_exists() -> None:
    names = {name for _, name in addresses()}
    assert RULES.keys() - names == set()
    models = {route.split("/")[2] for route, _ in addresses() if is_of_a_table(route) and route.count("/") > 2}
    assert MAY.keys() == models
