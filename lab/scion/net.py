"""A small real SCION network in namespaces: core AS, attachment point, one user AS.

    core 17-ffaa:0:1101 ── 198.51.100.0/24 ── ap 17-ffaa:0:1107 ── 192.0.2.0/24 ── user 17-ffaa:1:1
                         1               11                   21               1       interface ids

Each host has the tarball that the service makes (`config_tar`), with keys and TRCs of its PKI; the core AS's has the
names of upstream's packages, the others' those of SCIONLab's.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bandwidth_config import generate_link_info
from config_tar import KeyRing, Signer, host_members, snapshot
from contract.scion_files import FOLDER, MTU_BYTES, ConfigLinkEnd
from lab.scion.host import ScionHost
from measuring.iproute import LabError
from measuring.netns import Lab, Namespace
from scionlab.scion_config.pki.certificates import Credential, Kind, Validity, issue, self_signed
from scionlab.scion_config.pki.files import ca_files, chain_files, master_key_files, trc_files
from scionlab.scion_config.pki.keys import new_key, new_master_key
from scionlab.scion_config.pki.lifetimes import LIFETIME, TRC_GRACE, TRC_LIFETIME
from scionlab.scion_config.pki.trc import Policy, read
from scionlab.scion_config.pki.updates import base_trc, next_trc

CORE, AP, USER = "17-ffaa:0:1101", "17-ffaa:0:1107", "17-ffaa:1:1"
USER_LINK = 21  # the attachment point's interface id of the limited link
AP_END, USER_END = ("192.0.2.1", 50_001), ("192.0.2.11", 50_002)
_CORE_END, _UPLINK_END = ("198.51.100.1", 50_000), ("198.51.100.2", 50_000)
START_S = 60.0


@dataclass(frozen=True)
class AutonomousSystem:
    isd_as: str
    is_core: bool = False


def _end(
    interface_id: int,
    remote_isd_as: str,
    link_to: str,
    local: tuple[str, int],
    remote: tuple[str, int],
    *,
    is_limited: bool = False,
) -> ConfigLinkEnd:
    """One end of a link, as `config_tar` and `bandwidth_config` take it."""
    return ConfigLinkEnd(
        interface_id=interface_id,
        remote_isd_as=remote_isd_as,
        link_to=link_to,
        local_ip=local[0],
        local_port=local[1],
        public_port=local[1],
        remote_ip=remote[0],
        remote_port=remote[1],
        is_limited=is_limited,
        is_vpn=False,
        bandwidth_kbit=1_000_000,
        maximum_kbit=1_000_000,
        mtu=MTU_BYTES,
        border_router=1,
    )


@dataclass(frozen=True)
class LabHost:
    """The only host of an AS, as `config_tar` takes it."""

    uid: str
    AS: AutonomousSystem
    internal_ip: str
    link_ends: tuple[ConfigLinkEnd, ...]
    attachment_point: object | None = None
    scion_packages: str = "scionlab"
    secret: str = "lab"  # noqa: S105  nobody asks for it
    config_version: int = 1
    limits_version: int = 1


class Keys:
    """Of ISD 17: one voter of each kind, root and CA, all of the core AS. `trcs` are all TRCs, as bytes."""

    def __init__(self, now: datetime) -> None:
        made = {
            kind: self_signed(kind, CORE, Validity.starting(now, LIFETIME[kind]), new_key())
            for kind in (Kind.SENSITIVE, Kind.REGULAR, Kind.ROOT)
        }
        self.sensitive, self.regular, self.root = made.values()
        self.ca = self.issued(Kind.CA, CORE, self.root, now)
        core = (CORE.partition("-")[2],)
        certificates = tuple(one.certificate for one in made.values())
        self.policy = Policy(1, core, core, certificates, "SCIONLab in namespaces")
        voters = [self.sensitive, self.regular]
        self.trcs = [base_trc(17, self.policy, Validity.starting(now, TRC_LIFETIME), voters)]

    def update_trc(self, now: datetime, *, renew_root: bool = False) -> bytes:
        """Make the next TRC, with another root and another CA below it where that is asked for."""
        held = [self.sensitive, self.regular, self.root]
        if renew_root:
            old = self.root
            self.root = self_signed(Kind.ROOT, CORE, Validity.starting(now, LIFETIME[Kind.ROOT]), new_key())
            self.ca = self.issued(Kind.CA, CORE, self.root, now)
            others = tuple(one for one in self.policy.certificates if one != old.certificate)
            self.policy = replace(self.policy, certificates=(*others, self.root.certificate))
        validity = Validity.starting(now, TRC_LIFETIME)
        self.trcs.append(next_trc(read(self.trcs[-1]), self.policy, validity, TRC_GRACE, held))
        return self.trcs[-1]

    def issued(self, kind: Kind, isd_as: str, issuer: Credential, now: datetime) -> Credential:
        """With a key of its own."""
        key = new_key()
        return Credential(issue(kind, isd_as, Validity.starting(now, LIFETIME[kind]), key.public_key(), issuer), key)

    def chain_files(self, isd_as: str, now: datetime) -> dict[str, bytes]:
        """A new chain, with a new key."""
        return chain_files(self.issued(Kind.AS, isd_as, self.ca, now), self.ca.certificate)

    def host_files(self, isd_as: str, now: datetime) -> dict[str, bytes]:
        """All that the only host of an AS needs below etc/scion; the core AS renews chains of others."""
        master_keys = master_key_files(new_master_key(), new_master_key())
        ca = ca_files(self.ca) if isd_as == CORE else {}
        return trc_files(self.trcs) | self.chain_files(isd_as, now) | master_keys | ca


def _key_ring() -> KeyRing:
    private, until = Ed25519PrivateKey.generate(), datetime.now(UTC) + timedelta(days=1)
    return KeyRing((Signer(private.public_key().public_bytes_raw(), until, private.sign),))


class ScionNet:
    """Context manager: the three ASes, started, with paths from the user AS to the core and back. Raises
    `LabError`."""

    def __init__(self, prefix: str, folder: Path) -> None:
        self._prefix = prefix
        self._folder = folder

    def __enter__(self) -> ScionNet:
        with ExitStack() as closing:
            self.lab = closing.enter_context(Lab(self._prefix))
            self._build()
            for host in self.hosts:
                host.start()
            for here, to in ((self.user, CORE), (self.core, USER)):
                if here.time_until_path(to, START_S) is None:
                    tail = self.user.said("control")[-2000:]
                    raise LabError(f"{here.isd_as} has no path to {to} after {START_S:g} s. {USER} says: {tail}")
            self._closing = closing.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._closing.close()

    def _build(self) -> None:
        now = datetime.now(UTC)
        self.keys = Keys(now)
        core, ap, user = (self.lab.namespace(name) for name in ("core", "ap", "user"))
        self.lab.veth(core.nic("eth0", f"{_CORE_END[0]}/24"), ap.nic("eth0", f"{_UPLINK_END[0]}/24"))
        self.lab.veth(ap.nic("eth1", f"{AP_END[0]}/24"), user.nic("eth0", f"{USER_END[0]}/24"))
        self._ap_ends = [
            _end(11, CORE, "PARENT", _UPLINK_END, _CORE_END),
            _end(USER_LINK, USER, "CHILD", AP_END, USER_END, is_limited=True),
        ]
        to_ap, to_user = _end(1, AP, "CHILD", _CORE_END, _UPLINK_END), _end(1, AP, "PARENT", USER_END, AP_END)
        core_as, ap_as, user_as = AutonomousSystem(CORE, is_core=True), AutonomousSystem(AP), AutonomousSystem(USER)
        core_host = LabHost("core", core_as, _CORE_END[0], (to_ap,), scion_packages="upstream")
        ap_host = LabHost("ap", ap_as, AP_END[0], tuple(self._ap_ends), attachment_point=object())
        self._ap_snapshot = snapshot(ap_host)
        self.user_host = LabHost("user", user_as, USER_END[0], (to_user,))
        self._trust_files = {
            host.uid: self.keys.host_files(host.AS.isd_as, now) for host in (core_host, ap_host, self.user_host)
        }
        self.core, self.ap, self.user = (
            self._host(namespace, host)
            for namespace, host in ((core, core_host), (ap, ap_host), (user, self.user_host))
        )
        self.hosts = (self.core, self.ap, self.user)

    def _host(self, namespace: Namespace, host: LabHost) -> ScionHost:
        return ScionHost(namespace, self._folder / host.uid, self.members(host))

    def members(self, host: LabHost) -> dict[str, bytes]:
        """The tarball of one of the three hosts, with its keys, whatever else of it was changed."""
        return host_members(
            host,
            generation=1,
            site_url="http://lab.example.org",
            keys=_key_ring(),
            added_files={f"{FOLDER}/{name}": content for name, content in self._trust_files[host.uid].items()},
        )

    def link_info(self, kbit: int) -> dict[str, dict[str, Any]]:
        """link_info.json of the attachment point with this limit of the user's link."""
        ends = [replace(one, bandwidth_kbit=kbit) if one.is_limited else one for one in self._ap_ends]
        return generate_link_info(replace(self._ap_snapshot, link_ends=tuple(ends)))
