"""What was issued to a host is noted, for so long as somebody may name it; the cache has one tarball per host."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.conf import settings
from django.core.cache import cache
from django.db import connection, transaction
from pytest_django import DjangoAssertNumQueries, Settings
from redis.exceptions import RedisError

from bandwidth_config import LINK_INFO_PATH
from scionlab.accounts.models import User
from scionlab.delivery import issued, render
from scionlab.delivery.models import IssuedLimits
from scionlab.delivery.render import config_for, render_ahead, user_download
from scionlab.enforcement.generation import generation_raise
from scionlab.enforcement.models import HostReceipt
from scionlab.limits.update import link_set_bandwidth
from scionlab.platform import redis_client
from scionlab.testbed.models import AttachmentPoint, Host, Link, UserAS
from scionlab.testbed.versions.counters import hosts_bump
from tests.cases import table
from tests.delivery.test_host_api import poll
from tests.support.polling import WebServer, config_members, until

pytestmark = pytest.mark.django_db


def noted(host: Host) -> list[tuple[int, int, int, str]]:
    rows = IssuedLimits.objects.filter(host=host).order_by("pk")
    return list(rows.values_list("generation", "config_version", "limits_version", "digest"))


def test_what_is_rendered_is_noted_by_its_own_bytes(host: Host) -> None:
    assert render_ahead(host)
    manifest = json.loads(config_members(poll(host).content)["scionlab-config.json"])
    document = config_members(poll(host).content)[LINK_INFO_PATH]
    digest = hashlib.sha256(document).hexdigest()
    assert noted(host) == [(1, host.config_version, host.limits_version, digest)]
    assert manifest["sha256"][LINK_INFO_PATH] == digest == json.loads(manifest["signed"])["sha256"][LINK_INFO_PATH]


def test_host_without_limits_is_issued_none(user_as: UserAS) -> None:
    host = Host.objects.get(AS=user_as)
    assert config_for(host).limits_digest == ""
    assert noted(host) == []


def test_download_of_a_user_as_that_is_an_attachment_point_is_noted(user_as: UserAS, host_b: Host) -> None:
    host = Host.objects.get(AS=user_as)
    AttachmentPoint.objects.create(AS=user_as, host=host)
    user_download(user_as)
    (only,) = noted(host)
    assert only[:3] == (1, host.config_version, host.limits_version)


def test_the_newest_are_kept_and_the_one_in_force(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issued, "KEPT_PER_HOST", 3)
    for number in range(1, 9):
        if number == 3:
            HostReceipt.objects.create(
                host=host, limits_digest="2" * 64, observed_at="2026-11-21T06:00Z", received_at="2026-11-21T06:00Z"
            )
        issued.issued_note(host=host, generation=1, digest=str(number) * 64)
    assert [digest[0] for *_, digest in noted(host)] == ["2", "6", "7", "8"]


def test_document_in_the_cache_that_the_database_did_not_issue_is_not_handed_out(host: Host, link: Link) -> None:
    """Redis was not emptied after a backup was restored, and holds what the lost days had at these versions."""
    lost = config_for(host)
    IssuedLimits.objects.all().delete()
    Link.objects.filter(pk=link.pk).update(bandwidth_kbit=500)
    ours = config_for(host)
    assert ours.version == lost.version
    assert ours.limits_digest != lost.limits_digest
    assert config_for(host) == ours


@pytest.mark.parametrize("what", ["config_ids", "limits_ids"])
def test_numbers_that_come_again_after_a_lost_save_name_other_content(what: str, host: Host) -> None:
    """Also at a host without a document of limits, of which nothing is noted."""

    def content() -> tuple[int, int, int]:
        return Host.objects.values_list("config_version", "limits_version", "content_stamp").get(pk=host.pk)

    made = []
    for _ in range(2):
        with transaction.atomic():
            hosts_bump(**{what: [host.pk]})
            made.append(content())
            transaction.set_rollback(True)
    (*numbers, stamp), (*again, other) = made
    assert numbers == again
    assert len({stamp, other, content()[2]}) == 3


@pytest.mark.skipif(not settings.REDIS_URL, reason="needs Redis (REDIS_URL)")
def test_redis_keeps_one_tarball_of_a_host_however_often_it_is_saved(host: Host, link: Link, owner: User) -> None:
    cache.clear()
    sizes = []
    for kbit in range(500, 520):
        link_set_bandwidth(link_id=link.pk, bandwidth_kbit=kbit, actor=owner)
        assert render_ahead(Host.objects.get(pk=host.pk))
        (key,) = redis_client.client().keys("*config:*")
        sizes.append(redis_client.client().strlen(key))
    assert max(sizes) < 1.1 * min(sizes)
    newest = Host.objects.get(pk=host.pk)
    assert not render_ahead(newest), "the newest one is the one that is kept"


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite runs writers one after the other")
def test_of_many_that_render_while_somebody_saves_the_newest_stays(host: Host, link: Link, owner: User) -> None:
    def render() -> None:
        try:
            for _ in range(20):
                config_for(Host.objects.get(pk=host.pk))
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        rendering = [pool.submit(render) for _ in range(4)]
        for kbit in range(500, 520):
            link_set_bandwidth(link_id=link.pk, bandwidth_kbit=kbit, actor=owner)
        config_for(Host.objects.get(pk=host.pk))
        for one in rendering:
            one.result(60)
    newest = Host.objects.get(pk=host.pk)
    assert not render_ahead(newest)
    document = json.loads(config_members(config_for(newest).content)[LINK_INFO_PATH])
    assert document["1"]["Bandwidth"] == 519


# --- polls --------------------------------------------------------------------------------------------------


def versions(host: Host) -> str:
    return f"?version=1.{host.config_version}&limits={host.limits_version}"


def test_poll_that_names_the_document_is_answered_304_by_one_statement(
    host: Host, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    digest = config_for(host).limits_digest
    with django_assert_num_queries(1):
        assert poll(host, f"{versions(host)}&digest={digest}").status_code == 304
    assert poll(host, f"{versions(host)}&digest=").status_code == 304
    assert poll(host, f"{versions(host)}&digest={'f' * 64}").status_code == 200


def test_every_document_that_was_issued_for_the_version_is_as_good(host: Host) -> None:
    """Two versions of this service side by side may spell the same limits otherwise."""
    digest = config_for(host).limits_digest
    issued.issued_note(host=host, generation=1, digest="e" * 64)
    for one in (digest, "e" * 64):
        assert poll(host, f"{versions(host)}&digest={one}").status_code == 304


def test_document_of_an_older_version_is_not_current(host: Host, link: Link, owner: User) -> None:
    digest = config_for(host).limits_digest
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=500, actor=owner)
    newer = Host.objects.get(pk=host.pk)
    config_for(newer)
    assert poll(newer, f"{versions(newer)}&digest={digest}").status_code == 200


@table("digest", ["x" * 64, "A" * 64, "a" * 63, "a" * 65, "%20", "a" * 64 + "%0A"])
def test_malformed_digest_is_400(host: Host, digest: str) -> None:
    answer = poll(host, f"{versions(host)}&digest={digest}")
    assert (answer.status_code, json.loads(answer.content)["code"]) == (400, "digest_invalid")


@pytest.mark.django_db(transaction=True)
def test_waiting_poll_ends_when_it_learns_of_another_document(server: WebServer, host: Host) -> None:
    digest = config_for(host).limits_digest
    assert server.poll(host, digest=digest).status == 304
    assert server.poll(host, digest="f" * 64).status == 200
    waiting = server.wait(host, digest=digest)
    IssuedLimits.objects.update(digest="e" * 64)  # as if a backup were restored under it
    server.application._running().changed([host.pk], server.application._room)
    until(waiting.done)
    assert waiting.result().status == 200


def test_a_document_is_issued_to_one_host_at_one_version(host: Host, host_b: Host) -> None:
    at = (host.config_version, host.limits_version)
    for _ in range(2):  # the second time changes nothing
        issued.issued_note(host=host, generation=3, digest="a" * 64)
    assert noted(host) == [(3, *at, "a" * 64)]
    asked = {
        "this one": (host, (3, *at), "a" * 64),
        "any of this version": (host, (3, *at), None),
        "another document": (host, (3, *at), "b" * 64),
        "another host": (host_b, (3, *at), "a" * 64),
        "another G": (host, (2, *at), "a" * 64),
        "another H": (host, (3, at[0] + 1, at[1]), None),
        "another L": (host, (3, at[0], at[1] + 1), "a" * 64),
    }
    found = {
        what: issued.is_issued(host_id=one.pk, version=version, digest=digest)
        for what, (one, version, digest) in asked.items()
    }
    assert found == dict.fromkeys(asked, False) | {"this one": True, "any of this version": True}


def test_what_is_kept_of_one_host_depends_on_no_other(
    host: Host, host_b: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issued, "KEPT_PER_HOST", 1)
    issued.issued_note(host=host_b, generation=1, digest="1" * 64)
    HostReceipt.objects.create(
        host=host_b, limits_digest="1" * 64, observed_at="2026-11-21T06:00Z", received_at="2026-11-21T06:00Z"
    )
    for number in "123":
        issued.issued_note(host=host, generation=1, digest=number * 64)
    assert [[digest[0] for *_, digest in noted(one)] for one in (host, host_b)] == [["3"], ["1"]]


def manifest_in(members: dict[str, bytes]) -> dict[str, object]:
    (found,) = [json.loads(text) for name, text in members.items() if name.endswith("scionlab-config.json")]
    return dict(found)


def test_a_rendered_configuration_says_of_what_it_is(host: Host, settings: Settings) -> None:
    cache.clear()
    settings.SITE_URL = "https://lab.example.org"
    Host.objects.filter(pk=host.pk).update(config_version=18, limits_version=7)
    host.refresh_from_db()
    assert (render_ahead(host), render_ahead(host)) == (True, False)
    made = config_for(host)
    assert made.version == (1, 18, 7)
    assert made.file_name == "scionlab_17-ffaa_0_1107_v18.tar.gz"
    assert made.etag == f'"{hashlib.sha256(made.content).hexdigest()}"'
    assert manifest_in(config_members(made.content))["url"] == "https://lab.example.org"
    settings.SITE_URL = "https://other.example.org"
    assert manifest_in(config_members(config_for(host).content))["url"] == "https://other.example.org"
    generation_raise()
    assert config_for(host).version[:2] == (2, 18)
    Host.objects.filter(pk=host.pk).update(AS=None)
    assert not render_ahead(Host.objects.get(pk=host.pk)), "there is nothing to render"


def test_without_a_cache_polls_are_slower_and_nothing_is_rendered_ahead(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone:
        def get(self, _key: str) -> None:
            raise RedisError("gone")

        def set(self, *_args: object) -> None:
            raise RedisError("gone")

    monkeypatch.setattr(render, "cache", Gone())
    assert not render_ahead(host)
    assert config_for(host).version[:2] == (1, host.config_version)
