"""Every service takes its row locks in the order of `testbed.locks`, as PostgreSQL itself tells it."""

from __future__ import annotations

import ast
import inspect
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_django
from django.contrib.auth.models import Group
from django.core.cache import cache
from django.db import connection, models, transaction
from django.test import Client
from django.utils import timezone

import scionlab
from bandwidth_config import Limits
from scionlab.accounts import account, api_token, mail_links, second_factor
from scionlab.accounts.models import Mail, MailKind, User
from scionlab.delivery import enrolment, evidence, installed, render, signing
from scionlab.delivery.last_contact import HOSTS
from scionlab.delivery.models import SigningKey
from scionlab.enforcement import generation, notices, receipt, receipt_mails
from scionlab.enforcement.models import NoticeWatch
from scionlab.enforcement.receipt_format import Receipt
from scionlab.importer import importer
from scionlab.importer.network import read_network
from scionlab.limits import default_changes, defaults, exceptions, profiles, timed_limit, uplink
from scionlab.limits import update as link
from scionlab.limits.default_plan import SITE, Operation
from scionlab.limits.models import MaximumException
from scionlab.linktests import joint_test, link_test, test_mails, test_results
from scionlab.linktests.models import JointTest, LinkTest
from scionlab.platform import last_contact
from scionlab.scion_config import chain, isd, renewal, vpn
from scionlab.scion_config.models import TRC
from scionlab.testbed import first_setup, host, infrastructure, infrastructure_links, selectors
from scionlab.testbed import locks as order_of_locks
from scionlab.testbed.models import (
    AS,
    AttachmentPoint,
    BandwidthPolicy,
    HeldLinkEnd,
    Host,
    Link,
    RestartBudget,
    TimedLimit,
    UserAS,
)
from scionlab.testbed.versions import counters, restarts
from scionlab.user_ases import user_as
from scionlab.web.rest import idempotency
from tests.concurrency.row_locks import ORDER, recorded
from tests.conftest import FILLED_ONCE
from tests.factories import UserFactory, attach, spec
from tests.joint_world import confirm
from tests.receipts import enforced_entry, receipt_at
from tests.support.polling import credentials
from tests.upstream_dump import Dump, small


@dataclass
class World:
    """`near` and `far` are attachment points with two user ASes at both; `core` has two hosts and a Link to `near`."""

    owner: User
    boss: User
    near: AttachmentPoint
    far: AttachmentPoint
    core: AS
    first: UserAS
    second: UserAS

    @property
    def link(self) -> Link:
        return Link.objects.filter(interface_b__AS=self.first.pk).order_by("pk")[0]

    @property
    def specs(self) -> list[Any]:
        return [
            spec(self.far, public_ip="198.51.100.50"),
            spec(self.near, public_ip="198.51.100.50", public_port=50001),
        ]

    def token(self, purpose: str, email: str, user: User | None = None) -> str:
        asked = Mail.objects.create(key="asked", purpose=purpose, recipient=email, user=user)
        return mail_links.confirm_link(asked).rstrip("/").rsplit("/", 1)[-1]

    def timed(self) -> TimedLimit:
        values = {"profile": profiles.outage(600), "begins_at": None, "actor": self.owner}
        return timed_limit.timed_limit_create(link_id=self.link.pk, **values)

    def watch(self) -> LinkTest:
        return link_test.link_test_create(link_id=self.link.pk, duration_s=60, begins_at=None, actor=self.owner)

    def joint(self) -> JointTest:
        """At both attachment points; `confirm` before."""
        return joint_test.joint_test_create(user_as_id=self.first.pk, actor=self.owner)

    def lower_all(self) -> None:
        """Defaults that nobody has carried out yet, below what the Links have."""
        BandwidthPolicy.objects.update(default_bandwidth_kbit=200)


def further(as_: AS, boss: User, public_ipv4: str, internal_ip: str) -> Host:
    values = {"public_ipv4": public_ipv4, "public_ipv6": None, "bind_ip": None, "internal_ip": internal_ip}
    return host.host_create(as_=as_, actor=boss, label="", **values)


