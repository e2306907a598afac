"""A deployment: the old web tier ends while polls wait and people save, a new one starts, both run side by side."""

from __future__ import annotations

import signal
import time
from functools import partial

import pytest

from tests.faults.service.servers import DEADLINE_S, wait_for
from tests.faults.service.site import Answer, InBackground, Site, free_port

pytestmark = pytest.mark.xdist_group("faults of the service")  # one process breaks it, others do not wait


def test_a_new_web_tier_takes_over_and_no_accepted_save_is_lost(site: Site) -> None:
    new_port = free_port()
    newer = site.another(new_port)
    (newer.var_dir / "log").mkdir(parents=True)
    newer.start_part("web")
    migrating = InBackground(lambda: site.service.manage("migrate", "--no-input"))
    try:
        wait_for(lambda: _answers(site, new_port), "the new one is up")
        # Both serve: who saves on either is seen on both, and each bump counts.
        before = site.versions()[1]
        assert [site.save(510).status, site.save(520, port=new_port).status] == [200, 200]
        assert site.versions()[1] == before + 2
        version, limits = site.versions()
        waiting = [InBackground(partial(_wait, site, host, site.port)) for host in range(3)]
        elsewhere = InBackground(partial(_wait, site, 0, new_port))
        time.sleep(0.5)  # they wait by now
        locked = "SELECT 1 FROM scionlab_host WHERE id = %s FOR UPDATE"
        with site.postgres.holding(locked, site.facts["ap_hosts"][0]):
            saving = InBackground(lambda: site.save(530))  # on the old one, in its middle when that shall end
            wait_for(site.postgres.somebody_waits, "the save is in its middle")
            old = site.service.part("web")
            old.send_signal(signal.SIGTERM)
            sent_away = [poll.result() for poll in waiting]
        assert saving.result().status == 200, "what was begun is finished"
        assert site.stored_kbit() == 530
        assert {answer.status for answer in sent_away} <= {200, 304, 503}
        assert all(1 <= int(answer.headers["Retry-After"]) <= 10 for answer in sent_away if answer.status == 503)
        assert elsewhere.result().status == 200, "woken by the other tier's save"
        assert old.wait(timeout=DEADLINE_S) == 0
        site.fetch(version=version, limits=limits, port=new_port)  # where they find it
        migrating.result()
    finally:
        newer.stop()


def _wait(site: Site, host: int, port: int) -> Answer:
    version, limits = site.versions(host)
    return site.poll(version=version, limits=limits, wait_s=30, host=host, port=port)


def _answers(site: Site, port: int) -> bool:
    try:
        return site.request("GET", "/healthz", headers={}, port=port).status == 200
    except OSError:
        return False
