"""The testbed's keys on the administrators' pages, in their notices, in the metrics and on the command line."""

from __future__ import annotations

import base64
from io import StringIO
from pathlib import Path

import pytest
from django.contrib.admin.models import LogEntry
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from scionlab.accounts.models import User
from scionlab.scion_config.credentials import files_for
from scionlab.scion_config.isd import isd_ensure
from scionlab.scion_config.models import TRC, ASKeys, Certificate
from scionlab.scion_config.offer import endings
from scionlab.site.figures import families
from scionlab.testbed.models import AS, BandwidthChange, Host, UserAS
from tests.admin_pages import CHANGE, page
from tests.cases import table
from tests.pki_testbed import isd_keys
from tests.trust_world import DAY

pytestmark = pytest.mark.django_db


def text_of(door: Client, url: str) -> str:
    answer = door.get(url)
    assert answer.status_code == 200
    return answer.content.decode()


def keys_page(as_: AS) -> str:
    return reverse("admin:testbed_as_keys", args=[as_.pk])


def test_page_of_an_as_shows_its_certificates_until_when_and_no_key(door: Client, core: AS, user_as: UserAS) -> None:
    keys = ASKeys.objects.get(AS=user_as)
    for as_, url in ((user_as, page(UserAS, CHANGE, user_as.pk)), (core, page(AS, CHANGE, core.pk))):
        shown = text_of(door, url)
        assert f"{keys.not_after:%Y-%m-%d}" in shown
        assert keys_page(as_) in shown
        for name, content in files_for(Host.objects.get(AS=as_)).items():
            if name.endswith(".key"):
                assert content.decode().removeprefix("-----BEGIN PRIVATE KEY-----\n")[:24] not in shown


def test_button_makes_new_keys_once_and_keeps_who_did_it_and_why(
    door: Client, core: AS, user_as: UserAS, staff: User
) -> None:
    host = Host.objects.get(AS=user_as)
    before = files_for(host)
    door.post(keys_page(user_as), {"reason": "laptop stolen", "master": "on"})
    after = files_for(host)
    assert [name for name in after if after[name] != before[name]] == [
        "etc/scion/crypto/as/ISD17-ASffaa_1_1.pem",
        "etc/scion/crypto/as/cp-as.key",
        "etc/scion/keys/master0.key",
        "etc/scion/keys/master1.key",
    ]
    assert Host.objects.get(pk=host.pk).config_version == host.config_version + 1
    rows = BandwidthChange.objects.filter(reason="laptop stolen")
    assert [(row.actor, row.subject) for row in rows] == [(staff, "17-ffaa:1:1")] * 2
    assert LogEntry.objects.get().change_message == "Created new keys."


def test_button_replaces_voters_root_and_ca_of_a_core_as(door: Client, core: AS) -> None:
    door.post(keys_page(core), {"core": "on"})
    assert [str(one) for one in TRC.objects.all()] == ["ISD17-B1-S1", "ISD17-B1-S2"]
    assert Certificate.objects.filter(replaced_at=None).count() == 4


def test_refusal_is_told_and_changes_nothing(door: Client, user_as: UserAS) -> None:
    answer = door.post(keys_page(user_as), {}, follow=True)
    assert "ISD 17 has no core AS with a CA that issues certificates." in answer.content.decode()
    assert LogEntry.objects.count() == 0


# --- what ends ------------------------------------------------------------------------------------------------


def test_administrators_are_told_what_was_not_renewed(door: Client, core: AS, user_as: UserAS) -> None:
    now = timezone.now()
    assert endings(now) == []
    assert "SCION will stop working" not in text_of(door, reverse("cockpit"))
    ASKeys.objects.filter(AS=user_as).update(not_after=now + 19 * DAY)
    TRC.objects.update(not_after=now + 79 * DAY)
    Certificate.objects.filter(kind="cp-ca").update(not_after=now + 79 * DAY)
    trc, ca, own = endings(now)
    assert trc == f"the TRC ISD17-B1-S1 expires on {now + 79 * DAY:%Y-%m-%d}"
    assert ("CA of 17-ffaa:0:1101" in ca, "of 1 AS expires" in own) == (True, True)
    assert f"SCION will stop working: {trc}" in text_of(door, reverse("cockpit"))


