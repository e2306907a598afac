"""Keys of a small testbed: ISD 17 with one voter of each kind, a root and a CA at its core AS."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from cryptography import x509

from scionlab.scion_config.pki.certificates import Credential, Kind, Validity, issue, self_signed
from scionlab.scion_config.pki.keys import new_key
from scionlab.scion_config.pki.lifetimes import LIFETIME, TRC_GRACE, TRC_LIFETIME
from scionlab.scion_config.pki.trc import Policy, Trc, read
from scionlab.scion_config.pki.updates import base_trc, next_trc

CORE = "17-ffaa:0:1107"
SECOND_CORE = "17-ffaa:0:1108"
NOW = datetime.now(UTC).replace(microsecond=0)  # not a fixed one: running SCION programs have the machine's clock


def credential(kind: Kind, isd_as: str = CORE, now: datetime = NOW) -> Credential:
    """Of a voter or a root."""
    return self_signed(kind, isd_as, Validity.starting(now, LIFETIME[kind]), new_key())


@dataclass
class IsdKeys:
    """An ISD with its keys; `trcs` are all that were made, as bytes."""

    sensitive: list[Credential]
    regular: list[Credential]
    roots: list[Credential]
    ca: Credential = field(init=False)
    policy: Policy = field(init=False)
    trcs: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.policy = Policy(1, ("ffaa:0:1107",), ("ffaa:0:1107",), self.certificates(), "ISD of the tests")
        self.ca = self.new_ca(self.roots[0])

    def certificates(self) -> tuple[x509.Certificate, ...]:
        return tuple(one.certificate for one in (*self.sensitive, *self.regular, *self.roots))

    def new_ca(self, root: Credential, now: datetime = NOW) -> Credential:
        key = new_key()
        return Credential(issue(Kind.CA, CORE, Validity.starting(now, LIFETIME[Kind.CA]), key.public_key(), root), key)

    def chain(self, isd_as: str, now: datetime = NOW) -> Credential:
        """The AS certificate, with its key; issued by the CA."""
        key, validity = new_key(), Validity.starting(now, LIFETIME[Kind.AS])
        return Credential(issue(Kind.AS, isd_as, validity, key.public_key(), self.ca), key)

    def make_base(self) -> Trc:
        self.trcs = [base_trc(17, self.policy, Validity.starting(NOW, TRC_LIFETIME), [*self.sensitive, *self.regular])]
        return self.newest

    def make_next(self, *keys: Credential, **changes: object) -> Trc:
        """An update to what the ISD has now, with `changes` of its policy, signed with these keys."""
        self.policy = replace(self.policy, certificates=self.certificates(), **changes)  # type: ignore[arg-type]  # of Policy
        validity = Validity.starting(NOW, TRC_LIFETIME)
        self.trcs.append(next_trc(self.newest, self.policy, validity, TRC_GRACE, keys))
        return self.newest

    @property
    def newest(self) -> Trc:
        return read(self.trcs[-1])


def isd_keys(voters: int = 1) -> IsdKeys:
    """With so many voters of each kind, of ASes from ffaa:0:1107 on."""
    ases = [f"17-ffaa:0:{0x1107 + number:x}" for number in range(voters)]
    return IsdKeys(
        [credential(Kind.SENSITIVE, one) for one in ases],
        [credential(Kind.REGULAR, one) for one in ases],
        [credential(Kind.ROOT)],
    )
