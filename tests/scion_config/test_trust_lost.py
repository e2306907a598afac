"""Keys of the testbed that were lost or leaked, ASes that go or change their role, and keys at rest in the database."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from bandwidth_config import RuleError
from scionlab.accounts.models import User
from scionlab.delivery.models import SigningKey
from scionlab.delivery.signing import key_ring, signing_key_revoke, signing_key_rotate, signing_keys_rewrap
from scionlab.scion_config.chain import as_new_keys
from scionlab.scion_config.credentials import files_for
from scionlab.scion_config.isd import trc_reset
from scionlab.scion_config.models import TRC, ASKeys, Certificate
from scionlab.scion_config.pki.certificates import Kind
from scionlab.scion_config.renewal import keys_renew
from scionlab.scion_config.tasks import renew_keys
from scionlab.testbed.infrastructure import infrastructure_as_delete, infrastructure_as_update
from scionlab.testbed.models import AS, AttachmentPoint, BandwidthChange, Host, UserAS
from tests.cases import table
from tests.factories import attach, spec
from tests.trust_world import (
    DAY,
    MASTER_KEYS,
    TRC_1,
    certificate,
    chain_of,
    everything_is_valid,
    host_of,
    make_core,
    newest,
    trcs,
    verified_line,
    version_of,
)

pytestmark = pytest.mark.django_db


# --- lost and leaked keys -------------------------------------------------------------------------------------


def test_new_master_keys_reach_all_hosts_of_the_as(core: AS, staff: User, further: Host) -> None:
    old = files_for(further)
    as_new_keys(as_id=core.pk, actor=staff, master=True)
    assert list(Host.objects.filter(AS=core).values_list("config_version", flat=True)) == [2, 2]
    assert [name for name, content in files_for(further).items() if content != old[name]] == MASTER_KEYS


def test_new_voters_root_and_ca_make_a_trc_and_new_chains_for_all_below(core: AS, user_as: UserAS, staff: User) -> None:
    version, old_root, old = version_of(user_as), certificate(core, Kind.ROOT), chain_of(user_as)
    as_new_keys(as_id=core.pk, actor=staff, core=True)
    trc = verified_line()
    assert str(trc.id) == "ISD17-B1-S2"
    assert old_root not in trc.policy.certificates
    assert certificate(core, Kind.ROOT).public_key() != old_root.public_key()
    assert (version_of(core), version_of(user_as)) == (2, version)
    renew_keys()
    renew_keys()
    assert (version_of(core), version_of(user_as)) == (2, version + 1)
    assert chain_of(user_as)[1] == certificate(core, Kind.CA) != old[1]


def test_an_as_that_is_not_core_has_no_voters_to_renew(core: AS, user_as: UserAS, staff: User) -> None:
    with pytest.raises(RuleError) as refused:
        as_new_keys(as_id=user_as.pk, actor=staff, core=True)
    assert refused.value.code == "as_not_core"


def lose(as_: AS, kind: Kind) -> None:
    Certificate.objects.filter(as_id=as_.as_id, kind=kind.value).update(private_encrypted="not to be decrypted")


def test_of_three_core_ases_two_replace_a_lost_voter(core: AS, staff: User) -> None:
    make_core("ffaa:0:1102")
    make_core("ffaa:0:1103")
    for kind in (Kind.SENSITIVE, Kind.REGULAR, Kind.ROOT, Kind.CA):
        lose(core, kind)
    as_new_keys(as_id=core.pk, actor=staff, core=True)
    trc = verified_line()
    assert str(trc.id) == "ISD17-B1-S4"
    assert len(trc.votes) == 2
    chain_of(core)[1].verify_directly_issued_by(certificate(core, Kind.ROOT))


def test_where_too_many_voters_are_lost_a_new_line_of_trcs_begins(core: AS, user_as: UserAS, staff: User) -> None:
    for kind in (Kind.SENSITIVE, Kind.ROOT, Kind.CA):
        lose(core, kind)
    with pytest.raises(RuleError) as refused:
        as_new_keys(as_id=core.pk, actor=staff, core=True)
    assert refused.value.code == "trc_vote_missing"
    assert str(trc_reset(isd_id=core.isd_id, base=5, actor=None)) == "ISD17-B5-S5"
    assert trcs() == ["ISD17-B1-S1", "ISD17-B5-S5"]
    keys_renew()
    assert everything_is_valid([core, user_as], timezone.now())
    assert str(newest().id) == "ISD17-B5-S5"
    assert list(files_for(host_of(user_as)))[:2] == [TRC_1, "etc/scion/certs/ISD17-B5-S5.trc"]


def test_after_a_reset_that_no_key_was_lost_for_every_chain_is_valid_still(core: AS, user_as: UserAS) -> None:
    """A backup was restored that is older than TRCs which hosts have."""
    chain = chain_of(user_as)
    trc_reset(isd_id=core.isd_id, base=4, actor=None)
    keys_renew()
    assert chain_of(user_as) == chain
    make_core("ffaa:0:1102")
    assert trcs() == ["ISD17-B1-S1", "ISD17-B4-S4", "ISD17-B4-S5"]
    assert everything_is_valid([core, user_as], timezone.now())


@table("base", [0, 1])
def test_a_new_line_begins_above_every_known_trc(core: AS, base: int) -> None:
    with pytest.raises(RuleError) as refused:
        trc_reset(isd_id=core.isd_id, base=base, actor=None)
    assert refused.value.code == "trc_base_low"
    assert trcs() == ["ISD17-B1-S1"]


# --- ASes that go, or change their role -----------------------------------------------------------------------


def test_a_core_as_that_is_deleted_leaves_the_trc_and_those_below_it_get_other_chains(
    core: AS, user_as: UserAS, staff: User
) -> None:
    second = make_core("ffaa:0:1102")
    infrastructure_as_delete(as_id=core.pk, actor=staff)
    trc = verified_line()
    assert (str(trc.id), trc.policy.core_ases, trc.policy.quorum) == ("ISD17-B1-S3", ("ffaa:0:1102",), 1)
    keys_renew()
    assert chain_of(user_as)[1] == certificate(second, Kind.CA)
    assert everything_is_valid([second, user_as], timezone.now())


def test_voters_of_the_last_core_as_stay_and_vote_for_the_next(core: AS) -> None:
    infrastructure_as_delete(as_id=core.pk)
    assert trcs() == ["ISD17-B1-S1"]
    assert Certificate.objects.filter(kind__endswith="voting").exclude(private_encrypted="").count() == 2
    make_core("ffaa:0:1102")
    assert verified_line().policy.core_ases == ("ffaa:0:1102",)


def test_a_core_as_that_is_made_anew_under_its_number_gets_new_keys(core: AS) -> None:
    old = certificate(core, Kind.ROOT)
    infrastructure_as_delete(as_id=core.pk)
    again = make_core()
    assert certificate(again, Kind.ROOT).public_key() != old.public_key()
    assert everything_is_valid([again], timezone.now())
    assert str(verified_line().id) == "ISD17-B1-S2"


def test_an_as_becomes_core_and_is_no_longer_with_one_rise_of_h_each(core: AS, ap: AttachmentPoint) -> None:
    keys_renew()
    version = version_of(ap.AS)
    infrastructure_as_update(as_id=ap.AS_id, label="", is_core=True)
    assert verified_line().policy.core_ases == ("ffaa:0:1101", "ffaa:0:1107")
    assert version_of(ap.AS) == version + 1
    assert "etc/scion/crypto/ca/cp-ca.key" in files_for(ap.host)
    infrastructure_as_update(as_id=ap.AS_id, label="", is_core=False)
    assert verified_line().policy.core_ases == ("ffaa:0:1101",)
    assert version_of(ap.AS) == version + 2
    assert "etc/scion/crypto/ca/cp-ca.key" not in files_for(ap.host)
    assert chain_of(ap.AS)[1] == certificate(core, Kind.CA)
    assert keys_renew() == 0


# --- at rest --------------------------------------------------------------------------------------------------


def secrets_of(core: AS) -> list[bytes]:
    return [content for name, content in files_for(host_of(core)).items() if name.endswith(".key")]


def test_the_database_alone_gives_nobody_a_key(core: AS, settings: Any) -> None:
    stored = "".join(str(list(model.objects.values_list())) for model in (Certificate, ASKeys, TRC))
    found = secrets_of(core)
    assert len(found) == 6
    for one in found:
        body = one.decode().replace("-----BEGIN PRIVATE KEY-----", "").replace("-----END PRIVATE KEY-----", "")
        assert body.split()[0] not in stored
    settings.SIGNING_SECRET = "another one, of thirty-two characters or more"
    with pytest.raises(RuleError) as refused:
        files_for(host_of(core))
    assert refused.value.code == "secret_unreadable"
    assert "SIGNING_SECRET" in refused.value.message


def test_a_change_of_the_secret_takes_the_testbed_s_keys_along(core: AS, settings: Any) -> None:
    before = secrets_of(core)
    old = settings.SIGNING_SECRET
    settings.SIGNING_SECRET, settings.SIGNING_SECRET_FALLBACKS = "a new one, of thirty-two characters or more", [old]
    assert signing_keys_rewrap() == 7  # four certificates of the core AS, its own key and two master keys
    settings.SIGNING_SECRET_FALLBACKS = []
    assert secrets_of(core) == before


def test_with_a_wrong_secret_nothing_is_made_and_nothing_replaced(
    core: AS, owner: User, ap: AttachmentPoint, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """What would be encrypted with it could not be read once the right one is set again."""
    key_ring()
    right, rows = settings.SIGNING_SECRET, Certificate.objects.count()
    settings.SIGNING_SECRET = "another one, of thirty-two characters or more"
    with pytest.raises(RuleError) as refused, transaction.atomic():
        attach(owner, spec(ap))
    assert (refused.value.code, "SIGNING_SECRET" in refused.value.message) == ("keys_unavailable", False)
    with pytest.raises(RuleError) as refused, transaction.atomic():
        make_core("ffaa:0:1201", isd=19)
    assert refused.value.code == "secret_unreadable"
    assert keys_renew(now=timezone.now() + 400 * DAY) == 0
    assert (Certificate.objects.count(), trcs(), ASKeys.objects.count()) == (rows, ["ISD17-B1-S1"], 1)
    told = [record.getMessage().split()[0] for record in caplog.records if record.levelno == logging.ERROR]
    assert told == ["user_as.not_equipped", "trust.isd_not_settled", "trust.keys_not_renewed"]
    settings.SIGNING_SECRET = right
    assert len(chain_of(attach(owner, spec(ap)))) == 2


def test_after_the_secret_was_lost_for_good_everything_is_made_anew(core: AS, user_as: UserAS, settings: Any) -> None:
    """As docs/scion-keys.md says."""
    key_ring()
    lost = SigningKey.objects.get()
    settings.SIGNING_SECRET = "another one, of thirty-two characters or more"
    signing_key_rotate(actor=None)
    signing_key_revoke(key_id=lost.key_id, actor=None)
    trc_reset(isd_id=core.isd_id, base=5, actor=None)
    ASKeys.objects.all().delete()
    keys_renew()
    assert everything_is_valid([core, user_as], timezone.now())


def test_no_key_is_in_the_log_or_in_the_record_of_changes(
    core: AS, staff: User, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="scionlab")
    as_new_keys(as_id=core.pk, actor=staff, core=True, master=True)
    said = caplog.text + str(list(BandwidthChange.objects.values_list()))
    for one in secrets_of(core):
        assert one.decode().splitlines()[1 if b"BEGIN" in one else 0] not in said