def test_what_the_task_renews_in_time_is_no_news(core: AS, user_as: UserAS) -> None:
    now = timezone.now()
    ASKeys.objects.update(not_after=now + 21 * DAY)
    TRC.objects.update(not_after=now + 81 * DAY)
    Certificate.objects.filter(kind="cp-ca").update(not_after=now + 81 * DAY)
    assert endings(now) == []


def test_metric_tells_when_the_first_of_each_ends(core: AS, user_as: UserAS) -> None:
    cache.delete("scionlab.metrics.figures")
    now = timezone.now().replace(microsecond=0)
    ASKeys.objects.filter(AS=user_as).update(not_after=now + 5 * DAY)
    found = {
        sample.labels["what"]: sample.value
        for family in families(now)
        for sample in family.samples
        if sample.name == "scionlab_trust_end_timestamp_seconds"
    }
    cache.delete("scionlab.metrics.figures")
    assert found == {
        "trc": TRC.objects.get().not_after.timestamp(),
        "core": Certificate.objects.get(kind="cp-ca").not_after.timestamp(),
        "as": (now + 5 * DAY).timestamp(),
    }


# --- the command ----------------------------------------------------------------------------------------------


def run(*words: str) -> str:
    said = StringIO()
    call_command("trc", *words, stdout=said)
    return said.getvalue()


def test_command_lists_trcs_and_begins_a_new_line(core: AS) -> None:
    assert "would be created" in run("reset", "17", "--base", "5", "--dry-run")
    assert TRC.objects.count() == 1
    assert run("reset", "17", "--base", "5").startswith("Created ISD17-B5-S5.")
    assert [line.split()[0] for line in run("list").splitlines()] == ["ISD17-B1-S1", "ISD17-B5-S5"]


@table("form", ["DER", "PEM"])
def test_command_takes_a_trc_back_that_a_restored_backup_does_not_have(core: AS, tmp_path: Path, form: str) -> None:
    isd_ensure(isd_id=core.isd_id, actor=None, now=timezone.now() + 280 * DAY)
    lost = bytes(TRC.objects.get(serial=2).content)
    TRC.objects.filter(serial=2).delete()
    path = tmp_path / "ISD17-B1-S2.trc"
    pem = b"-----BEGIN TRC-----\n" + base64.encodebytes(lost) + b"-----END TRC-----\n"
    path.write_bytes(lost if form == "DER" else pem)
    assert run("import", str(path)) == "Stored ISD17-B1-S2.\n"
    assert bytes(TRC.objects.get(serial=2).content) == lost
    with pytest.raises(CommandError, match="ISD17-B1-S2 is not the update of ISD17-B1-S2"):
        run("import", str(path))


def test_command_takes_no_trc_that_others_signed(core: AS, tmp_path: Path) -> None:
    keys = isd_keys()
    keys.make_base()
    keys.make_next(*keys.regular)
    path = tmp_path / "forged.trc"
    path.write_bytes(keys.trcs[1])
    with pytest.raises(CommandError):
        run("import", str(path))
    path.write_bytes(b"-----BEGIN TRC-----")
    with pytest.raises(CommandError, match="This is not a TRC"):
        run("import", str(path))
    with pytest.raises(CommandError, match="cannot be read"):
        run("import", str(tmp_path / "nothing"))
    assert [str(one) for one in TRC.objects.all()] == ["ISD17-B1-S1"]


@table(("isd", "base", "said"), [("18", "5", "ISD 18 does not exist."), ("17", "1", "Base 1 is not above ISD17-B1-S1")])
def test_command_refuses_what_cannot_be(core: AS, isd: str, base: str, said: str) -> None:
    with pytest.raises(CommandError, match=said):
        run("reset", isd, "--base", base)
