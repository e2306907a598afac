"""Redis gone, frozen or emptied: pages work, saves are accepted, and what they mean is carried out anyway."""

from __future__ import annotations

from tests.faults.service.servers import wait_for
from tests.faults.service.site import MAIL, Site

QUICK_S = 10.0  # what nobody takes for a service that hangs; measured is a fiftieth of it


def everything_is_served_quickly(site: Site) -> None:
    for answer in (
        site.get("/ases/"),
        site.get(f"/ases/{site.facts['user_as']}/"),
        site.get("/admin/", as_staff=True),
        site.poll(version=site.versions()[0]),
    ):
        assert answer.status in {200, 304}, answer.text
        assert answer.seconds < QUICK_S


def test_without_redis_saves_are_accepted_and_carried_out_when_it_is_back(site: Site) -> None:
    version, limits = site.versions()
    site.redis.stop()
    health = site.get("/readyz", as_nobody=True)
    assert (health.status, health.text.splitlines()[0]) == (200, "ok")
    assert "redis: ConnectionError" in health.text
    saved = site.save(300)
    assert (saved.status, saved.json["bandwidth_kbit"]) == (200, 300)
    assert saved.seconds < QUICK_S
    lowered = site.save_default(200)
    assert lowered.status == 302, lowered.text
    assert lowered.seconds < QUICK_S
    everything_is_served_quickly(site)
    site.fetch(version=version, limits=limits)  # the saved bandwidth reaches the host without Redis
    assert site.maxima() == [1000, 1000, 1000], "a default waits for the worker, and the worker for Redis"
    site.redis.start()
    wait_for(lambda: site.maxima() == [200, 200, 200], "Redis is back: the default is carried out")
    assert site.stored_kbit() == 300


def test_a_save_does_not_wait_for_a_redis_that_hangs(site: Site) -> None:
    site.redis.freeze()
    try:
        saved = site.save(400)
        again = site.save(500)
        page = site.get("/ases/")
    finally:
        site.redis.thaw()
    assert [saved.status, again.status, page.status] == [200, 200, 200]
    assert max(saved.seconds, again.seconds, page.seconds) < 2 * QUICK_S
    assert site.stored_kbit() == 500


def test_tasks_that_redis_forgot_are_found_in_the_database(site: Site) -> None:
    """The worker does not run, and Redis loses all that was queued meanwhile, mail included."""
    site.kill("worker")
    site.kill("beat")
    assert site.save_default(250).status == 302
    site.postgres.ask(MAIL, "forgotten", "Enforced")
    assert site.redis.command("flushall") == "OK"
    site.start()
    wait_for(
        lambda: site.maxima() == [250, 250, 250],
        "worker and beat are back, all messages lost: the default is carried out",
    )
    wait_for(lambda: any("Enforced" in mail for mail in site.mailbox.received), "the mail is sent")


def test_redis_restarts_under_a_worker_that_holds_messages(site: Site) -> None:
    """All connections are dead, and the worker has one task in its middle and others taken but not begun. Out of the
    box it dies of putting these back (kombu 5.7; `scionlab.celery`)."""
    assert site.save(600).status == 200
    with site.postgres.holding("SELECT 1 FROM testbed_attachmentpoint WHERE id = %s FOR UPDATE", site.facts["aps"][1]):
        site.postgres.ask("UPDATE testbed_bandwidthpolicy SET default_bandwidth_kbit = 650")  # the page would wait too
        wait_for(site.postgres.somebody_waits, "the worker is in the middle of a sweep")
        wait_for(lambda: site.redis.command("hlen", "unacked") not in {"", "0"}, "and has taken another")
        site.redis.stop()
        site.redis.start()
        assert site.save(620, link=2).status == 200
    wait_for(lambda: site.maxima() == [650, 650, 650], "Redis restarted: the default is carried out")
    assert site.save_default(640).status == 302
    wait_for(lambda: site.maxima() == [640, 640, 640], "Redis restarted: the next default is carried out")
    assert site.runs("worker")
    everything_is_served_quickly(site)


def test_a_worker_goes_on_after_redis_hung_while_its_tasks_began(site: Site) -> None:
    """It acknowledges each of the four messages that it holds, and gets no answer. kombu 5.7 counts them as held for
    good, and takes no message any more (`scionlab.celery`)."""
    unanswered = "Couldn't ack"
    log = site.service.var_dir / "log" / "worker.log"
    before = log.read_text(errors="replace").count(unanswered)
    with site.postgres.holding("SELECT 1 FROM testbed_attachmentpoint WHERE id = %s FOR UPDATE", site.facts["aps"][1]):
        site.postgres.ask("UPDATE testbed_bandwidthpolicy SET default_bandwidth_kbit = 650")
        wait_for(site.postgres.somebody_waits, "the worker is in the middle of a sweep")
        wait_for(lambda: int(site.redis.command("llen", "scionlab") or 0) > 1, "and holds so many that others wait")
        site.redis.freeze()
    try:
        wait_for(lambda: log.read_text(errors="replace").count(unanswered) - before >= 4, "four have begun")
    finally:
        site.redis.thaw()
    assert site.save_default(640).status == 302
    wait_for(lambda: site.maxima() == [640, 640, 640], "Redis answers again: the next default is carried out")
