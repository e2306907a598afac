"""What the service stores and hands out as a host's keys, judged by the real `scion-pki`."""

from __future__ import annotations

import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from lab.scion.programs import program
from scionlab.accounts.models import User
from scionlab.scion_config.chain import as_new_keys
from scionlab.scion_config.credentials import files_for
from scionlab.scion_config.isd import isd_ensure, trc_reset
from scionlab.scion_config.models import TRC
from scionlab.scion_config.renewal import keys_renew
from scionlab.testbed.infrastructure import infrastructure_as_delete, infrastructure_as_update
from scionlab.testbed.models import AS
from tests.factories import AttachmentPointFactory, HostFactory, UserFactory, attach, spec
from tests.trust_world import host_of, make_core

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scion_programs")]


def scion_pki(*words: str | Path) -> str:
    """What it says; fails where it disagrees."""
    argv = [str(program("scion-pki")), *map(str, words)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def core(db: None) -> AS:
    return make_core()


@pytest.fixture
def user_as(core: AS) -> AS:
    return attach(UserFactory(), spec(AttachmentPointFactory()))


def installed(as_: AS, folder: Path) -> Path:
    """The files of its first host below `folder`, as a client installs them; returns etc/scion."""
    for name, content in files_for(host_of(as_)).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder / "etc/scion"


def check_line(scion: Path, *names: str) -> None:
    paths = [scion / "certs" / f"{name}.trc" for name in names]
    scion_pki("trc", "verify", "--anchor", paths[0], *paths)


def check_chain(scion: Path, trc: str) -> None:
    (chain,) = (scion / "crypto/as").glob("*.pem")
    scion_pki("certificate", "verify", "--trc", scion / "certs" / f"{trc}.trc", chain)
    assert str(chain) in scion_pki("key", "match", "certificate", scion / "crypto/as/cp-as.key", chain)


def test_files_of_a_core_as_are_what_they_are_called(core: AS, tmp_path: Path) -> None:
    scion = installed(core, tmp_path)
    check_line(scion, "ISD17-B1-S1")
    check_chain(scion, "ISD17-B1-S1")
    name = "ISD17-ASffaa_0_1101"
    for kind, path in {
        "cp-ca": f"crypto/ca/{name}.ca.crt",
        "sensitive-voting": f"crypto/voting/{name}.sensitive.crt",
        "regular-voting": f"crypto/voting/{name}.regular.crt",
    }.items():
        scion_pki("certificate", "validate", "--type", kind, scion / path)


def test_the_whole_line_of_an_isd_s_life_is_verified(core: AS, user_as: AS, tmp_path: Path) -> None:
    """Further core ASes, lost keys, one that is core no longer, one that is deleted, renewals with another root."""
    boss = User.objects.create(email="boss@example.org")
    second, third = make_core("ffaa:0:1102"), make_core("ffaa:0:1103")
    as_new_keys(as_id=second.pk, actor=boss, core=True)
    infrastructure_as_update(as_id=second.pk, label="", is_core=False)
    infrastructure_as_delete(as_id=core.pk)
    isd_ensure(isd_id=third.isd_id, actor=None, now=timezone.now() + timedelta(days=300))
    isd_ensure(isd_id=third.isd_id, actor=None, now=timezone.now() + timedelta(days=400))
    scion = installed(user_as, tmp_path)
    names = [str(one) for one in TRC.objects.all()]
    assert names == [f"ISD17-B1-S{serial}" for serial in range(1, 9)]
    check_line(scion, *names)


def test_a_chain_of_before_is_verified_by_the_trc_that_renews_its_root(db: None, tmp_path: Path) -> None:
    """The root keeps its key, so nobody needs another chain for that. It was made 366 days ago, CA and chain 80."""
    now, as_ = timezone.now(), HostFactory(AS__is_core=True).AS
    for days in (366, 80):
        keys_renew(now=now - timedelta(days=days))
    before = files_for(host_of(as_))
    isd_ensure(isd_id=as_.isd_id, actor=None, now=now)
    after = files_for(host_of(as_))
    assert [name for name in after if after[name] != before.get(name)] == ["etc/scion/certs/ISD17-B1-S3.trc"]
    scion = installed(as_, tmp_path)
    check_line(scion, "ISD17-B1-S1", "ISD17-B1-S2", "ISD17-B1-S3")
    check_chain(scion, "ISD17-B1-S3")


def test_new_chains_are_verified_by_the_trc_that_replaces_leaked_keys(core: AS, user_as: AS, tmp_path: Path) -> None:
    as_new_keys(as_id=core.pk, actor=User.objects.create(email="boss@example.org"), core=True)
    keys_renew()
    for as_ in (core, user_as):
        scion = installed(as_, tmp_path / str(as_.pk))
        check_line(scion, "ISD17-B1-S1", "ISD17-B1-S2")
        check_chain(scion, "ISD17-B1-S2")


def test_a_new_line_of_trcs_is_a_base_and_verifies_the_chains_that_are_there(
    core: AS, user_as: AS, tmp_path: Path
) -> None:
    trc_reset(isd_id=core.isd_id, base=7, actor=None)
    make_core("ffaa:0:1102")
    scion = installed(user_as, tmp_path)
    check_line(scion, "ISD17-B7-S7", "ISD17-B7-S8")
    check_chain(scion, "ISD17-B7-S8")
