"""What `scionlab.scion_config.pki` makes, judged by the real `scion-pki`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from bandwidth_config import RuleError
from lab.scion.programs import program
from scionlab.scion_config.pki.certificates import Credential, Kind
from scionlab.scion_config.pki.files import chain_files
from scionlab.scion_config.pki.updates import verify
from tests.pki_testbed import SECOND_CORE, IsdKeys, credential, isd_keys

USER = "17-ffaa:1:b6"
pytestmark = pytest.mark.usefixtures("scion_programs")


def scion_pki(*words: str | Path) -> tuple[bool, str]:
    """Whether it agrees, and what it says."""
    argv = [str(program("scion-pki")), *map(str, words)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    return done.returncode == 0, done.stdout + done.stderr


def verified(folder: Path, trcs: list[bytes]) -> tuple[bool, str]:
    """By `trc verify`: each is an update of the one before. Our own judgement is the same."""
    paths = []
    for number, content in enumerate(trcs, start=1):
        paths.append(folder / f"{number}.trc")
        paths[-1].write_bytes(content)
    found = scion_pki("trc", "verify", "--anchor", paths[0], *paths)
    assert verified_by_us(trcs) is found[0]
    return found


def verified_by_us(trcs: list[bytes]) -> bool:
    before = None
    try:
        for one in trcs:
            before = verify(one, before)
    except RuleError:
        return False
    return True


def chain_accepted(folder: Path, own: Credential, ca: x509.Certificate, trc: bytes) -> tuple[bool, str]:
    (folder / "chain.pem").write_bytes(next(iter(chain_files(own, ca).values())))
    (folder / "anchor.trc").write_bytes(trc)
    return scion_pki("certificate", "verify", "--trc", folder / "anchor.trc", folder / "chain.pem")


@pytest.mark.parametrize("kind", list(Kind))
def test_each_certificate_is_valid_as_its_kind(kind: Kind, tmp_path: Path) -> None:
    keys = isd_keys()
    made = {
        Kind.SENSITIVE: keys.sensitive[0],
        Kind.REGULAR: keys.regular[0],
        Kind.ROOT: keys.roots[0],
        Kind.CA: keys.ca,
    }
    one = made.get(kind) or keys.chain(USER)
    path = tmp_path / "one.pem"
    path.write_bytes(one.certificate.public_bytes(Encoding.PEM))
    agrees, said = scion_pki("certificate", "validate", "--type", kind.value, path)
    assert agrees, said


def test_a_chain_is_verified_against_the_trc(tmp_path: Path) -> None:
    keys = isd_keys()
    keys.make_base()
    agrees, said = chain_accepted(tmp_path, keys.chain(USER), keys.ca.certificate, keys.trcs[0])
    assert agrees, said


def test_chains_of_an_old_and_a_renewed_ca_are_both_verified(tmp_path: Path) -> None:
    keys = isd_keys()
    keys.make_base()
    old_ca, old = keys.ca, keys.chain(USER)
    keys.ca = keys.new_ca(keys.roots[0])
    for own, ca in ((old, old_ca), (keys.chain(USER), keys.ca)):
        agrees, said = chain_accepted(tmp_path, own, ca.certificate, keys.trcs[0])
        assert agrees, said


# --- updates --------------------------------------------------------------------------------------------------


def renewal(keys: IsdKeys) -> None:
    keys.make_next(*keys.regular)


def root(keys: IsdKeys) -> None:
    old = keys.roots[0]
    keys.roots[0] = credential(Kind.ROOT)
    keys.make_next(*keys.regular, old)


def regular_voter(keys: IsdKeys) -> None:
    old = keys.regular[1]
    keys.regular[1] = credential(Kind.REGULAR, SECOND_CORE)
    keys.make_next(*keys.regular, old)


def core_as(keys: IsdKeys) -> None:
    """With its voters and its root, as a new core AS comes."""
    voting = list(keys.sensitive)
    keys.sensitive.append(credential(Kind.SENSITIVE, "17-ffaa:0:1109"))
    keys.regular.append(credential(Kind.REGULAR, "17-ffaa:0:1109"))
    keys.roots.append(credential(Kind.ROOT, "17-ffaa:0:1109"))
    ases = ("ffaa:0:1107", "ffaa:0:1109")
    keys.make_next(*voting, *keys.sensitive, *keys.regular, core_ases=ases, authoritative_ases=ases)


def quorum(keys: IsdKeys) -> None:
    keys.make_next(*keys.sensitive, quorum=2)


def lost_keys(keys: IsdKeys) -> None:
    """Of the root and a regular voter: nobody has them any more."""
    keys.roots[0] = credential(Kind.ROOT)
    keys.regular[0] = credential(Kind.REGULAR)
    keys.make_next(*keys.sensitive, keys.regular[0])


@pytest.mark.parametrize(
    ("update", "kind"),
    [
        (renewal, "regular"), (root, "regular"), (regular_voter, "regular"),
        (core_as, "sensitive"), (quorum, "sensitive"), (lost_keys, "sensitive"),
    ],
)  # fmt: skip
def test_an_update_is_verified(update: Callable[[IsdKeys], None], kind: str, tmp_path: Path) -> None:
    keys = isd_keys(voters=2)
    before = keys.make_base()
    update(keys)
    assert keys.newest.votes == tuple(before.policy.of_kind(Kind(f"{kind}-voting")))
    agrees, said = verified(tmp_path, keys.trcs)
    assert agrees, said


def test_a_line_of_regular_and_sensitive_updates_is_verified(tmp_path: Path) -> None:
    keys = isd_keys(voters=2)
    keys.make_base()
    for update in (renewal, root, core_as, regular_voter, lost_keys, renewal):
        update(keys)
    agrees, said = verified(tmp_path, keys.trcs)
    assert agrees, said
    assert str(keys.newest.id) == "ISD17-B1-S7"


def test_a_chain_of_a_new_root_is_verified_by_the_update_that_brings_it(tmp_path: Path) -> None:
    keys = isd_keys(voters=2)
    keys.make_base()
    root(keys)
    keys.ca = keys.new_ca(keys.roots[0])
    agrees, said = chain_accepted(tmp_path, keys.chain(USER), keys.ca.certificate, keys.trcs[1])
    assert agrees, said


# --- it can say no --------------------------------------------------------------------------------------------


def test_scion_pki_refuses_a_changed_payload(tmp_path: Path) -> None:
    keys = isd_keys()
    keys.make_base()
    agrees, said = verified(tmp_path, [keys.trcs[0].replace(b"ISD of the tests", b"ISD of the thief")])
    assert not agrees
    assert "message digest does not match" in said
