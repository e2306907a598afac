"""Yesterday's backup restored for real, with pg_dump and pg_restore, while hosts have today's configuration."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from typing import Any

from tests.faults.service.servers import wait_for
from tests.faults.service.site import Answer, Site


def in_order(version: str, limits: int) -> tuple[int, int, int]:
    """Versions as agents compare them: G, then H and L."""
    generation, config_version = version.split(".")
    return int(generation), int(config_version), limits


def backed_up(site: Site) -> Callable[[], None]:
    """Take a backup of a service that has signed; the function that is returned restores it, with every part killed and
    started again."""
    assert site.fetch(version="0.0", limits=0).status == 200  # the first one made the key, which evidence needs
    dump = str((site.postgres.disk.path if site.postgres.disk else site.postgres.folder) / "yesterday.dump")
    socket = ["--host", str(site.postgres.folder), "--username", "postgres"]
    format_and_file = ["--format", "custom", "--file", dump]
    assert site.postgres.run("pg_dump", *socket, "--dbname", "postgres", *format_and_file).returncode == 0

    def restore() -> None:
        for name in ("web", "worker", "beat"):
            site.kill(name)
        for command in (  # into an empty database, as docs/operations.md says
            ["dropdb", *socket, "--maintenance-db", "template1", "--force", "postgres"],
            ["createdb", *socket, "--maintenance-db", "template1", "postgres"],
            ["pg_restore", *socket, "--dbname", "postgres", "--exit-on-error", dump],
        ):
            done = site.postgres.run(*command)
            assert done.returncode == 0, done.stderr
        site.redis.command("flushall")  # configurations and versions of days that never were
        site.start()

    return restore


def manifest_in(answer: Answer) -> dict[str, Any]:
    assert answer.status == 200
    with tarfile.open(fileobj=io.BytesIO(answer.body)) as tar:
        found = tar.extractfile("scionlab-config.json")
        assert found is not None
        manifest: dict[str, Any] = json.load(found)
        return manifest


STAGE_ENFORCED = 'href="#stage-enforced"'
NEW_AS = """
import django; django.setup()
from scionlab.testbed.models import AttachmentPoint, Link
from scionlab.accounts.models import User
from tests.factories import attach, spec
ap, owner = AttachmentPoint.objects.get(pk={ap}), User.objects.get(email="owner@example.org")
made = attach(owner, spec(ap, public_ip="{address}"))
link = Link.objects.get(interface_b__AS=made.pk)
print(made.pk, link.pk, link.interface_a.interface_id)
"""


def new_as(site: Site, address: str) -> tuple[str, int, str]:
    """Another AS at the first attachment point: the page of its Link, the key of that, its interface id there."""
    code = NEW_AS.format(ap=site.facts["aps"][0], address=address)
    user_as, link, interface_id = site.python(code).split()
    return f"/ases/{user_as}/links/{link}/", int(link), interface_id


def test_a_document_that_only_the_host_knows_is_never_shown_as_enforced(site: Site) -> None:
    """Another AS gets the lost one's interface id and versions before `raise_generation`."""
    restore = backed_up(site)
    _, _, interface_id = new_as(site, "198.51.100.8")
    lost = manifest_in(site.fetch(version="0.0", limits=0))
    digest = lost["sha256"]["etc/scion/link_info.json"]
    have: dict[str, Any] = {"version": lost["version"], "limits": lost["limits_version"]}
    kernel = {"links": {"1": 1000, interface_id: 1000}, "limits_digest": digest}
    evidence = {"signed": lost["signed"], "signatures": lost["signatures"]}
    assert site.report(**have, **kernel).json == {"stored": True}
    assert site.poll(**have, digest=digest).status == 304

    restore()
    page, link, found = new_as(site, "198.51.100.9")
    assert found == interface_id
    assert site.versions() == (have["version"], have["limits"]), "the counters alone cannot tell the two apart"

    answer = site.report(**have, **kernel).json
    assert STAGE_ENFORCED not in site.get(page).text
    assert answer == {"stored": True, "evidence_wanted": True}
    assert site.postgres.ask("SELECT 1 FROM enforcement_linkenforcement WHERE link_id = %s", link) == []
    assert "raise_generation" not in site.get("/cockpit/", as_staff=True).text
    offered = manifest_in(site.poll(**have, digest=digest))
    ours = offered["sha256"]["etc/scion/link_info.json"]
    assert ours != digest
    assert site.report(**have, **kernel, evidence=evidence).json == {"stored": True}
    assert "1 host has a configuration signed by this service" in site.get("/cockpit/", as_staff=True).text

    # The agent takes what is not older: the page tells the truth again, and the notice is still there.
    assert site.poll(**have, digest=ours).status == 304
    assert site.report(**have, links=kernel["links"], limits_digest=ours).json == {"stored": True}
    assert STAGE_ENFORCED in site.get(page).text
    assert "1 host has a configuration signed by this service" in site.get("/cockpit/", as_staff=True).text
    site.service.manage("raise_generation")
    assert "raise_generation" not in site.get("/cockpit/", as_staff=True).text
    assert site.versions()[0].split(".")[0] == str(int(have["version"].split(".")[0]) + 1)
    assert site.save_default(400).status == 302
    wait_for(lambda: site.maxima() == [400, 400, 400], "the worker works on the restored database")
