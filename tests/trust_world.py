"""What the tests of the testbed's keys make, and how they read what the service stores and hands out."""

from __future__ import annotations

from datetime import datetime, timedelta

from cryptography import x509

from scionlab.accounts.models import User
from scionlab.scion_config.credentials import files_for, newest_trc
from scionlab.scion_config.models import TRC, Certificate
from scionlab.scion_config.pki.certificates import Kind
from scionlab.scion_config.pki.trc import Trc
from scionlab.scion_config.pki.updates import verify
from scionlab.testbed.infrastructure import infrastructure_as_create
from scionlab.testbed.models import AS, ISD, Host

DAY = timedelta(days=1)
TRC_1 = "etc/scion/certs/ISD17-B1-S1.trc"
MASTER_KEYS = ["etc/scion/keys/master0.key", "etc/scion/keys/master1.key"]


def make_core(as_text: str = "ffaa:0:1101", isd: int = 17, actor: User | None = None) -> AS:
    number = int(as_text[-2:], 16)
    return infrastructure_as_create(
        isd=isd, as_text=as_text, label="", is_core=True, public_ipv4=f"192.0.2.{number + 30}", actor=actor
    )


def host_of(as_: AS) -> Host:
    return Host.objects.filter(AS=as_).order_by("pk")[0]


def version_of(as_: AS) -> int:
    return host_of(as_).config_version


def trcs(isd: int = 17) -> list[str]:
    return [str(one) for one in TRC.objects.filter(isd__isd_id=isd)]


def newest(isd: int = 17) -> Trc:
    found = newest_trc(ISD.objects.get(isd_id=isd).pk)
    assert found is not None
    return found


def verified_line(isd: int = 17) -> Trc:
    """Every TRC of the ISD, judged by its predecessor, as SCION would if it looked."""
    before = None
    for one in TRC.objects.filter(isd__isd_id=isd):
        before = verify(bytes(one.content), before)
    assert before is not None
    return before


def chain_of(as_: AS) -> list[x509.Certificate]:
    """Of the files of its first host: the AS certificate and its CA's."""
    found = [content for name, content in files_for(host_of(as_)).items() if name.endswith(".pem")]
    return x509.load_pem_x509_certificates(found[0]) if found else []


def certificate(as_: AS, kind: Kind) -> x509.Certificate:
    row = Certificate.objects.get(as_id=as_.as_id, kind=kind.value, replaced_at=None)
    return x509.load_der_x509_certificate(bytes(row.content))


def everything_is_valid(ases: list[AS], now: datetime) -> bool:
    trc = newest()
    in_trc = set(trc.policy.certificates)
    for as_ in ases:
        own, ca = chain_of(as_)
        if not own.not_valid_before_utc < now < own.not_valid_after_utc <= ca.not_valid_after_utc:
            return False
        own.verify_directly_issued_by(ca)
        roots = [one for one in in_trc if one.subject == ca.issuer]
        ca.verify_directly_issued_by(roots[0])
    return trc.validity.not_before < now < trc.validity.not_after
