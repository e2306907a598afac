"""Backups as docs/operations.md tells: its own commands make and restore them, on a PostgreSQL."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import connection, transaction
from pytest_django import DjangoDbBlocker

from lab.servers import newest_postgres
from scionlab.delivery.render import config_for
from scionlab.delivery.signing import key_ring
from scionlab.limits.update import link_set_bandwidth
from scionlab.testbed.models import AttachmentPoint, Host, Link, UserAS
from scionlab.usage import partitions
from scionlab.usage.models import UsageDay, UsageSlot
from scionlab.usage.rollup import roll_up
from scionlab.user_ases.user_as import user_as_update
from tests.factories import AttachmentPointFactory, UserFactory, attach, spec
from tests.support.polling import config_members
from tests.usage_world import simple, store, stored_sums

pytestmark = [
    pytest.mark.skipif(connection.vendor != "postgresql", reason="needs PostgreSQL (DATABASE_URL)"),
    pytest.mark.xdist_group("backups"),  # of one database with the guide's name
]

GUIDE = (Path(__file__).resolve().parents[2] / "docs/operations.md").read_text(encoding="utf-8")
NAME = "scionlab"  # of the database and of its user, in the guide
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def block(heading: str) -> str:
    """The first commands below a heading of the guide."""
    found = re.search(rf"^### {heading}$.*?^```\n(.*?)^```$", GUIDE, flags=re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1]


class Server:
    """The tests' server, with the names that the guide uses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        here = connection.settings_dict
        self.environment = os.environ | {
            "PATH": f"{newest_postgres()}:{os.environ['PATH']}",
            "PGHOST": connection.get_connection_params()["host"],
            "PGUSER": here["USER"],
        }

    def run(self, commands: str) -> str:
        """As an administrator copies them: a line that fails ends it."""
        done = subprocess.run(
            ["sh", "-ec", commands], env=self.environment, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, f"{commands}\n{done.stderr}"
        return done.stdout

    def back_up(self) -> Path:
        for one in self.folder.glob("*.dump"):
            one.unlink()
        self.run(block("Backups").replace("/var/backups/scionlab", str(self.folder)))
        (made,) = self.folder.glob("*.dump")
        return made

    def restore(self, dump: Path) -> None:
        self.run(block("After a disaster").replace("FILE", str(dump)))
        connection.close()
        ContentType.objects.clear_cache()

    def schema(self) -> list[str]:
        """Without partitions, and without the casts and brackets that PostgreSQL writes differently once it was
        restored."""
        text = self.run(
            f"pg_dump --schema-only --no-owner --no-acl --dbname={NAME} --exclude-table='{partitions.TABLE}_2*'"
        )
        lines = [re.sub(r"::(character varying|text)(\[\])?|[()]", "", line) for line in text.splitlines()]
        return [line for line in lines if not line.startswith(("--", "\\"))]


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """The name of a new service's database, owned by a user who may do nothing else."""
    one, name = Server(tmp_path_factory.mktemp("new")), f"{NAME}_new"
    one.run(f"psql --quiet --dbname=postgres --command='CREATE ROLE {NAME} LOGIN'")
    try:
        one.run(f"createdb --owner={NAME} {name}")
        with django_db_blocker.unblock(), connected_to(name):
            call_command("migrate", verbosity=0)
        yield name
    finally:
        one.run(f"dropdb --if-exists --force {name}; psql --quiet --dbname=postgres --command='DROP ROLE {NAME}'")


@contextmanager
def connected_to(name: str) -> Iterator[None]:
    """As the user of the service."""
    before = {key: connection.settings_dict[key] for key in ("NAME", "USER")}
    connection.close()
    try:
        connection.settings_dict |= {"NAME": name, "USER": NAME}
        yield
    finally:
        connection.close()
        connection.settings_dict |= before
        ContentType.objects.clear_cache()


@pytest.fixture
def server(tmp_path: Path, migrated: str, django_db_blocker: DjangoDbBlocker) -> Iterator[Server]:
    """A copy of the new database; this process works in it."""
    one = Server(tmp_path)
    one.run(f"createdb --owner={NAME} --template={migrated} {NAME}")
    try:
        with django_db_blocker.unblock(), connected_to(NAME):
            yield one
    finally:
        one.run(f"dropdb --if-exists --force {NAME}")


def carry(day: datetime) -> None:
    """1000 bytes to the user in this day's first five minutes."""
    host = AttachmentPoint.objects.get().host
    store(host, simple(host, day, [0, 1000], segment=f"boot-{day:%j}"), day + timedelta(hours=1))
    roll_up()


def begin() -> Link:
    attach(UserFactory(email="owner@example.org"), spec(AttachmentPointFactory(host__public_ipv4="192.0.2.1")))
    carry(NOON)
    carry(NOON + DAY)
    return Link.objects.get()


def test_a_backup_is_restored_over_a_living_database_and_once_more(server: Server) -> None:
    link = begin()
    dump, schema = server.back_up(), server.schema()
    for _ in range(2):
        Link.objects.filter(pk=link.pk).delete()
        carry(NOON + 5 * DAY)  # the partition of a day that the backup does not have
        server.restore(dump)
        assert server.schema() == schema
        assert Link.objects.get() == link
        assert stored_sums(UsageSlot) == stored_sums(UsageDay)
        assert stored_sums(UsageDay)["to_user"][0] == 2000
        assert {"20261101", "20261102"} <= days_there()
        assert "20261106" not in days_there()


def test_a_restored_service_goes_on(server: Server) -> None:
    """It migrates, adds to the days of the backup, makes new ones, and drops old ones."""
    begin()
    server.restore(server.back_up())
    call_command("migrate", verbosity=0)
    carry(NOON + 5 * DAY)
    assert stored_sums(UsageSlot) == stored_sums(UsageDay)
    assert stored_sums(UsageDay)["to_user"][0] == 3000
    assert partitions.drop_before((NOON + DAY).date()) == 1
    assert "20261101" not in days_there()
    assert UsageSlot.objects.count() == 4


def test_the_backup_of_an_older_version_gets_the_tables_of_this_one(server: Server) -> None:
    newest = server.schema()
    call_command("migrate", "scion_config", "zero", verbosity=0)
    with transaction.atomic():  # without rows: today's models know columns that these tables may lack
        partitions.ensure([NOON.date()])
    server.restore(server.back_up())
    call_command("migrate", verbosity=0)
    assert server.schema() == newest
    assert days_there() == {"20261101"}


def move_port(link: Link, number: int) -> str:
    port = 50_000 + number
    user_as = UserAS.objects.get(pk=link.interface_b.AS_id)
    where = spec(AttachmentPoint.objects.get(), link_id=link.pk, public_port=port)
    values = {"label": "", "installation_type": user_as.installation_type, "attachments": [where]}
    user_as_update(user_as_id=user_as.pk, actor=user_as.owner, **values)
    return f":{port}"


def limit(link: Link, kbit: int) -> str:
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=kbit, actor=None)
    return f'"Bandwidth": {kbit}'


