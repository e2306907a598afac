"""A worker or beat killed in the middle of its work, and a web process killed between the commit and the queue."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import yaml

from lab.service import REPOSITORY, CoordinationService
from scionlab.platform import beat
from tests.faults.service.servers import DEADLINE_S, wait_for
from tests.faults.service.site import MAIL, InBackground, Site, free_port


def limits_versions(site: Site) -> list[int]:
    rows = site.postgres.ask(
        "SELECT limits_version FROM testbed_host WHERE id = ANY(%s) ORDER BY id", site.facts["ap_hosts"]
    )
    return [version for (version,) in rows if isinstance(version, int)]


def mails_with(site: Site, subject: str) -> int:
    return sum(f"Subject: {subject}" in mail for mail in site.mailbox.received)


def kill_in_the_middle_of_a_fan_out(site: Site) -> bool:
    """A lock on the second of three attachment points stops it: one is carried out, two are not.

    False where a sweep that had passed the first one before we changed the default came to that lock: the one process
    of the worker is then in an older fan-out than ours.
    """
    with site.postgres.holding("SELECT 1 FROM testbed_attachmentpoint WHERE id = %s FOR UPDATE", site.facts["aps"][1]):
        # Written as a row: the page would wait for that lock as well.
        site.postgres.ask("UPDATE testbed_bandwidthpolicy SET default_bandwidth_kbit = 300")
        wait_for(site.postgres.somebody_waits, "a sweep is in the middle")
        if site.maxima()[0] != 300:
            return False
        site.kill("worker")
    return True


def test_a_worker_killed_in_the_middle_of_a_fan_out_loses_none_and_bumps_none_twice(site: Site) -> None:
    for _ in range(10):
        before = limits_versions(site)
        if kill_in_the_middle_of_a_fan_out(site):
            break
        # By way of another one: three times 1000 may be from before the older fan-out ended.
        for default in (900, 1000):
            site.postgres.ask("UPDATE testbed_bandwidthpolicy SET default_bandwidth_kbit = %s", default)
            wait_for(lambda wanted=default: site.maxima() == [wanted] * 3, "the older fan-out is undone")
    assert site.maxima() == [300, 1000, 1000]
    site.start()
    wait_for(lambda: site.maxima() == [300, 300, 300], "worker is back: the rest of the fan-out is carried out")
    assert limits_versions(site) == [version + 1 for version in before]


def test_a_worker_killed_while_it_renders_keeps_no_host_waiting(site: Site) -> None:
    version, limits = site.versions()
    host = site.facts["ap_hosts"][0]
    site.postgres.ask("UPDATE testbed_host SET delivered_limits_version = 0 WHERE id = %s", host)
    with site.postgres.holding("SELECT 1 FROM testbed_host WHERE id = %s FOR UPDATE", host):
        site.postgres.ask("DELETE FROM delivery_issuedlimits WHERE host_id = %s", host)
        site.redis.command("flushall")  # nobody has rendered what the host lacks, so the sweep has it done
        wait_for(site.postgres.somebody_waits, "the worker waits for the host's row")
        site.kill("worker")
    assert site.save(450).status == 200
    answer = site.fetch(version=version, limits=limits)  # the web tier renders what nobody rendered ahead
    assert answer.body[:2] == b"\x1f\x8b"


def test_a_worker_killed_while_it_sends_a_mail_sends_it_after_the_lease(site: Site) -> None:
    """The mail server has the mail and did not say so: it may come twice then, with one Message-ID, and never not."""
    site.mailbox.unconfirmed = "Interrupted"
    ((mail_id,),) = site.postgres.ask(MAIL, "interrupted", "Interrupted")
    assert site.mailbox.reached.wait(timeout=DEADLINE_S)
    site.kill("worker")
    site.mailbox.unconfirmed = ""
    row = "SELECT sent_at IS NULL, not_before > now() + interval '4 minutes' FROM accounts_mail WHERE id = %s"
    assert site.postgres.ask(row, mail_id) == [(True, True)], "leased for five minutes to a worker that is dead"
    site.postgres.ask("UPDATE accounts_mail SET not_before = now() WHERE id = %s", mail_id)  # five minutes later
    site.start()
    wait_for(lambda: mails_with(site, "Interrupted") == 1, "worker is back, lease over: the mail is sent")
    wait_for(lambda: site.postgres.ask(row, mail_id)[0][0] is False, "it is noted as sent")


def beat_is_healthy(site: Site) -> bool:
    """By the command that docker-compose.yml has for it."""
    services = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())["services"]
    kind, command = services["beat"]["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    shell = command.replace("$$", "$")
    environment = site.service.environment | {"BEAT_HEARTBEAT": str(site.service.var_dir / "beat-heartbeat")}
    return subprocess.run(["sh", "-c", shell], env=environment, check=False, timeout=10).returncode == 0


def test_beat_is_healthy_while_it_goes_round_and_not_when_it_is_stuck(site: Site) -> None:
    heartbeat = site.service.var_dir / "beat-heartbeat"
    wait_for(lambda: beat_is_healthy(site), "beat is healthy")
    beat = site.service.part("beat")
    beat.send_signal(signal.SIGSTOP)
    try:
        time.sleep(0.2)  # what it was in the middle of
        os.utime(heartbeat, (time.time() - 130,) * 2)  # two minutes later
        time.sleep(2)  # twice its interval here
        assert not beat_is_healthy(site)
    finally:
        beat.send_signal(signal.SIGCONT)
    wait_for(lambda: beat_is_healthy(site), "beat goes on and is healthy again")


def sweeps_of(service: CoordinationService) -> int:
    """How often its beat has queued one."""
    return (service.var_dir / "log" / "beat.log").read_text(encoding="utf-8").count("Sending due task sweep")


def test_of_two_beats_one_works_and_the_other_takes_over_when_it_is_killed(site: Site) -> None:
    first, second = site.service, site.another(free_port())
    before = sweeps_of(first)
    wait_for(lambda: sweeps_of(first) > before, "the first one has the lease, whoever had it in another test")
    second.start_part("beat")
    try:
        wait_for((second.var_dir / "beat-heartbeat").exists, "the second beat goes round")
        before = sweeps_of(first)
        wait_for(lambda: sweeps_of(first) >= before + 2, "the first one works")
        assert sweeps_of(second) == 0
        owner = site.redis.command("get", beat.KEY)
        site.service.part("beat").kill()
        assert 0 < int(site.redis.command("pttl", beat.KEY)) <= beat.LEASE_S * 1000
        site.redis.command("pexpire", beat.KEY, "1")  # as many seconds later
        wait_for(lambda: sweeps_of(second) >= 1, "the second one takes over")
        assert site.redis.command("get", beat.KEY) not in {owner, ""}
    finally:
        second.stop()


def test_a_beat_that_slept_longer_than_its_lease_ends_instead_of_working_as_well(site: Site) -> None:
    working = site.service.part("beat")
    wait_for(lambda: site.redis.command("get", beat.KEY), "it works")
    working.send_signal(signal.SIGSTOP)
    try:
        time.sleep(0.2)  # what it was in the middle of
        site.redis.command("set", beat.KEY, "another one", "px", "5000")
        before = sweeps_of(site.service)
    finally:
        working.send_signal(signal.SIGCONT)
    assert working.wait(timeout=DEADLINE_S) == 0
    assert sweeps_of(site.service) == before


KILLED_AFTER_COMMIT = """
import django; django.setup()
import os, signal
from django.db import transaction
from scionlab.accounts.models import Mail
from scionlab.limits import defaults, update
from scionlab.accounts import mail
from scionlab.platform import queue

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

queue.queue_now = die  # what runs first after the commit
with transaction.atomic():
    defaults.site_default_set(default_bandwidth_kbit=500, actor=None)
    update.link_set_bandwidth(link_id={link}, bandwidth_kbit=380, actor=None)
    mail.mails_create([Mail(key="committed", recipient="owner@example.org", subject="Committed", body="It is.")])
"""


def test_what_was_committed_is_done_though_its_process_died_before_it_queued_anything(site: Site) -> None:
    """Nobody was told: neither the worker nor the poll that waits."""
    version, limits = site.versions()
    waiting = InBackground(lambda: site.poll(version=version, limits=limits, wait_s=25))
    site.python(KILLED_AFTER_COMMIT.format(link=site.facts["links"][0]), must_succeed=False)
    assert site.stored_kbit() == 380
    wait_for(lambda: site.maxima() == [500, 500, 500], "process died after the commit: the sweep found the default")
    wait_for(lambda: mails_with(site, "Committed") == 1, "the sweep found the mail")
    assert waiting.result().status == 200, "and the poll looked by itself"
