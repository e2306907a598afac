"""The download for the owner of a host: a folder with its files and a README.md, and a Vagrantfile for a virtual
machine. The texts are `templates/delivery/download/`.

`config_tar` makes the files; nothing here uses the database.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import Any

from django.template.loader import render_to_string

from config_tar import MANIFEST_NAME, SUFFIX, ConfigHost, download_name, pack, snapshot
from contract.scion_files import FOLDER, PACKAGES, HostSnapshot, join_address

VAGRANTFILE = "Vagrantfile"
_KINDS = (  # first match counts: pattern of the path, content, readable by
    ("etc/scion/topology.json", "the links and addresses of the AS", "everyone"),
    ("etc/scion/*.toml", "settings of SCION's programs", "everyone"),
    ("etc/scion/certs/*", "TRCs: the trust anchors of SCION", "everyone"),
    ("etc/scion/*.key", "private keys of the AS", "`scion`, the user of SCION"),
    ("etc/scion/crypto/*", "certificates of the AS", "everyone"),
    ("etc/scion/link_info.json", "the bandwidth limits, for `scionlab-bw-agent`", "everyone"),
    ("etc/openvpn/*.conf", "settings and keys of OpenVPN", "root"),
    ("etc/openvpn/*", "addresses of the VPN's clients", "everyone"),
    ("etc/*", "more settings", "everyone"),
)


def build_user_download(host: ConfigHost, members: Mapping[str, bytes], *, in_virtual_machine: bool = False) -> bytes:
    """Return the tarball for a user: one folder with a README.md and the `members` of the host's tarball. Not for
    `scionlab-config --tar`, which needs the host's own tarball."""
    own, manifest = snapshot(host), json.loads(members[MANIFEST_NAME])
    context = _context(own, manifest) | {"in_virtual_machine": in_virtual_machine}
    files = {**members, "README.md": _text("limits_only.txt" if own.limits_only else "readme.txt", context).encode()}
    if in_virtual_machine and not own.limits_only:
        files[VAGRANTFILE] = _vagrantfile(context).encode()
    folder = download_name(host).removesuffix(SUFFIX)
    return pack({f"{folder}/{name}": content for name, content in files.items()})


def install_commands(*, uid: str, secret: str, site_url: str) -> str:
    """Return shell commands that report the installed files and let the stock client fetch if the service allows it."""
    return _text("fetch.sh", {"uid": uid, "secret": secret, "site_url": site_url})


def _text(name: str, context: Mapping[str, Any]) -> str:
    return render_to_string(f"delivery/download/{name}", dict(context))


def _context(host: HostSnapshot, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What the texts say of this host. The commands are ready to be copied."""
    files, units = manifest["files"], manifest["systemd_units"]
    found: dict[str, Any] = {
        "isd_as": host.AS.isd_as,
        "uid": host.uid,
        "secret": host.secret,
        "version": manifest["version"],
        "site_url": manifest["url"],
        "kinds": _kinds(files),
        "missing": [name for name in ("certs/", "crypto/", "keys/") if not _has(files, f"{FOLDER}/{name}")],
        "has_certs": _has(files, f"{FOLDER}/certs/"),
        "has_vpn_files": _has(files, "etc/openvpn/"),
        "has_client": host.scion_packages == "scionlab",  # upstream's packages have no `scionlab-config`
        "is_in_vpn": any(end.is_vpn for end in host.link_ends),
        "link_ends": [
            (end, join_address(end.local_ip, end.local_port), join_address(end.remote_ip, end.remote_port))
            for end in host.link_ends
        ],
        "ports": sorted({(end.public_port, end.local_port) for end in host.link_ends if not end.is_vpn}),
        "router": PACKAGES[host.scion_packages].router_unit,
        # OpenVPN first: a router exits if one of its addresses is missing.
        "vpn_units": [unit for unit in units if unit.startswith("openvpn@")],
        "scion_units": [unit for unit in units if not unit.startswith("openvpn@")],
    }
    return found | {"install": _text("install.sh", found).rstrip(), "start": _text("start.sh", found).rstrip()}


def _has(files: Collection[str], folder: str) -> bool:
    return any(path.startswith(folder) for path in files)


def _kinds(files: Collection[str]) -> list[tuple[str, int, str, str]]:
    """The kinds that there are: pattern, number of files, content, readable by."""
    counts = {pattern: 0 for pattern, _, _ in _KINDS}
    for path in files:
        counts[next(pattern for pattern in counts if fnmatchcase(path, pattern))] += 1
    return [(pattern, counts[pattern], what, who) for pattern, what, who in _KINDS if counts[pattern]]


def _vagrantfile(context: Mapping[str, Any]) -> str:
    """The machine fetches its configuration, or installs the folder if it has no client."""
    commands = _text("fetch.sh", context) if context["has_client"] else f"{context['install']}\n{context['start']}"
    hostname = "scionlab-" + context["isd_as"].replace(":", "-")
    install = textwrap.indent(commands.rstrip(), "    ")
    return _text("vagrantfile.txt", {**context, "hostname": hostname, "install": install})