class Kept:
    """A world in a schema of its own: its keys and certificates are made once, and its rows copied for each test."""

    def __init__(self) -> None:
        self._tables: list[str] = []
        self._rows: dict[str, models.Model] = {}

    def keep(self, world: World) -> None:
        self._rows = vars(world)
        with connection.cursor() as cursor:
            cursor.execute("CREATE SCHEMA kept")
            for table in connection.introspection.django_table_names(only_existing=True, include_views=False):
                cursor.execute(f"SELECT EXISTS (SELECT FROM {table})")  # noqa: S608  Django's own name of it
                if table not in FILLED_ONCE and cursor.fetchone() == (True,):
                    cursor.execute(f"CREATE TABLE kept.{table} AS TABLE {table}")
                    self._tables.append(table)

    def copy(self) -> World | None:
        if not self._rows:
            return None
        copies = (f"DELETE FROM {one}; INSERT INTO {one} TABLE kept.{one};" for one in self._tables)  # noqa: S608  as above
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL session_replication_role = replica; {' '.join(copies)}")
        cache.clear()
        return World(**{name: type(row)._default_manager.get(pk=row.pk) for name, row in self._rows.items()})

    def forget(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("DROP SCHEMA IF EXISTS kept CASCADE")


@pytest.fixture(scope="module")
def kept(django_db_setup: None, django_db_blocker: pytest_django.DjangoDbBlocker) -> Iterator[Kept]:
    made = Kept()
    yield made
    with django_db_blocker.unblock():
        made.forget()


@pytest.fixture
def world(kept: Kept, request: pytest.FixtureRequest, _real_database: None) -> World:
    return kept.copy() or made(kept, *(request.getfixturevalue(name) for name in ("owner", "ap", "ap_b")))


def made(kept: Kept, owner: User, ap: AttachmentPoint, ap_b: AttachmentPoint) -> World:
    boss = UserFactory(email="boss@example.org", is_staff=True)
    UserFactory(email="other@example.org", is_staff=True)
    core = infrastructure.infrastructure_as_create(
        isd=17, as_text="ffaa:0:1101", label="Core", is_core=True, public_ipv4="192.0.2.11"
    )
    Host.objects.filter(AS=core).update(internal_ip="10.0.0.1")
    first = attach(owner, spec(ap_b), spec(ap, public_port=50001))
    second = attach(owner, spec(ap, public_ip="198.51.100.8"), spec(ap_b, public_ip="198.51.100.8", public_port=50001))
    further(core, boss, "192.0.2.12", "10.0.0.2")
    Host.objects.filter(pk=ap.host_id).update(internal_ip="10.0.0.8")
    further(ap.AS, boss, "192.0.2.9", "10.0.0.9")
    infrastructure_links.infrastructure_link_create(a=core, b=ap.AS, type=Link.Type.PROVIDER)
    signing.signing_key_ensure()
    world = World(owner, boss, ap, ap_b, core, first, second)
    kept.keep(world)
    return world


# --- what each service is asked for; what it needs beforehand is done outside of the recording -----------------------

Work = Callable[[], object]


def _update(w: World) -> Work:
    w.lower_all()
    values = {"label": "", "installation_type": "dedicated", "attachments": w.specs, "actor": w.owner}
    return lambda: user_as.user_as_update(user_as_id=w.first.pk, **values)


def _create(w: World) -> Work:
    w.lower_all()
    return lambda: attach(w.owner, *w.specs)


def _move(of: Callable[[World], Host]) -> Callable[[World], Work]:
    def prepared(w: World) -> Work:
        one = of(w)
        values = {"public_ipv4": "192.0.2.77", "public_ipv6": one.public_ipv6, "bind_ip": None, "actor": w.boss}
        return lambda: host.host_set_addresses(host_id=one.pk, internal_ip="10.0.0.77", **values)

    return prepared


def _cancel(w: World) -> Work:
    timed = w.timed()
    return lambda: timed_limit.timed_limit_cancel(timed_limit_id=timed.pk, actor=w.boss)


def _retire(w: World) -> Work:
    w.timed()
    w.lower_all()
    return lambda: timed_limit.timed_limits_retire(now=timezone.now() + timedelta(hours=1))


def _restart(w: World) -> Work:
    """A change that waits, and is due."""
    host_id = w.near.host_id
    HeldLinkEnd.objects.create(host_id=host_id, link_id=w.link.pk, actor=w.owner)
    RestartBudget.objects.update_or_create(user=w.owner, host_id=host_id, defaults={"full_at": timezone.now()})
    Host.objects.filter(pk=host_id).update(restart_due_at=timezone.now() - timedelta(minutes=1))
    return restarts.restarts_deliver


def _retire_tests(w: World) -> Work:
    w.watch()
    w.lower_all()
    return lambda: link_test.link_tests_retire(now=timezone.now() + timedelta(days=2))


def _result(w: World) -> Work:
    upload = test_results.Upload(w.watch().test_id, True, ())
    return lambda: test_results.result_store(host_id=w.near.host_id, upload=upload)


def _tell_of_tests(w: World) -> Work:
    later = timezone.now() + timedelta(hours=1)
    link_test.link_test_create(link_id=w.link.pk, duration_s=60, begins_at=later, actor=w.owner)
    return lambda: test_mails.link_tests_notify(now=later + timedelta(minutes=10))


def _granted(w: World, **values: Any) -> MaximumException:
    ends_at = timezone.now() + timedelta(days=3)
    return exceptions.exception_grant(
        **{"of": w.owner, "maximum_kbit": 900_000, "ends_at": ends_at, "reason": "a test", "actor": w.boss, **values}
    )


def _asked(w: World) -> MaximumException:
    ends_at = timezone.now() + timedelta(days=3)
    return exceptions.exception_request(
        link_id=w.link.pk, maximum_kbit=900_000, ends_at=ends_at, reason="a test", actor=w.owner
    )


def _apply_exceptions(w: World) -> Work:
    Link.objects.update(bandwidth_kbit=5000)
    _granted(w)
    return defaults.fan_out


def _decide(w: World) -> Work:
    asked = _asked(w)
    return lambda: exceptions.exception_decide(exception_id=asked.pk, approve=True, answer="", actor=w.boss)


def _end(w: World) -> Work:
    granted = _granted(w)
    return lambda: exceptions.exception_end(exception_id=granted.pk, actor=w.boss)


def _granted_group(w: World) -> MaximumException:
    of = Group.objects.create(name="Course")
    of.user_set.add(w.owner)
    return _granted(w, of=of, attachment_points=[w.near])


def _change(w: World) -> Work:
    granted = _granted_group(w)
    values = {"maximum_kbit": 900_000, "ends_at": granted.ends_at, "reason": "a test", "actor": w.boss}
    places = [w.near, w.far]
    return lambda: exceptions.exception_change(exception_id=granted.pk, attachment_points=places, **values)


def _members(w: World) -> Work:
    of = _granted_group(w).group
    assert of is not None
    return lambda: exceptions.group_members_change(group=of, members=[w.boss], actor=w.boss)


def _tell_of_exceptions(w: World) -> Work:
    _granted(w)
    return lambda: exceptions.exceptions_notify(now=timezone.now() + timedelta(days=3, hours=1))


def _refresh(w: World) -> Work:
    values = {"operation": Operation("set", 150), "chosen": "one", "actor": w.boss}
    made = default_changes.default_change_preview(keys=[w.near.pk], **values)
    return lambda: default_changes.default_change_refresh(change_id=made.pk)


def _defaults(*points: str) -> Callable[[World], Work]:
    def prepared(w: World) -> Work:
        keys = [getattr(w, name).pk for name in points] or [SITE]
        values = {"operation": Operation("set", 150), "chosen": "some", "actor": w.boss}
        made = default_changes.default_change_preview(keys=keys, **values)
        return lambda: default_changes.default_change_apply(change_id=made.pk, actor=w.boss, reason="a test")

    return prepared


def _receipt(w: World) -> Work:
    def said(seconds: int) -> Receipt:
        now = Host.objects.get(pk=w.near.host_id)
        ids = selectors.limited_links(w.near.host_id)
        at = timezone.now() + timedelta(seconds=seconds)
        links = dict.fromkeys(ids, enforced_entry(200))
        return receipt_at(at, links, version=f"1.{now.config_version}", limits_version=now.limits_version)

    receipt.receipt_store(host_id=w.near.host_id, receipt=said(-10))
    newer = said(0)
    return lambda: receipt.receipt_store(host_id=w.near.host_id, receipt=newer)


def _raise(w: World) -> Work:
    _receipt(w)
    enrolment.enrolment_token_create(host_id=w.near.host_id, actor=w.boss)
    return generation.generation_raise


def _heard(w: World) -> Work:
    """In the order in which they were heard, not in that of their keys."""
    hosts = sorted([w.near.host_id, w.far.host_id], reverse=True)

    def work() -> None:
        with transaction.atomic():  # the recorder looks while it lasts
            last_contact.store(dict.fromkeys(hosts, time.time()), HOSTS)

    return work


def _notices(w: World) -> Work:
    now = timezone.now()
    NoticeWatch.objects.create(since=now - timedelta(days=1), looked_at=now)
    w.lower_all()
    defaults.fan_out()
    notices.notices_find(now=now)
    return lambda: notices.notices_find(now=now)


def _deploy(w: World) -> Work:
    near = w.near.host
    url = f"/api/v4/host/{near.uid}/deployed_config_version"
    version = f"{selectors.generation()}.{near.config_version}"
    return lambda: Client().post(url, {"version": version}, headers=credentials(near))


def _take_over(w: World) -> Work:
    installed.other_note(host_id=w.near.host_id, version="1.37")
    return lambda: installed.host_take_over(host_id=w.near.host_id, actor=w.boss)


def _revoke(w: World) -> Work:
    enrolment.enrolment_token_create(host_id=w.near.host_id, actor=w.boss)
    old = SigningKey.objects.get()
    signing.signing_key_rotate(actor=None)
    return lambda: signing.signing_key_revoke(key_id=old.key_id, actor=w.boss)


def _without_users(w: World) -> None:
    for one in (w.first, w.second):
        user_as.user_as_delete(user_as_id=one.pk, actor=None)


def _delete_ap(w: World) -> Work:
    _without_users(w)
    w.near.host.vpn.delete()
    return lambda: infrastructure.attachment_point_delete(attachment_point_id=w.near.pk, actor=w.boss)


def _delete_as(w: World) -> Work:
    _without_users(w)
    return lambda: infrastructure.infrastructure_as_delete(as_id=w.far.AS_id)


def _delete_core(w: World) -> Work:
    infrastructure_links.infrastructure_link_delete(link_id=Link.objects.get(interface_a__AS=w.core).pk)
    return lambda: infrastructure.infrastructure_as_delete(as_id=w.core.pk)


def _import_trc(w: World) -> Work:
    chain.as_new_keys(as_id=w.core.pk, actor=w.boss, core=True)
    lost = TRC.objects.get(serial=2)
    TRC.objects.filter(pk=lost.pk).delete()
    return lambda: isd.trc_import(content=bytes(lost.content), actor=None)


def _with_if_match(w: World) -> Work:
    """As the REST API begins, before it calls the services."""

    update = _update(w)

    def work() -> None:
        with transaction.atomic():
            order_of_locks.lock_user_as(w.first.pk, joins=[w.far.pk, w.near.pk])
            update()

    return work


def _once(w: World) -> Work:
    def work() -> idempotency.Answer:
        attach(w.owner, *w.specs)
        return idempotency.Answer(201, "{}")

    return lambda: idempotency.answer_once(user=w.owner, key="k", fingerprint="f", work=work)


def _email(w: World) -> Work:
    token = w.token("email", "new@example.org", w.owner)
    return lambda: account.email_change(token=token)


def _account(w: World) -> Work:
    token = w.token("register", "new@example.org")
    return lambda: account.account_create(token=token, full_name="", password="x")


def _enrol(w: World) -> Work:
    issued = enrolment.enrolment_token_create(host_id=w.near.host_id, actor=w.boss)
    return lambda: enrolment.host_enrol(random=issued.text.split(".")[1], address=None)


def _import(w: World) -> Work:
    """A further run, of a newer dump: another port of a Link, another address of a host; and beside ASes made here."""

    def imported(dump: Dump) -> None:
        importer.import_scionlab(network=read_network(dump.content()), kbit=100)

    dump = small()
    for as_pk, number in enumerate(("1101", "1301", "1107", "1303", "1102"), start=1):
        dump["as"][as_pk]["as_id"] = f"ffaa:0:2{number[1:]}"  # not those of the world
    for as_pk in (6, 7, 8):
        dump["as"][as_pk]["as_id"] = f"ffaa:1:10{as_pk}"
    for pk, one in dump["host"].items():
        one["public_ip"] = one["public_ip"] and f"203.0.113.{pk}"
    dump["interface"][5]["public_ip"], dump["interface"][13]["public_ip"] = "203.0.113.50", "198.51.100.70"
    imported(dump)
    dump["interface"][11]["public_port"] = 50_009
    dump["host"][3]["public_ip"] = "203.0.113.77"
    w.lower_all()
    return lambda: imported(dump)


def _cancel_joint(w: World) -> Work:
    confirm()
    return partial(joint_test.joint_test_cancel, joint_test_id=w.joint().pk, actor=w.boss)


def _cancel_part(w: World) -> Work:
    confirm()
    return partial(link_test.link_test_cancel, link_test_id=w.joint().parts.all()[0].pk, actor=w.boss)


OF_ONE_LINK: dict[str, Any] = {"limits": Limits.both(100), "active": False, "observe_only": True}
OF_AN_AP = {"default_bandwidth_kbit": 300, "total_kbit": 1000, "observe_only": True, "publishes_limits": True}
OF_A_NEW_AS: dict[str, Any] = {"label": "", "public_ipv4": "192.0.2.40", "public_ipv6": None}

SCENARIOS: dict[str, Callable[[World], Work]] = {
    "user_as_create": _create,
    "user_as_update": _update,
    "user_as_update beside If-Match": _with_if_match,
    "answer_once": _once,
    "user_as_change": lambda w: partial(
        user_as.user_as_change, user_as_id=w.first.pk, actor=w.owner, label="x", scion_packages="upstream"
    ),
    "user_as_delete": lambda w: partial(user_as.user_as_delete, user_as_id=w.first.pk, actor=w.owner),
    "link_update": lambda w: (
        w.lower_all() or partial(link.link_update, **OF_ONE_LINK, link_id=w.link.pk, actor=w.owner)
    ),
    "timed_limit_create": lambda w: w.timed,
    "timed_limit_cancel": _cancel,
    "_deliver": _restart,
    "_retire_locked": _retire,
    "link_test_create": lambda w: w.watch,
    "link_test_cancel": lambda w: partial(link_test.link_test_cancel, link_test_id=w.watch().pk, actor=w.boss),
    "link_test_cancel (of a joint test)": _cancel_part,
    "joint_test_create": lambda w: confirm() or w.joint,
    "joint_test_cancel": _cancel_joint,
    "_retire_locked (of tests)": _retire_tests,
    "result_store": _result,
    "user_report_store": lambda w: partial(test_results.user_report_store, test_id=w.watch().pk, report={}),
    "_notify": _tell_of_tests,
    "site_default_set": lambda w: partial(defaults.site_default_set, default_bandwidth_kbit=300, actor=w.boss),
    "ap_default_set": lambda w: partial(
        defaults.ap_default_set, attachment_point_id=w.near.pk, default_bandwidth_kbit=300, actor=w.boss
    ),
    "ap_update": lambda w: (
        w.lower_all() or partial(defaults.ap_update, attachment_point_id=w.near.pk, values=OF_AN_AP, actor=w.boss)
    ),
    "carry_out_default": lambda w: w.lower_all() or defaults.fan_out,
    "carry_out_default of exceptions": _apply_exceptions,
    "exception_request": lambda w: partial(_asked, w),
    "exception_grant": lambda w: partial(_granted, w),
    "exception_decide": _decide,
    "exception_end": _end,
    "exception_change": _change,
    "group_members_change": _members,
    "exceptions_notify": _tell_of_exceptions,
    "default_change_refresh": _refresh,
    "default_change_apply of defaults": _defaults("far", "near"),
    "default_change_apply of the site default": _defaults(),
    "uplink_set": lambda w: partial(
        uplink.uplink_set, attachment_point_id=w.near.pk, uplink_kbit=1, cost_per_gb=None, actor=w.boss
    ),
    "site_cost_set": lambda w: partial(uplink.site_cost_set, cost_per_gb=None, currency="CHF", actor=w.boss),
    "hosts_bump": lambda w: partial(
        counters.hosts_bump, config_ids=[w.far.host_id], limits_ids=[w.far.host_id, w.near.host_id]
    ),
    "host_create": lambda w: partial(further, w.core, w.boss, "192.0.2.5", "10.0.0.5"),
    "border_router_create": lambda w: partial(host.border_router_create, host=w.near.host, actor=w.boss),
    "host_rotate_secret": lambda w: partial(
        host.host_rotate_secret, host_id=w.near.host_id, actor=w.boss, for_stock_client=True
    ),
    "host_set_addresses": _move(lambda w: w.near.host),
    "host_set_addresses of a user AS": _move(lambda w: w.first.hosts.get()),
    "host_set_addresses of a further host": _move(lambda w: w.core.hosts.order_by("-pk")[0]),
    "infrastructure_as_update": lambda w: partial(
        infrastructure.infrastructure_as_update, as_id=w.core.pk, label="x", is_core=False
    ),
    "infrastructure_as_delete": _delete_as,
    "infrastructure_as_delete of a core AS": _delete_core,
    "isd_ensure": lambda w: partial(
        isd.isd_ensure, isd_id=w.core.isd_id, actor=None, now=timezone.now() + timedelta(days=400)
    ),
    "trc_import": _import_trc,
    "trc_reset": lambda w: partial(isd.trc_reset, isd_id=w.core.isd_id, base=9, actor=w.boss),
    "as_new_keys": lambda w: partial(chain.as_new_keys, as_id=w.core.pk, actor=w.boss, master=True, core=True),
    "_renew_locked": lambda _: partial(renewal.keys_renew, now=timezone.now() + timedelta(days=60)),
    "attachment_point_create": lambda w: partial(
        infrastructure.attachment_point_create, as_=w.core, default_bandwidth_kbit=10, vpn_subnet="10.10.9.0/24"
    ),
    "infrastructure_as_create": lambda w: partial(
        infrastructure.infrastructure_as_create,
        isd=17,
        as_text="ffaa:0:1201",
        is_core=True,
        **OF_A_NEW_AS,
        actor=w.boss,
    ),
    "attachment_point_set_up": lambda w: partial(
        first_setup.attachment_point_set_up,
        core=w.core,
        as_text="ffaa:0:1202",
        vpn_subnet="10.10.9.0/24",
        actor=w.boss,
        **OF_A_NEW_AS,
    ),
    "attachment_point_delete": _delete_ap,
    "vpn_create": lambda w: partial(infrastructure.vpn_create, host=w.far.host, subnet="10.10.9.0/24"),
    "vpn_keys_renew": lambda w: (
        attach(w.owner, spec(w.near, use_vpn=True)),
        lambda: vpn.vpn_keys_renew(vpn_id=w.near.host.vpn.pk, actor=w.boss),
    )[1],
    "vpn_delete": lambda w: partial(infrastructure.vpn_delete, vpn_id=w.near.host.vpn.pk),
    "infrastructure_link_create": lambda w: partial(
        infrastructure_links.infrastructure_link_create, a=w.far.AS, b=w.near.AS, type=Link.Type.PROVIDER
    ),
    "infrastructure_link_delete": lambda w: partial(
        infrastructure_links.infrastructure_link_delete, link_id=Link.objects.get(interface_a__AS=w.core).pk
    ),
    "import_scionlab": _import,
    "last_contact.store": _heard,
    "notices_find": _notices,
    "_store": _receipt,
    "evidence_note": lambda w: partial(
        evidence.evidence_note, host_id=w.near.host_id, evidence=evidence.Evidence("", []), now=timezone.now()
    ),
    "full_fetched": lambda w: partial(installed.full_fetched, host_id=w.near.host_id),
    "manifest_note": lambda w: partial(
        installed.manifest_note, host_id=w.near.host_id, manifest=installed.Manifest(host_id="other")
    ),
    "other_note": lambda w: partial(installed.other_note, host_id=w.near.host_id, version="1.37"),
    "host_set_limits_only": lambda w: partial(
        installed.host_set_limits_only, host_id=w.near.host_id, limits_only=True, actor=w.boss
    ),
    "host_take_over": _take_over,
    "host_take_over_undo": lambda w: (
        _take_over(w)() or (lambda: installed.host_take_over_undo(host_id=w.near.host_id, actor=w.boss))
    ),
    "deployed_config_version": _deploy,
    "deployment_note": lambda w: partial(receipt_mails.deployment_note, host_id=w.near.host_id),
    "generation_raise": _raise,
    "signing_key_ensure": lambda _: SigningKey.objects.all().delete() and signing.signing_key_ensure,
    "signing_key_rotate": lambda w: partial(signing.signing_key_rotate, actor=w.boss),
    "signing_key_rotate_if_due": lambda _: (
        SigningKey.objects.update(not_after=timezone.now() + timedelta(days=9)) and signing.signing_key_rotate_if_due
    ),
    "signing_key_revoke": _revoke,
    "signing_keys_rewrap": lambda _: signing.signing_keys_rewrap,
    "enrolment_token_create": lambda w: (
        enrolment.enrolment_token_create(host_id=w.near.host_id, actor=None)
        and (lambda: enrolment.enrolment_token_create(host_id=w.near.host_id, actor=w.boss))
    ),
    "host_enrol": _enrol,
    "render": lambda w: partial(render.render_ahead, w.near.host),
    "user_download": lambda w: partial(render.user_download, w.first),
    "api_token_create": lambda w: partial(api_token.api_token_create, user_id=w.owner.pk, name="x"),
    "link_mail_ask": lambda _: partial(
        account.link_mail_ask, purpose=Mail.Purpose.PASSWORD, email="x@example.org", network=None
    ),
    "account_create": _account,
    "email_change": _email,
    "profile_update": lambda w: partial(
        account.profile_update, user_id=w.owner.pk, full_name="x", time_zone="UTC", mail_opt_outs=[]
    ),
    "mail_opt_out": lambda w: partial(account.mail_opt_out, user_id=w.owner.pk, kind=MailKind.AWAY),
    "account_update": lambda w: partial(account.account_update, user_id=w.boss.pk, values={"is_staff": False}),
    "account_delete": lambda w: partial(account.account_delete, user_id=w.boss.pk),
    "second_factor_remove": lambda w: partial(second_factor.second_factor_remove, user_id=w.boss.pk),
}
ROOMS = {"accounts", "testbed", "delivery", "enforcement", "limits", "user_ases", "scion_config", "usage", "linktests"}
ROOMS |= {"paths", "importer"}
# Steps of the above, what makes rows that nobody else knows yet, and what tests/concurrency/test_usage_at_once.py has.
ELSEWHERE = {"ap_defaults_set", "change_notified"}
ELSEWHERE |= {"usage_store", "_roll_up_some", "_compute", "_move", "ensure_ahead", "drop_before"}
ADDED_ONLY = {
    "link_mail_ask",
    "account_create",
    "deployment_note",
    "exception_grant",
    "exceptions_notify",
    "signing_key_ensure",
    "vpn_delete",
    "result_store",
    "user_report_store",
    "_notify",
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_service_takes_its_locks_in_the_one_order(name: str, world: World) -> None:
    work = SCENARIOS[name](world)
    with recorded() as locks:
        work()
    assert locks.wrong == []
    assert locks.count > 0 or name in ADDED_ONLY, "nothing was recorded"


def test_a_lock_that_comes_too_late_or_in_no_order_is_found(world: World) -> None:
    near, far = world.near.pk, world.far.host_id
    with recorded() as locks:
        with transaction.atomic():
            list(Host.objects.filter(pk=far).select_for_update(no_key=True))
            order_of_locks.lock_attachment_points([near])
        with transaction.atomic():
            list(Link.objects.select_for_update(no_key=True).order_by())
    assert [one.split(":")[0] for one in locks.wrong] == [
        f"AttachmentPoint {near} after Host {far}",
        "5 rows of Link in no order",
    ]


# --- nothing is left out ---------------------------------------------------------------------------------------------


def sources() -> Iterator[tuple[Path, ast.Module]]:
    for path in Path(scionlab.__file__).parent.rglob("*.py"):
        yield path, ast.parse(path.read_text())


def is_atomic(function: ast.FunctionDef) -> bool:
    is_decorated = any(ast.unparse(one) == "transaction.atomic" for one in function.decorator_list)
    return is_decorated or any(
        isinstance(node, ast.With) and ast.unparse(node.items[0].context_expr) == "transaction.atomic()"
        for node in ast.walk(function)
    )


def test_every_service_with_a_transaction_is_watched() -> None:
    found = {
        node.name
        for path, tree in sources()
        if path.relative_to(Path(scionlab.__file__).parent).parts[0] in ROOMS
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and is_atomic(node)
    }
    assert found - {name.split(" ")[0] for name in SCENARIOS} - ELSEWHERE == {"_render"}


def test_every_row_lock_leaves_those_alone_who_only_refer_to_the_row() -> None:
    """FOR NO KEY UPDATE, and where other tables are joined of the first one only."""
    calls = [
        f"{path.name}:{node.lineno}"
        for path, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "select_for_update"
        and "no_key=True" not in ast.unparse(node)
    ]
    assert calls == []


def test_the_order_is_the_one_that_is_written_down() -> None:
    text = inspect.getdoc(order_of_locks) or ""
    lines = [line for line in text.splitlines() if line.strip()[:1].isdigit()]
    named = [name for line in lines for name in line.split(". ")[1].split("  ")[0].split(", ")]
    assert named == [model.__name__ for model in ORDER]
