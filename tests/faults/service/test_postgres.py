"""PostgreSQL restarted under saves and polls, or its disk full: nothing half, and nothing accepted is lost."""

from __future__ import annotations

import contextlib
import time

import psycopg
import pytest

from tests.faults.service.servers import wait_for
from tests.faults.service.site import Answer, InBackground, Site


def is_told_to_come_back(answer: Answer) -> bool:
    return answer.status == 503 and 1 <= int(answer.headers["Retry-After"]) <= 10


def test_while_the_database_is_away_everybody_is_told_when_to_come_back(site: Site) -> None:
    version, limits = site.versions()
    current = InBackground(lambda: site.poll(version=version, limits=limits, wait_s=2))
    time.sleep(0.3)
    site.postgres.stop()
    pages = [site.get("/ases/"), site.get("/login/", as_nobody=True), site.get("/admin/", as_staff=True)]
    pages.append(site.post("/admin/testbed/bandwidthpolicy/1/change/", {"default_bandwidth_kbit": "5"}, as_staff=True))
    for page in pages[:1] + pages[2:]:
        assert is_told_to_come_back(page), page.text
        assert "saved completely or not at all" in page.text
    assert pages[1].status in {200, 503}, "the log-in page needs no row"
    scripts = [site.save(111), site.poll(version="1.1")]
    for answer in scripts:
        assert is_told_to_come_back(answer), answer.text
        assert answer.json["code"] == "unavailable"
    health = site.get("/readyz", as_nobody=True)
    assert is_told_to_come_back(health)
    assert health.text.startswith("database: OperationalError")
    assert current.result().status in {304, 503}, "who waits is answered from what is known, or sent away for a moment"
    site.postgres.start()
    wait_for(lambda: site.save(222).status == 200, "PostgreSQL is back: saves work again")
    assert site.get("/ases/").status == 200
    assert site.stored_kbit() == 222
    assert 111 not in site.changes_of()
    site.start()  # the worker found its way back too
    assert site.save_default(77).status == 302
    wait_for(lambda: site.maxima() == [77, 77, 77], "PostgreSQL restarted: the worker carries a default out")


def test_a_save_that_the_restart_cuts_in_its_middle_is_not_half_stored(site: Site) -> None:
    """It has written the Link and waits for the host's row when the server is gone."""
    before = site.versions(), site.changes_of()
    with site.postgres.holding("SELECT 1 FROM testbed_host WHERE id = %s FOR UPDATE", site.facts["ap_hosts"][0]):
        saving = InBackground(lambda: site.save(123))
        wait_for(site.postgres.somebody_waits, "the save is in its middle")
        site.postgres.stop()
    assert is_told_to_come_back(saving.result())
    site.postgres.start()
    assert (site.versions(), site.changes_of()) == before
    assert site.stored_kbit() == 1000
    wait_for(lambda: site.save(123).status == 200, "the same save works now")


# A busy day in one statement: the log of changes needs a further file.
A_MEGABYTE_OF_LOG = "SELECT pg_logical_emit_message(false, 'test', repeat('x', 1000000))"


def test_a_full_disk_refuses_whole_saves_and_works_again_when_there_is_room(site: Site) -> None:
    disk = site.postgres.disk
    if disk is None:
        pytest.skip("needs root to mount a small disk")
    before = site.changes_of()
    accepted: list[int] = []
    refused: list[Answer] = []
    disk.fill()
    try:
        for kbit in range(500, 700):  # what has room in files that are there already goes through
            answer = site.save(kbit)
            if answer.status != 200:
                refused.append(answer)
                break
            accepted.append(kbit)
            with contextlib.suppress(psycopg.Error):
                site.postgres.ask(A_MEGABYTE_OF_LOG)
        assert [is_told_to_come_back(answer) for answer in refused] == [True], [answer.text for answer in refused]
    finally:
        disk.free()
        site.postgres.start()  # it gives up where not even its log fits
    wait_for(lambda: site.save(13).status == 200, "room on the disk of PostgreSQL: saves work again")
    assert site.changes_of() == [*before, *accepted, 13]
