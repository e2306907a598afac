"""TRCs, certificates and keys of SCION in a dump: verified, stored, unused until a take-over, and what is refused."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from django.utils import timezone

from scionlab.scion_config.credentials import files_for
from scionlab.scion_config.models import TRC, ASKeys, Certificate
from scionlab.scion_config.offer import endings
from scionlab.scion_config.pki.certificates import Credential, Kind, Validity, issue, kind_of, self_signed
from scionlab.scion_config.pki.keys import key_to_pem, new_key
from scionlab.scion_config.pki.lifetimes import LIFETIME, TRC_GRACE, TRC_LIFETIME
from scionlab.scion_config.pki.trc import Policy, read
from scionlab.scion_config.pki.updates import base_trc, next_trc
from scionlab.scion_config.renewal import keys_renew
from scionlab.testbed.models import AS, BandwidthChange, Host
from tests.support.counters import Counters
from tests.support.importing import counted, host_of, risen, run
from tests.trust_world import chain_of, trcs, verified_line
from tests.upstream_dump import small

pytestmark = pytest.mark.django_db

CORE, AP, USER = "17-ffaa:0:1101", "17-ffaa:0:1107", "17-ffaa:1:1"
NOW = timezone.now()
MASTER = b"2GLC42sKQveCfGfryNRN9w=="  # of every AS in `small`


def pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def trc_pem(signed: bytes) -> str:
    """As `scion-pki trc combine --format pem` writes it."""
    text = base64.encodebytes(signed).decode()
    return f"-----BEGIN TRC-----\n{text}-----END TRC-----\n"


class Upstream:
    """ISD 17 of `small` with its keys: the core AS is row 1, the attachment point row 3, user ASes rows 6 and 7."""

    def __init__(self) -> None:
        self.dump = small()
        self.voters = [self._self_signed(Kind.SENSITIVE), self._self_signed(Kind.REGULAR)]
        self.root = self._self_signed(Kind.ROOT)
        self.ca = self._issued(Kind.CA, CORE, self.root)
        certificates = tuple(one.certificate for one in (*self.voters, self.root))
        self.policy = Policy(1, ("ffaa:0:1101",), ("ffaa:0:1101",), certificates, "SCIONLab TRC for ISD 17")
        self.trcs = [base_trc(17, self.policy, Validity.starting(NOW, TRC_LIFETIME), self.voters)]
        self.add_trc(trc_pem(self.trcs[0]))
        for credential in (*self.voters, self.root, self.ca):
            self.add(1, credential)
        for as_pk, isd_as in ((1, CORE), (3, AP), (6, USER)):
            self.add(as_pk, self._issued(Kind.AS, isd_as, self.ca))

    @staticmethod
    def _self_signed(kind: Kind) -> Credential:
        return self_signed(kind, CORE, Validity.starting(NOW, LIFETIME[kind]), new_key())

    @staticmethod
    def _issued(kind: Kind, isd_as: str, issuer: Credential) -> Credential:
        key = new_key()
        return Credential(issue(kind, isd_as, Validity.starting(NOW, LIFETIME[kind]), key.public_key(), issuer), key)

    def renew_chain(self) -> None:
        """Of the user AS."""
        self.add(6, self._issued(Kind.AS, USER, self.ca), version=2)

    def add(self, as_pk: int, credential: Credential, *, version: int = 1) -> int:
        usage = kind_of(credential.certificate).value
        as_id = self.dump["as"][as_pk]["as_id_int"]
        text = key_to_pem(credential.key).decode()
        key = self.dump.add("key", AS=as_pk, _as_id_int=as_id, usage=usage, version=version, key=text)
        self.dump.add("certificate", key=key, ca_cert=None, version=1, certificate=pem(credential.certificate))
        return key

    def add_trc(self, text: str, base: int = 1, serial: int = 1) -> int:
        return self.dump.add("trc", isd=1, base_version=base, serial_version=serial, trc=text)

    def update(self) -> None:
        validity = Validity.starting(NOW, TRC_LIFETIME)
        self.trcs.append(next_trc(read(self.trcs[-1]), self.policy, validity, TRC_GRACE, [*self.voters, self.root]))

    def key(self, usage: Kind, as_pk: int = 1) -> int:
        return next(pk for pk, one in self.dump["key"].items() if (one["usage"], one["AS"]) == (usage.value, as_pk))


@pytest.fixture
def there() -> Upstream:
    return Upstream()


def as_of(pk: int) -> AS:
    return AS.objects.get(pk=host_of(pk).AS_id)


def rows() -> list[Any]:
    return [list(model._default_manager.order_by("pk").values()) for model in (TRC, Certificate, ASKeys)]


# --- what comes in ----------------------------------------------------------------------------------------------------


def test_keys_come_in_and_hosts_would_have_the_very_files_that_they_have(there: Upstream) -> None:
    report = run(there.dump)
    assert report.problems == []
    assert (counted(report)["trc"], counted(report)["key"]) == ((1, 0, 0), (7, 0, 0))
    assert trcs() == ["ISD17-B1-S1"]
    files = files_for(host_of(6))
    assert files["etc/scion/certs/ISD17-B1-S1.trc"] == there.trcs[0]
    assert files["etc/scion/keys/master0.key"] == files["etc/scion/keys/master1.key"] == MASTER
    key = there.dump["key"][there.key(Kind.AS, 6)]
    assert files["etc/scion/crypto/as/cp-as.key"].decode() == key["key"]
    assert chain_of(as_of(6))[1] == there.ca.certificate
    own = files_for(host_of(1))
    assert own["etc/scion/crypto/ca/cp-ca.key"] == key_to_pem(there.ca.key)
    assert own["etc/scion/crypto/voting/sensitive-voting.key"] == key_to_pem(there.voters[0].key)
    assert not [row for row in rows() if "PRIVATE" in repr(row)], "encrypted"
    assert BandwidthChange.objects.filter(kind__in=["trc", "certificate"]).count() == 1 + 7


def test_the_same_file_again_changes_nothing(there: Upstream) -> None:
    there.update()
    there.add_trc(base64.b64encode(there.trcs[1]).decode(), serial=2)
    run(there.dump)
    assert trcs() == ["ISD17-B1-S1", "ISD17-B1-S2"]
    verified_line()
    before, counters = rows(), Counters()
    report = run(there.dump)
    assert (report.made, report.changes, rows(), risen(counters)) == (0, 0, before, {})


def test_a_newer_file_replaces_what_was_imported_and_raises_nothing(there: Upstream) -> None:
    run(there.dump)
    old = chain_of(as_of(6))[0]
    there.renew_chain()
    there.update()
    there.add_trc(trc_pem(there.trcs[1]), serial=2)
    counters = Counters()
    report = run(there.dump)
    assert (counted(report)["trc"], counted(report)["key"]) == ((1, 0, 1), (0, 1, 6))
    assert chain_of(as_of(6))[0] != old
    assert risen(counters) == {}


def test_a_line_that_begins_anew_comes_in(there: Upstream) -> None:
    """Upstream makes a base TRC where it can make no update."""
    validity = Validity.starting(NOW, TRC_LIFETIME)
    there.add_trc(trc_pem(base_trc(17, there.policy, validity, there.voters, base=2)), base=2, serial=2)
    assert run(there.dump).problems == []
    assert trcs() == ["ISD17-B1-S1", "ISD17-B2-S2"]


# --- unused until a take-over -----------------------------------------------------------------------------------------


def test_nothing_of_another_service_s_isd_is_renewed_or_announced(there: Upstream) -> None:
    run(there.dump)
    before = rows()
    later = NOW + timedelta(days=3000)
    assert keys_renew(now=later) == 0
    assert rows() == before
    assert endings(later) == []


def test_after_a_take_over_the_next_trc_is_an_update_of_theirs(there: Upstream) -> None:
    run(there.dump)
    before = chain_of(as_of(6))
    Host.objects.update(limits_only=False)
    keys_renew(now=NOW)
    assert trcs() == ["ISD17-B1-S1"], "nothing is due"
    assert chain_of(as_of(6)) == before
    assert chain_of(as_of(7))[1] == there.ca.certificate, "what was missing"
    keys_renew(now=NOW + timedelta(days=300))
    assert trcs() == ["ISD17-B1-S1", "ISD17-B1-S2"]
    verified_line()


def test_what_is_coordinated_here_keeps_its_keys(there: Upstream) -> None:
    run(there.dump)
    Host.objects.filter(AS=as_of(6)).update(limits_only=False)
    before = rows()
    there.renew_chain()
    there.dump["as"][6]["master_as_key"] = base64.b64encode(bytes(16)).decode()
    run(there.dump)
    assert rows() == before


# --- what is refused --------------------------------------------------------------------------------------------------


def another_key(there: Upstream) -> tuple[str, int, str]:
    pk = there.key(Kind.AS, 6)
    there.dump["key"][pk]["key"] = key_to_pem(new_key()).decode()
    return "key", pk, f"Its certificate {pk} is of another key. Renew the keys of the AS there."


def no_key(there: Upstream) -> tuple[str, int, str]:
    pk = there.key(Kind.CA)
    there.dump["key"][pk]["key"] = "a private key"
    return "key", pk, "This is not an unencrypted private key in PEM"


def no_certificate(there: Upstream) -> tuple[str, int, str]:
    pk = there.key(Kind.AS, 3)
    there.dump["certificate"][pk]["certificate"] = "a certificate"
    return "key", pk, f"Its certificate {pk} cannot be read"


def of_another_as(there: Upstream) -> tuple[str, int, str]:
    pk = there.key(Kind.AS, 6)
    there.dump["key"][pk] |= {"AS": 7, "_as_id_int": there.dump["as"][7]["as_id_int"]}
    return "key", pk, f"Its certificate {pk} is a cp-as certificate of 17-ffaa:1:1. Correct it there."


def of_another_ca(there: Upstream) -> tuple[str, int, str]:
    other = Upstream()
    pk = there.add(7, other._issued(Kind.AS, "17-ffaa:1:2", other.ca))
    return "key", pk, f"issued its certificate {pk}. Renew the keys of the AS there."


def forged_trc(there: Upstream) -> tuple[str, int, str]:
    there.dump["trc"][1]["trc"] = trc_pem(there.trcs[0].replace(b"SCIONLab TRC", b"SCIONLab ABC"))
    return "trc", 1, "ISD17-B1-S1 lacks a valid signature of"


def trc_of_another_line(there: Upstream) -> tuple[str, int, str]:
    other = Upstream()
    other.update()
    pk = there.add_trc(trc_pem(other.trcs[1]), serial=2)
    return "trc", pk, "changes what those who voted may not decide"


def trc_without_its_predecessor(there: Upstream) -> tuple[str, int, str]:
    there.update()
    there.update()
    pk = there.add_trc(trc_pem(there.trcs[2]), serial=3)
    return "trc", pk, "The TRC before ISD17-B1-S3 is neither in the file nor here, so it cannot be verified."


def trc_under_another_number(there: Upstream) -> tuple[str, int, str]:
    there.dump["trc"][1]["isd"] = 3
    return "trc", 1, "It is ISD17-B1-S1, not ISD19-B1-S1. Correct the row there."


def no_trc(there: Upstream) -> tuple[str, int, str]:
    there.dump["trc"][1]["trc"] = "a TRC"
    return "trc", 1, "This is not a TRC in base64. Correct it there."


def short_master_key(there: Upstream) -> tuple[str, int, str]:
    there.dump["as"][6]["master_as_key"] = "AAAA"
    return "as", 6, "Its master key has 3 bytes, not 16. Correct it there."


@pytest.mark.parametrize(
    "wrong",
    [
        another_key, no_key, no_certificate, of_another_as, of_another_ca, forged_trc, trc_of_another_line,
        trc_without_its_predecessor, trc_under_another_number, no_trc, short_master_key,
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_and_nothing_is_imported(
    wrong: Callable[[Upstream], tuple[str, int, str]], there: Upstream
) -> None:
    kind, pk, said = wrong(there)
    report = run(there.dump)
    found = {(one.kind, one.pk): one.message for one in report.problems}
    assert said in found[kind, pk]
    assert "PRIVATE" not in "\n".join(report.lines())
    assert (AS.objects.count(), rows()) == (0, [[], [], []])


def test_the_rest_comes_in_without_what_is_wrong(there: Upstream) -> None:
    another_key(there)
    run(there.dump, skip_invalid=True)
    keys = ASKeys.objects.get(AS=as_of(6))
    assert (keys.ca, bytes(keys.content)) == (None, b"")
    assert chain_of(as_of(3))[1] == there.ca.certificate


def test_another_trc_of_the_same_id_is_refused(there: Upstream) -> None:
    """Both services made the second one: SCION's programs end where they find both."""
    run(there.dump)
    Host.objects.update(limits_only=False)
    keys_renew(now=NOW + timedelta(days=300))
    there.update()
    pk = there.add_trc(trc_pem(there.trcs[1]), serial=2)
    (problem,) = run(there.dump).problems
    assert (problem.kind, problem.pk) == ("trc", pk)
    assert problem.message.startswith("Another ISD17-B1-S2 is here")
