"""SCION's own files of one host: topology.json, settings of its programs, and their units.

Source: doc/manuals of SCION v0.15, and the systemd units of the packages. tests/scion starts the real programs with
these files. `scionlab.scion_config.pki` makes keys, certificates and TRCs; `config_tar` packs everything.
"""

from __future__ import annotations

import copy
import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from bandwidth_config import LinkEnd, RuleError, standing_limits

FOLDER = "etc/scion"
TOPOLOGY_PATH = f"{FOLDER}/topology.json"
PATH_METADATA_PATH = f"{FOLDER}/staticInfoConfig.json"
CONFIG_DIR = f"/{FOLDER}"
STATE_DIR = "/var/lib/scion"  # writable by SCION's user; created by the packages

# A SCION packet travels in UDP over IP; an Ethernet line carries 1500 bytes unfragmented.
MTU_BYTES = 1472  # 1500 - 20 - 8
MTU_OVER_IPV6_BYTES = 1452  # 1500 - 40 - 8

DISPATCHED_PORTS = "30000-32767"
BORDER_ROUTER_BASE_PORT = 30_000  # internal port of br-N: 30000 + N
CONTROL_SERVICE_PORT = 30_254
CONTROL_METRICS_PORT = 30_441  # at 127.0.0.1, like the routers' below; no router number maps to it
METRICS_BASE_PORT = 30_441  # br-N: 30441 + N
CORE_ATTRIBUTES = ["authoritative", "core", "issuing", "voting"]  # "core" requires the others


@dataclass(frozen=True)
class Packages:
    """Names of units in Debian packages of SCION, and the file names of their settings."""

    router_unit: str
    control_unit: str
    daemon_file: str
    dispatcher_file: str


PACKAGES: Final = {
    "scionlab": Packages("scion-border-router", "scion-control-service", "sd.toml", "disp.toml"),
    "upstream": Packages("scion-router", "scion-control", "daemon.toml", "dispatcher.toml"),
}


@dataclass(frozen=True, kw_only=True)
class ConfigLinkEnd(LinkEnd):
    """A link end with the additional attributes for topology.json. `link_to`: PARENT, CHILD, CORE or PEER, as seen from
    this host's AS. `public_port`: UDP port as seen by the other end; differs from `local_port` behind a NAT.
    `border_router`: number of the router on which the link ends."""

    mtu: int
    link_to: str
    public_port: int
    border_router: int


class ConfigAS(Protocol):
    @property
    def isd_as(self) -> str: ...
    @property
    def is_core(self) -> bool: ...


@dataclass(frozen=True)
class HostSnapshot:
    """A host of an AS with every attribute read once (`config_tar.snapshot`), so that all files of one tarball are
    consistent. `scion_packages` is one of `PACKAGES`."""

    uid: str
    secret: str
    config_version: int
    limits_version: int
    internal_ip: str
    scion_packages: str
    AS: ConfigAS
    link_ends: tuple[ConfigLinkEnd, ...]
    is_attachment_point: bool
    total_kbit: int | None = None
    observe_only: bool = False
    publishes_limits: bool = False
    metadata_entries: Mapping[str, Any] = field(default_factory=dict)
    limits_only: bool = False


# --- topology.json ------------------------------------------------------------------------------------------


def link_mtu_bytes(underlay_ip: str) -> int:
    """The largest SCION packet that a link between such addresses carries in one IP packet."""
    return MTU_BYTES if ipaddress.ip_address(underlay_ip).version == 4 else MTU_OVER_IPV6_BYTES


def as_mtu_bytes(hosts: Iterable[HostSnapshot]) -> int:
    """The `mtu` of an AS is that of its inner network, between its routers and hosts (doc/manuals/common.rst). SCION
    itself takes the minimum of the ASes and links of a path."""
    return min(link_mtu_bytes(host.internal_ip) for host in hosts)


def build_topology(as_: ConfigAS, hosts: Sequence[HostSnapshot], *, mtu_bytes: int = MTU_BYTES) -> dict[str, Any]:
    """topology.json of an AS: the routers of all its hosts; the control service runs on the first. Routers without an
    active link are left out. Raises `RuleError` (`border_router_twice`)."""
    routers: dict[str, Any] = {}
    for host in hosts:
        own = _border_routers(host)
        twice = sorted(routers.keys() & own.keys())
        if twice:
            raise RuleError(
                "border_router_twice",
                f"{as_.isd_as} has {twice[0]} on two hosts. Give the routers of one AS different numbers.",
            )
        routers |= own
    control = {"addr": join_address(hosts[0].internal_ip, CONTROL_SERVICE_PORT)}
    return {
        "isd_as": as_.isd_as,
        "mtu": mtu_bytes,
        "attributes": CORE_ATTRIBUTES if as_.is_core else [],
        "dispatched_ports": DISPATCHED_PORTS,
        "border_routers": routers,
        "control_service": {"cs-1": control},
        "discovery_service": {"ds-1": control},  # the control service also provides it; SCION requires both entries
    }