@pytest.mark.parametrize("save", [move_port, limit])
@pytest.mark.skipif(not settings.REDIS_URL, reason="needs Redis (REDIS_URL), which outlives the database")
def test_files_of_a_lost_save_are_not_given_under_the_number_of_the_next(
    server: Server, save: Callable[[Link, int], str]
) -> None:
    """The cache still has what a save wrote that the promoted standby, or the backup, does not have."""
    link = begin()
    key_ring()  # there is one, as in a service that was used
    dump = server.back_up()
    lost, lost_text = saved(link, save, 510)
    assert lost_text in lost
    server.restore(dump)
    ours, text = saved(link, save, 520)
    assert versions_in(ours) == versions_in(lost)
    assert text in ours
    assert lost_text not in ours


def saved(link: Link, save: Callable[[Link, int], str], number: int) -> tuple[str, str]:
    """The files of both hosts after the save, as each fetches them, and the text that stands in one of them."""
    text = save(link, number)
    hosts = Host.objects.filter(pk__in=[link.interface_a.host_id, link.interface_b.host_id]).order_by("pk")
    tarballs = [config_members(config_for(host).content) for host in hosts]
    return "\n".join(content.decode() for members in tarballs for content in members.values()), text


def versions_in(files: str) -> list[str]:
    return re.findall(r'"(?:limits_)?version": "?([0-9.]+)', files)


def days_there() -> set[str]:
    return {name.rpartition("_")[2] for name in partitions._there()}
