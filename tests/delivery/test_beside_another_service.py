"""Beside another coordination service: limits only, take over, and what the unmodified stock client makes of each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from bandwidth_config import RuleError
from scionlab.accounts.models import User
from scionlab.delivery.download import install_commands
from scionlab.delivery.installed import Effect, effect_of, host_set_limits_only, host_take_over, host_take_over_undo
from scionlab.delivery.render import user_download
from scionlab.enforcement.generation import generation_raise
from scionlab.site.retention import old_rows_forget
from scionlab.testbed.deleted_host import KEPT_FOR
from scionlab.testbed.infrastructure import infrastructure_as_delete
from scionlab.testbed.models import BandwidthChange, DeletedHost, Host, InstalledFiles, Link, UserAS
from scionlab.user_ases.user_as import user_as_delete
from tests.contract.stock_client import (
    OTHER_FILES,
    OTHER_HOST_ID,
    OTHER_UNITS,
    OTHER_URL,
    Ended,
    StockHost,
    complaints,
)
from tests.factories import HostFactory
from tests.support.counters import Counters
from tests.support.polling import AGENT, WebServer, basic, config_members, credentials

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).parents[2]
MASTER_KEYS = [f"etc/scion/keys/master{number}.key" for number in (0, 1)]
OURS = [f"etc/scion/{name}" for name in ("br-1.toml", "cs-1.toml", "disp.toml")]
OURS += [*MASTER_KEYS, "etc/scion/sd.toml", "etc/scion/topology.json"]  # its ISD has no core AS, so there is no chain
REPLACED = sorted(OTHER_FILES.keys() & set(OURS))
STOCK = {"User-Agent": "Python-urllib/3.13"}


def ask(host: Host, query: str = "", *, client: dict[str, str] = STOCK, method: str = "get") -> Any:
    send = getattr(Client(), method)
    return send(f"/api/v4/host/{host.uid}/config{query}", headers={**credentials(host), **client})


def say(host: Host, document: Any) -> Any:
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    url = f"/api/v4/host/{host.uid}/installed"
    return Client().post(url, content, content_type="application/x-www-form-urlencoded", headers=credentials(host))


def code_of(response: Any) -> tuple[int, str]:
    return response.status_code, json.loads(response.content)["code"]


def other_manifest(**values: Any) -> dict[str, Any]:
    manifest = {
        "host_id": OTHER_HOST_ID,
        "url": OTHER_URL,
        "version": "1.37",
        "files": dict.fromkeys(OTHER_FILES, "0" * 40),
        "systemd_units": OTHER_UNITS,
    }
    return manifest | values


@pytest.fixture
def user_host(user_as: UserAS) -> Host:
    """Of a user AS; nobody has fetched for it."""
    return Host.objects.get(AS=user_as.pk)


# --- the stock client with the commands of our page, on a real machine's files ---------------------------------------


@pytest.fixture
def site(server: WebServer, settings: Settings) -> str:
    settings.SITE_URL = f"http://127.0.0.1:{server.port}"
    return settings.SITE_URL


@pytest.fixture
def machine(tmp_path: Path) -> StockHost:
    return StockHost(tmp_path / "root")


def run_commands(machine: StockHost, host: Host, site: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """What the README tells the user to paste, in a shell, with the stock client of the contract."""
    tools = tmp_path / "bin"
    tools.mkdir(exist_ok=True)
    for name, does in {
        "sudo": 'exec "$@"',
        "scionlab-config": f'cd {ROOT} && exec {sys.executable} -m tests.contract.stock_client "$@"',
    }.items():
        (tools / name).write_text(f"#!/bin/sh\n{does}\n")
        (tools / name).chmod(0o755)
    commands = install_commands(uid=host.uid, secret=host.secret, site_url=site)
    commands = commands.replace('"/etc/scion', f'"{machine.root}/etc/scion')
    environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "STOCK_ROOT": str(machine.root)}
    return subprocess.run(
        ["sh", "-c", commands], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_new_machine_gets_its_configuration_by_the_commands_of_the_readme(
    site: str, machine: StockHost, user_host: Host, tmp_path: Path
) -> None:
    done = run_commands(machine, user_host, site, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(machine.files) == OURS
    user_host.refresh_from_db()
    assert user_host.config_version_deployed == user_host.config_version
    assert run_commands(machine, user_host, site, tmp_path).returncode == 0  # the same once more


def test_a_host_of_another_service_loses_nothing_by_the_commands_of_the_readme(
    site: str, machine: StockHost, user_host: Host, tmp_path: Path
) -> None:
    machine.install_other()
    before = machine.manifest
    done = run_commands(machine, user_host, site, tmp_path)
    assert done.returncode != 0
    assert "another coordination service" in done.stdout
    assert "another secret" not in done.stdout + done.stderr
    assert machine.files == OTHER_FILES
    assert machine.manifest == before
    assert machine.unit_log == []


def test_after_a_take_over_it_gets_all_and_loses_what_was_named(
    site: str, machine: StockHost, user_host: Host, tmp_path: Path, staff: User
) -> None:
    machine.install_other()
    run_commands(machine, user_host, site, tmp_path)
    named = effect_of(user_host, InstalledFiles.objects.get(host=user_host))
    assert named is not None
    host_take_over(host_id=user_host.pk, actor=staff)
    done = run_commands(machine, user_host, site, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(machine.files) == OURS
    assert named.deleted == sorted(OTHER_FILES.keys() - machine.files.keys())
    assert named.replaced == REPLACED
    assert "stop openvpn@server" in machine.unit_log
    assert InstalledFiles.objects.get(host=user_host).owner == "ours"
    machine.run()  # from now on with its version
    assert code_of(say(user_host, other_manifest())) == (409, "other_coordinator")


def test_a_client_whose_as_was_deleted_stops_scion_and_deletes_nothing(
    site: str, machine: StockHost, user_host: Host, user_as: UserAS, owner: User, tmp_path: Path
) -> None:
    run_commands(machine, user_host, site, tmp_path)
    before, log = machine.files, machine.unit_log
    user_as_delete(user_as_id=user_as.pk, actor=owner)
    deadline = time.monotonic() + 5  # a process that knows the host asks the database again within a second
    while machine.unit_log == log and time.monotonic() < deadline:
        machine.run()
    assert machine.files == before != {}
    assert machine.unit_log == [*log, "stop scionlab.target"]
    DeletedHost.objects.update(deleted_at=timezone.now() - KEPT_FOR)
    with pytest.raises(Ended) as ended:
        machine.run()
    assert not ended.value.is_temporary
    assert machine.unit_log == [*log, "stop scionlab.target"]


# --- what a host shows -----------------------------------------------------------------------------------------------


def test_our_agent_is_never_asked(user_host: Host) -> None:
    assert ask(user_host, client=AGENT).status_code == 200
    assert not InstalledFiles.objects.exists()


CONFIRMED = {"config_version_deployed": 3}


@pytest.mark.parametrize(
    ("noted", "query"),
    [
        ({}, ""),  # the contract of the field: a poll without a version is answered 200
        (CONFIRMED, ""),
        (CONFIRMED, "?version=1.99"),  # of the future, as after a restored backup
        (CONFIRMED, "?version=2.1"),  # of a generation that is gone
        ({"config_version": 2, "delivered_config_version": 1}, "?version=1.1"),
    ],
)
def test_who_shows_nothing_else_has_files_of_ours(user_host: Host, noted: dict[str, int], query: str) -> None:
    Host.objects.filter(pk=user_host.pk).update(**noted)
    assert ask(user_host, query).status_code == 200
    known = InstalledFiles.objects.get(host=user_host)
    assert (known.owner, known.fetched_at is not None) == ("ours", True)


def test_stock_clients_go_on_after_the_generation_rose(user_host: Host) -> None:
    """What was delivered and confirmed before is forgotten then."""
    Host.objects.filter(pk=user_host.pk).update(**CONFIRMED, delivered_config_version=3)
    generation_raise()
    assert ask(user_host, "?version=1.3").status_code == 200


@pytest.mark.parametrize("version", ["1.37", "3.1", "1.0", "0.1", f"1.{'9' * 5000}"])
def test_a_version_that_was_never_given_shows_another_service(user_host: Host, version: str) -> None:
    assert code_of(ask(user_host, f"?version={version}")) == (503, "other_coordinator")
    known = InstalledFiles.objects.get(host=user_host)
    assert (known.owner, known.version) == ("other", version[:40])
    assert code_of(ask(user_host)) == (503, "other_coordinator")


def test_head_is_refused_alike_and_takes_nothing_for_fetched(user_host: Host) -> None:
    assert ask(user_host, method="head").status_code == 200
    assert not InstalledFiles.objects.exists()
    assert ask(user_host, "?version=1.37", method="head").status_code == 503


def test_the_manifest_shows_whose_it_is(user_host: Host, settings: Settings) -> None:
    assert code_of(say(user_host, other_manifest())) == (409, "other_coordinator")
    known = InstalledFiles.objects.get(host=user_host)
    assert (known.owner, known.url, known.version) == ("other", OTHER_URL, "1.37")
    assert (known.files, known.units) == (sorted(OTHER_FILES), sorted(OTHER_UNITS))
    assert code_of(ask(user_host)) == (503, "other_coordinator")
    assert code_of(say(user_host, {})) == (409, "other_coordinator")  # only an administrator ends it


@pytest.mark.parametrize(
    ("difference", "status"), [({}, 200), ({"host_id": OTHER_HOST_ID}, 409), ({"url": OTHER_URL}, 409)]
)
def test_a_manifest_is_ours_by_host_and_url(
    user_host: Host, settings: Settings, difference: dict[str, str], status: int
) -> None:
    ours = other_manifest(host_id=user_host.uid, url=settings.SITE_URL + "/")
    assert say(user_host, ours | difference).status_code == status
    assert ask(user_host).status_code == (200 if status == 200 else 503)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"[]", "request_invalid"),
        (b"\xff", "request_invalid"),
        (b"[" * 100_000, "request_invalid"),
        (b'{"files": ["a"]}', "manifest_invalid"),
        (b'{"systemd_units": [1]}', "manifest_invalid"),
        (b'{"host_id": "a\\u0000"}', "manifest_invalid"),
        (b'{"url": "' + b"u" * 201 + b'"}', "manifest_invalid"),
    ],
)
def test_what_cannot_be_read_is_refused_and_nothing_noted(user_host: Host, content: bytes, code: str) -> None:
    assert code_of(say(user_host, content)) == (400, code)
    assert not InstalledFiles.objects.exists()


def test_a_manifest_of_more_than_a_mebibyte_is_not_read(user_host: Host) -> None:
    assert code_of(say(user_host, b" " * (1024 * 1024 + 1))) == (413, "too_large")


def test_a_secret_that_is_sent_all_the_same_is_not_stored(user_host: Host) -> None:
    say(user_host, other_manifest(host_secret="another secret"))
    stored = InstalledFiles.objects.filter(host=user_host).values().get()
    assert "another secret" not in json.dumps(stored, default=str)


# --- take over -------------------------------------------------------------------------------------------------------


def test_it_can_be_undone_until_the_host_has_fetched(user_host: Host, staff: User) -> None:
    say(user_host, other_manifest())
    counters = Counters()
    host_take_over(host_id=user_host.pk, actor=staff)
    assert counters.risen() == {}
    host_take_over_undo(host_id=user_host.pk, actor=staff)
    assert code_of(ask(user_host)) == (503, "other_coordinator")
    host_take_over(host_id=user_host.pk, actor=staff)
    assert ask(user_host, client=AGENT).status_code == 200  # our agent installs nothing
    host_take_over_undo(host_id=user_host.pk, actor=staff)
    host_take_over(host_id=user_host.pk, actor=staff)
    ask(user_host)
    with pytest.raises(RuleError, match="already fetched its configuration") as refused:
        host_take_over_undo(host_id=user_host.pk, actor=staff)
    assert refused.value.code == "take_over_fetched"


def test_the_same_files_shown_again_leave_the_take_over_and_others_end_it(user_host: Host, staff: User) -> None:
    say(user_host, other_manifest())
    host_take_over(host_id=user_host.pk, actor=staff)
    assert say(user_host, other_manifest()).status_code == 200
    assert code_of(say(user_host, other_manifest(files={"etc/scion/sd.toml": "0"}))) == (409, "other_coordinator")


def test_there_is_nothing_to_take_over_from_a_host_that_showed_nothing(user_host: Host, staff: User) -> None:
    with pytest.raises(RuleError) as refused:
        host_take_over(host_id=user_host.pk, actor=staff)
    assert refused.value.code == "nothing_to_take_over"


def test_the_effect_names_files_and_units(user_host: Host) -> None:
    say(user_host, other_manifest(systemd_units=["scion-bwtestserver.service", "scion-daemon.service"]))
    assert effect_of(user_host, InstalledFiles.objects.get(host=user_host)) == Effect(
        deleted=sorted(OTHER_FILES.keys() - set(OURS)),
        replaced=REPLACED,
        stopped=["scion-bwtestserver.service"],
    )


# --- limits only -----------------------------------------------------------------------------------------------------


def test_its_tarball_has_the_limits_and_nothing_else_of_scion(host: Host, link: Link, staff: User) -> None:
    full = config_members(ask(host, client=AGENT).content)
    host_set_limits_only(host_id=host.pk, limits_only=True, actor=staff)
    answer = ask(host, client=AGENT)
    members = config_members(answer.content)
    assert sorted(members) == ["etc/scion/link_info.json", "scionlab-config.json"]
    assert members["etc/scion/link_info.json"] == full["etc/scion/link_info.json"]
    manifest = json.loads(members["scionlab-config.json"])
    assert (list(manifest["files"]), manifest["systemd_units"]) == (["etc/scion/link_info.json"], [])
    assert complaints(answer.content) == []
    host_set_limits_only(host_id=host.pk, limits_only=False, actor=staff)
    assert sorted(config_members(ask(host, client=AGENT).content)) == sorted(full)


def test_switching_it_raises_limits_of_this_host_alone_and_is_kept(host: Host, staff: User) -> None:
    sibling = HostFactory(AS=host.AS)
    before = dict(Host.objects.values_list("pk", "config_version"))
    for limits_only in (True, True, False, False):
        host_set_limits_only(host_id=host.pk, limits_only=limits_only, actor=staff, reason="SCIONLab has it")
    after = Host.objects.get(pk=host.pk)
    assert after.limits_version == host.limits_version + 2
    assert dict(Host.objects.values_list("pk", "config_version")) == before  # nobody's SCION restarts
    assert Host.objects.get(pk=sibling.pk).limits_version == 1
    rows = BandwidthChange.objects.filter(kind="host_limits_only")
    assert [(row.actor, row.reason) for row in rows] == [(staff, "SCIONLab has it")] * 2


@pytest.mark.parametrize("query", ["", "?version=1.1"])
def test_whoever_is_not_our_agent_is_refused(host: Host, staff: User, query: str) -> None:
    host_set_limits_only(host_id=host.pk, limits_only=True, actor=staff)
    assert code_of(ask(host, query)) == (503, "limits_only")
    assert code_of(say(host, {})) == (409, "limits_only")


def test_switched_off_it_is_refused_until_somebody_takes_it_over(user_host: Host, staff: User) -> None:
    say(user_host, {})
    ask(user_host)
    host_set_limits_only(host_id=user_host.pk, limits_only=True, actor=staff)
    with pytest.raises(RuleError):
        host_take_over(host_id=user_host.pk, actor=staff)
    host_set_limits_only(host_id=user_host.pk, limits_only=False, actor=staff)
    assert code_of(ask(user_host)) == (503, "other_coordinator")
    host_take_over(host_id=user_host.pk, actor=staff)
    assert ask(user_host).status_code == 200


# --- deleted ---------------------------------------------------------------------------------------------------------


def test_a_deleted_host_is_answered_204_for_30_days_and_then_401(user_host: Host, user_as: UserAS) -> None:
    headers = credentials(user_host)
    url = f"/api/v4/host/{user_host.uid}"
    user_as_delete(user_as_id=user_as.pk, actor=None)
    for query in ("", "?version=1.1", "?version=1.1&limits=1"):
        answer = Client().get(f"{url}/config{query}", headers=headers)
        assert (answer.status_code, answer.content) == (204, b"")
    assert Client().get(f"{url}/config", headers=basic(user_host.uid, "wrong")).status_code == 401
    assert Client().post(f"{url}/deployed_config_version", {"version": "1.1"}, headers=headers).status_code == 401
    now = timezone.now()
    assert old_rows_forget(now=now + timedelta(days=29, hours=23))["DeletedHost"] == 0
    assert old_rows_forget(now=now + timedelta(days=30, minutes=1))["DeletedHost"] == 1
    assert Client().get(f"{url}/config", headers=headers).status_code == 401
    of_infrastructure = HostFactory()
    assert of_infrastructure.AS is not None
    infrastructure_as_delete(as_id=of_infrastructure.AS.pk)
    assert ask(of_infrastructure).status_code == 204


def test_its_secret_is_kept_as_a_hash_and_the_former_one_counts_while_it_did(user_host: Host, user_as: UserAS) -> None:
    later = timezone.now() + timedelta(hours=1)
    Host.objects.filter(pk=user_host.pk).update(previous_secret="f" * 32, previous_secret_until=later)
    user_as_delete(user_as_id=user_as.pk, actor=None)
    assert user_host.secret not in str(DeletedHost.objects.values().get())
    url = f"/api/v4/host/{user_host.uid}/config"
    assert Client().get(url, headers=basic(user_host.uid, "f" * 32)).status_code == 204
    DeletedHost.objects.update(previous_secret_sha256="")
    assert Client().get(url, headers=basic(user_host.uid, "f" * 32)).status_code == 401
    assert Client().get(url, headers=basic(user_host.uid, "")).status_code == 401


# --- where people see it ---------------------------------------------------------------------------------------------


def change(door: Client, host: Host, do: str, **values: str) -> str:
    url = f"/admin/testbed/host/{host.pk}/files/change/"
    return door.post(url, {"do": do, **values}, follow=True).content.decode()


def page(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, path
    return answer.content.decode()


def test_administrators_take_over_after_they_read_what_is_lost(door: Client, staff: User, user_host: Host) -> None:
    say(user_host, other_manifest())
    assert "1 host has SCION files of another coordination service" in page(door, "/cockpit/")
    shown = page(door, f"/admin/testbed/host/{user_host.pk}/files/")
    assert [path for path in (OTHER_URL, *OTHER_FILES) if path not in shown] == []
    assert "Undo takeover" in change(door, user_host, "take_over")
    assert "another coordination service" not in page(door, "/cockpit/")
    change(door, user_host, "undo")
    change(door, user_host, "take_over")
    ask(user_host)
    assert "has already fetched its configuration" in change(door, user_host, "undo")
    assert [row.actor for row in BandwidthChange.objects.filter(kind="host_take_over")] == [staff] * 3


def test_administrators_set_limits_only_and_the_page_prints_our_agent_alone(door: Client, host: Host) -> None:
    assert "sudo scionlab-config --host-id" in page(door, f"/admin/testbed/host/{host.pk}/files/")
    assert "sudo scionlab-config --host-id" not in change(door, host, "limits_only", reason="SCIONLab has it")
    assert Host.objects.get(pk=host.pk).limits_only
    change(door, host, "not_limits_only")
    assert not Host.objects.get(pk=host.pk).limits_only
    assert "use one of the buttons" in change(door, host, "something else")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("limits_only", "Limits only: another service manages the SCION files"),
        ("other", "Refused: the host has SCION files of another coordination service"),
        ("taken_over", "Taken over from another coordination service, not fetched yet"),
    ],
)
def test_pages_and_rest_say_it(door: Client, staff: User, user_host: Host, state: str, words: str) -> None:
    if state == "limits_only":
        host_set_limits_only(host_id=user_host.pk, limits_only=True, actor=staff)
    else:
        say(user_host, other_manifest())
        if state == "taken_over":
            host_take_over(host_id=user_host.pk, actor=staff)
    own = f"/admin/testbed/host/{user_host.pk}/"
    for path in ("/admin/testbed/host/", f"{own}change/", f"{own}files/", f"/ases/{user_host.AS_id}/"):
        assert words in page(door, path), path
    assert door.get(f"/api/v1/ases/{user_host.AS_id}/").json()["scion_files"] == state


def test_the_readme_with_limits_only_has_no_command_of_the_stock_client(user_as: UserAS, user_host: Host) -> None:
    host_set_limits_only(host_id=user_host.pk, limits_only=True, actor=None)
    _, content = user_download(UserAS.objects.get(pk=user_as.pk))
    files = config_members(content)
    assert sorted(name.split("/", 1)[1] for name in files) == ["README.md", "scionlab-config.json"]
    readme = next(text.decode() for name, text in files.items() if name.endswith("README.md"))
    assert "sudo" not in readme
    assert "limits only" in readme