def _border_routers(host: HostSnapshot) -> dict[str, Any]:
    routers: dict[str, Any] = {}
    for end in host.link_ends:
        number = end.border_router
        internal = join_address(host.internal_ip, BORDER_ROUTER_BASE_PORT + number)
        router = routers.setdefault(f"br-{number}", {"internal_addr": internal, "interfaces": {}})
        router["interfaces"][str(end.interface_id)] = {
            "isd_as": end.remote_isd_as,
            "link_to": end.link_to,
            "mtu": end.mtu,
            "underlay": {
                "local": join_address(end.local_ip, end.local_port),
                "remote": join_address(end.remote_ip, end.remote_port),
            },
        }
    return routers


def join_address(ip: str, port: int) -> str:
    """`192.0.2.7:50000`, `[2001:db8::7]:50000`."""
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


# --- staticInfoConfig.json ----------------------------------------------------------------------------------


def published_limits(ends: Iterable[ConfigLinkEnd], *, observe_only: bool) -> dict[int, int]:
    """kbit/s by interface id, for the Links of user ASes: the lower direction of the regular limits. 0: none, for a
    Link that is blocked or only observed."""
    return {
        end.interface_id: 0 if observe_only or end.observe_only else standing_limits(end).lowest_kbit
        for end in ends
        if end.is_limited
    }


def build_path_metadata(entries: Mapping[str, Any], limits: Mapping[int, int]) -> dict[str, Any]:
    """staticInfoConfig.json: the operator's `entries`, with `Inter` of these interfaces replaced by their limits. Also
    for a limit of 0, which an operator's number would contradict: SCION has no number for "nothing passes"."""
    document = copy.deepcopy(dict(entries))
    if not limits:
        return document
    bandwidth = document.setdefault("Bandwidth", {})
    for interface_id, kbit in limits.items():
        entry = bandwidth.pop(str(interface_id), {})
        entry.pop("Inter", None)
        if kbit:
            entry["Inter"] = kbit
        if entry:
            bandwidth[str(interface_id)] = entry
    return document


# --- the settings of the programs ---------------------------------------------------------------------------


def settings_files(host: HostSnapshot, *, runs_control_service: bool, is_ca: bool = False) -> dict[str, str]:
    """Path -> text for the programs that run on the host. `is_ca`: its control service renews the chains of the ISD's
    ASes itself, with the key in crypto/ca."""
    packages = PACKAGES[host.scion_packages]
    files = {f"br-{number}.toml": router_toml(number) for number in _router_numbers(host)}
    if runs_control_service:
        files["cs-1.toml"] = control_toml(is_ca=is_ca)
    files[packages.daemon_file] = daemon_toml()
    control_ip = host.internal_ip if runs_control_service else None
    files[packages.dispatcher_file] = dispatcher_toml(host.AS.isd_as, control_ip)
    return {f"{FOLDER}/{name}": text for name, text in files.items()}


def router_toml(number: int) -> str:
    return _general(f"br-{number}") + _metrics(METRICS_BASE_PORT + number)


def control_toml(*, is_ca: bool) -> str:
    text = _general("cs-1") + _metrics(CONTROL_METRICS_PORT)
    text += "".join(_database(name, f"cs-1.{name}.db") for name in ("beacon", "path", "trust"))
    return text + ('[ca]\nmode = "in-process"\n' if is_ca else "")


def daemon_toml() -> str:
    """Without an address: it listens at 127.0.0.1:30255, SCION's default."""
    return _general("sd") + "".join(_database(name, f"sd.{name}.db") for name in ("path", "trust"))


def dispatcher_toml(isd_as: str, control_ip: str | None) -> str:
    """`control_ip`: of the control service on this host, or None. The dispatcher is what answers `scion ping` for a
    host."""
    text = '[dispatcher]\nid = "dispatcher"\n'
    if control_ip is not None:
        control = join_address(control_ip, CONTROL_SERVICE_PORT)
        services = "".join(f'"{isd_as},{service}" = "{control}"\n' for service in ("CS", "DS"))
        text += f"[dispatcher.service_addresses]\n{services}"
    return text + '[log.console]\nlevel = "info"\n'


def _general(name: str) -> str:
    return f'[general]\nid = "{name}"\nconfig_dir = "{CONFIG_DIR}"\n[log.console]\nlevel = "info"\n'


def _metrics(port: int) -> str:
    return f'[metrics]\nprometheus = "127.0.0.1:{port}"\n'


def _database(name: str, file: str) -> str:
    return f'[{name}_db]\nconnection = "{STATE_DIR}/{file}"\n'


# --- units --------------------------------------------------------------------------------------------------


def systemd_units(host: HostSnapshot, *, runs_control_service: bool = True) -> list[str]:
    """The units that run on this host, sorted, including OpenVPN's."""
    packages = PACKAGES[host.scion_packages]
    units = {f"{packages.router_unit}@br-{number}.service" for number in _router_numbers(host)}
    units |= {"scion-daemon.service", "scion-dispatcher.service"}
    if runs_control_service:
        units.add(f"{packages.control_unit}@cs-1.service")
    for end in host.link_ends:
        if end.is_vpn:
            client = f"client-scionlab-{end.remote_isd_as.replace(':', '_')}"
            units.add(f"openvpn@{'server' if end.link_to == 'CHILD' else client}.service")
    return sorted(units)


def _router_numbers(host: HostSnapshot) -> list[int]:
    """Routers with an active link: the others are in no topology, and would not start."""
    return sorted({end.border_router for end in host.link_ends})
