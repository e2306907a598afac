"""The keys of the testbed: who gets which, when they are renewed, and whose H rises by that.

What SCION's own programs say of it is in tests/scion/test_service_trust.py; what is lost, leaked or deleted, in
test_trust_lost.py.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from scionlab.accounts.models import User
from scionlab.scion_config.chain import as_new_keys
from scionlab.scion_config.credentials import files_for
from scionlab.scion_config.isd import isd_ensure
from scionlab.scion_config.models import TRC, ASKeys, Certificate
from scionlab.scion_config.pki.certificates import Kind, isd_as_of
from scionlab.scion_config.pki.keys import key_from_pem
from scionlab.scion_config.renewal import keys_renew
from scionlab.scion_config.tasks import renew_keys
from scionlab.testbed.models import AS, AttachmentPoint, BandwidthChange, Host, Link, UserAS
from tests.factories import HostFactory, attach, spec
from tests.support.counters import Counters
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


# --- what is made ---------------------------------------------------------------------------------------------


def test_the_first_core_as_makes_the_base_trc_of_its_isd(core: AS) -> None:
    assert trcs() == ["ISD17-B1-S1"]
    trc = verified_line()
    assert trc.policy.core_ases == trc.policy.authoritative_ases == ("ffaa:0:1101",)
    assert trc.policy.quorum == 1
    kinds = (Kind.SENSITIVE, Kind.REGULAR, Kind.ROOT)
    assert set(trc.policy.certificates) == {certificate(core, kind) for kind in kinds}


def test_no_two_certificates_in_use_share_a_key(core: AS, user_as: UserAS) -> None:
    second = make_core("ffaa:0:1102")
    kinds = (Kind.SENSITIVE, Kind.REGULAR, Kind.ROOT, Kind.CA)
    found = [certificate(as_, kind) for as_ in (core, second) for kind in kinds]
    found += [chain_of(as_)[0] for as_ in (core, second, user_as)]
    numbers = {one.public_key().public_numbers() for one in found}  # type: ignore[union-attr]  # all on curves
    assert len(numbers) == len(found) == 11


def test_a_further_core_as_makes_a_sensitive_update_and_both_decide_from_then_on(core: AS) -> None:
    first = newest()
    make_core("ffaa:0:1102")
    trc = verified_line()
    assert trcs() == ["ISD17-B1-S1", "ISD17-B1-S2"]
    assert (trc.policy.core_ases, trc.policy.quorum) == (("ffaa:0:1101", "ffaa:0:1102"), 2)
    assert trc.votes == tuple(first.policy.of_kind(Kind.SENSITIVE))


def test_each_isd_has_its_own_trcs_and_every_host_gets_all(core: AS) -> None:
    other = make_core("ffaa:0:1201", isd=19)
    for as_ in (core, other):
        found = [name for name in files_for(host_of(as_)) if name.endswith(".trc")]
        assert found == [TRC_1, "etc/scion/certs/ISD19-B1-S1.trc"]


def test_host_of_a_core_as_gets_what_a_ca_and_voters_need(core: AS) -> None:
    name = "ISD17-ASffaa_0_1101"
    assert list(files_for(host_of(core))) == [
        TRC_1,
        f"etc/scion/crypto/as/{name}.pem",
        "etc/scion/crypto/as/cp-as.key",
        f"etc/scion/crypto/ca/{name}.ca.crt",
        "etc/scion/crypto/ca/cp-ca.key",
        f"etc/scion/crypto/voting/{name}.regular.crt",
        f"etc/scion/crypto/voting/{name}.sensitive.crt",
        "etc/scion/crypto/voting/regular-voting.key",
        "etc/scion/crypto/voting/sensitive-voting.key",
        *MASTER_KEYS,
    ]


def test_host_of_a_user_as_gets_trcs_chain_and_master_keys(core: AS, user_as: UserAS) -> None:
    chain, key = "etc/scion/crypto/as/ISD17-ASffaa_1_1.pem", "etc/scion/crypto/as/cp-as.key"
    assert list(files_for(host_of(user_as))) == [TRC_1, chain, key, *MASTER_KEYS]
    own, ca = chain_of(user_as)
    own.verify_directly_issued_by(ca)
    ca.verify_directly_issued_by(certificate(core, Kind.ROOT))
    assert key_from_pem(files_for(host_of(user_as))[key]).public_key() == own.public_key()


def test_a_further_host_of_an_as_gets_trcs_and_master_keys_alone(core: AS, further: Host) -> None:
    assert list(files_for(further)) == [TRC_1, *MASTER_KEYS]
    first = files_for(host_of(core))
    assert {name: first[name] for name in MASTER_KEYS} == {name: files_for(further)[name] for name in MASTER_KEYS}


def test_two_ases_have_different_master_keys_of_16_bytes(core: AS, user_as: UserAS) -> None:
    found = {files_for(host_of(as_))[name] for as_ in (core, user_as) for name in MASTER_KEYS}
    assert (len(found), {len(one) for one in found}) == (4, {24})


def test_files_are_the_same_bytes_for_the_same_database_and_nothing_is_written(core: AS, user_as: UserAS) -> None:
    host = host_of(core)
    with CaptureQueriesContext(connection) as queries:
        first = files_for(host)
    assert [query["sql"][:6] for query in queries] == ["SELECT"] * len(queries)
    assert files_for(Host.objects.get(pk=host.pk)) == first
    assert len(queries) == 4


def test_a_host_without_an_as_gets_the_trcs_alone(core: AS) -> None:
    assert list(files_for(Host.objects.create())) == [TRC_1]


def test_each_issue_is_in_the_record_of_changes_with_who_did_it(staff: User, owner: User, ap: AttachmentPoint) -> None:
    make_core(actor=staff)
    attach(owner, spec(ap))
    core, rows = "17-ffaa:0:1101", BandwidthChange.objects.filter(kind__in=["trc", "certificate"])
    assert {(row.subject, row.actor, row.detail.split()[0]) for row in rows} == {
        ("ISD17-B1-S1", staff, "ISD17-B1-S1,"),
        *((core, staff, kind) for kind in ("sensitive-voting", "regular-voting", "cp-root", "cp-ca", "cp-as")),
        ("17-ffaa:1:1", owner, "cp-as"),
    }


def test_a_trc_is_stored_once_and_never_altered(core: AS) -> None:
    trc = TRC.objects.get()
    with pytest.raises(ValueError, match="cannot be changed"):
        trc.save()
    with pytest.raises(IntegrityError), transaction.atomic():
        TRC.objects.create(
            isd=trc.isd, base=1, serial=1, content=b"x", not_before=trc.not_before, not_after=trc.not_after
        )


# --- ASes that have no keys -----------------------------------------------------------------------------------


def test_an_as_is_made_without_a_chain_while_its_isd_has_no_core_as(user_as: UserAS) -> None:
    assert list(files_for(host_of(user_as))) == MASTER_KEYS
    assert keys_renew() == 1  # the attachment point, which had no keys at all
    assert chain_of(user_as) == []


def test_when_the_first_core_as_comes_its_isd_gets_chains_and_hosts_that_wait_for_one_are_told(user_as: UserAS) -> None:
    """SCION does not run there without a chain, so nothing is interrupted."""
    before = files_for(host_of(user_as))
    make_core()
    renew_keys()
    assert [isd_as_of(one) for one in chain_of(user_as)] == ["17-ffaa:1:1", "17-ffaa:0:1101"]
    assert version_of(user_as) == 2
    after = files_for(host_of(user_as))
    assert {name: after[name] for name in MASTER_KEYS} == before


def test_an_as_without_keys_gets_them_once_and_h_of_all_its_hosts_rises_once(core: AS, ap: AttachmentPoint) -> None:
    second = HostFactory(AS=ap.AS)
    assert [list(files_for(one)) for one in (ap.host, second)] == [[TRC_1], [TRC_1]]
    counters = Counters()
    assert [keys_renew(), keys_renew()] == [1, 0]
    assert counters.risen() == {ap.host: (1, 0), second: (1, 0)}  # with different master keys they reject each other
    assert [len(files_for(one)) for one in (ap.host, second)] == [5, 3]


def test_an_isd_of_another_service_gets_no_keys_before_its_core_as_is_taken_over(ap: AttachmentPoint) -> None:
    AS.objects.filter(pk=ap.AS_id).update(is_core=True)
    Host.objects.update(limits_only=True)
    assert keys_renew() == 0
    assert (trcs(), Certificate.objects.count(), ASKeys.objects.count()) == ([], 0, 0)
    Host.objects.update(limits_only=False)
    assert keys_renew() == 1
    assert trcs() == [f"ISD{ap.AS.isd.isd_id}-B1-S1"]


def test_missing_keys_are_made_in_pieces(
    core: AS, ap: AttachmentPoint, ap_b: AttachmentPoint, monkeypatch: Any
) -> None:
    monkeypatch.setattr("scionlab.scion_config.renewal.ASES_PER_RUN", 1)
    assert [keys_renew() for _ in range(3)] == [1, 1, 0]


# --- renewal --------------------------------------------------------------------------------------------------


def test_a_chain_is_renewed_before_two_thirds_of_its_life_and_its_host_is_told_once(
    core: AS, user_as: UserAS, link: Link
) -> None:
    now = timezone.now()
    Host.objects.exclude(AS=user_as).update(limits_only=True)  # their chains are due on other days
    keys = ASKeys.objects.get(AS=user_as)
    assert keys.renew_at is not None
    assert now + 31 * DAY < keys.renew_at < now + 60 * DAY
    old, version, ap_version = chain_of(user_as), version_of(user_as), version_of(link.interface_a.AS)
    keys_renew(now=keys.renew_at - timedelta(minutes=1))
    assert (chain_of(user_as), version_of(user_as)) == (old, version)
    keys_renew(now=keys.renew_at)
    keys_renew(now=keys.renew_at)
    new = chain_of(user_as)
    assert new[0].public_key() != old[0].public_key()
    assert new[0].not_valid_after_utc - old[0].not_valid_after_utc > 31 * DAY
    assert (version_of(user_as), version_of(link.interface_a.AS)) == (version + 1, ap_version)


def test_a_renewed_chain_restarts_no_host_but_that_of_the_control_service(core: AS, further: Host) -> None:
    keys_renew(now=timezone.now() + 60 * DAY)
    assert list(Host.objects.filter(AS=core).order_by("pk").values_list("config_version", flat=True)) == [2, 1]


def test_h_of_a_host_with_limits_only_does_not_rise(core: AS, user_as: UserAS) -> None:
    Host.objects.filter(AS=user_as).update(limits_only=True)
    version = version_of(user_as)
    keys_renew(now=timezone.now() + 60 * DAY)
    assert version_of(user_as) == version


def test_a_trc_is_renewed_with_three_months_left_and_raises_no_h(core: AS) -> None:
    ASKeys.objects.update(renew_at=timezone.now() + 9999 * DAY)
    now = timezone.now()
    keys_renew(now=now + 274 * DAY)
    assert trcs() == ["ISD17-B1-S1"]
    keys_renew(now=now + 276 * DAY)
    assert trcs() == ["ISD17-B1-S1", "ISD17-B1-S2"]
    assert version_of(core) == 1
    assert verified_line().votes == tuple(newest().policy.of_kind(Kind.REGULAR))


def test_a_root_that_is_renewed_keeps_its_key_so_that_every_chain_stays_valid(core: AS, user_as: UserAS) -> None:
    ASKeys.objects.update(renew_at=timezone.now() + 9999 * DAY)
    old, chain = certificate(core, Kind.ROOT), chain_of(user_as)
    isd_ensure(isd_id=core.isd_id, actor=None, now=timezone.now() + 366 * DAY)
    new = certificate(core, Kind.ROOT)
    assert new.not_valid_after_utc - old.not_valid_after_utc > 365 * DAY
    assert new.public_key() == old.public_key()
    chain[1].verify_directly_issued_by(new)
    assert new in verified_line().policy.certificates
    assert old not in newest().policy.certificates


@pytest.mark.long
def test_for_six_years_nothing_ends_and_a_host_is_told_every_one_to_two_months(core: AS, user_as: UserAS) -> None:
    second, began, version = make_core("ffaa:0:1102"), timezone.now(), version_of(user_as)
    voter = certificate(core, Kind.SENSITIVE)
    for days in range(0, 6 * 365, 20):
        keys_renew(now=began + days * DAY)
        assert everything_is_valid([core, second, user_as], began + days * DAY), days
    assert verified_line().id.base == 1
    assert certificate(core, Kind.SENSITIVE) != voter
    assert 33 <= version_of(user_as) - version <= 56
    assert Certificate.objects.filter(replaced_at__isnull=False).exclude(private_encrypted="").count() == 0


def test_keys_that_nothing_is_signed_with_any_more_are_not_kept(core: AS) -> None:
    make_core("ffaa:0:1102")
    as_new_keys(as_id=core.pk, actor=User.objects.create(email="x@example.org"), core=True)
    gone = Certificate.objects.filter(replaced_at__isnull=False)
    assert sorted(gone.values_list("kind", "private_encrypted")) == [
        ("cp-ca", ""), ("cp-root", ""), ("regular-voting", ""), ("sensitive-voting", ""),
    ]  # fmt: skip
