"""The download for the owner of a host: a folder with its files and a README.md, and a Vagrantfile for a virtual
machine.

`config_tar` makes the files; nothing here uses the database.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Collection, Mapping
from typing import Any

from config_tar import MANIFEST_NAME, SUFFIX, ConfigHost, HostSnapshot, download_name, pack, snapshot
from contract.scion_files import FOLDER, PACKAGES, join_address

VAGRANTFILE = "Vagrantfile"
_VPN_FOLDER = "etc/openvpn/"


def build_user_download(host: ConfigHost, members: Mapping[str, bytes], *, in_virtual_machine: bool = False) -> bytes:
    """Return the tarball for a user: one folder with a README.md and the `members` of the host's tarball. Not for
    `scionlab-config --tar`, which needs the host's own tarball."""
    own, manifest = snapshot(host), json.loads(members[MANIFEST_NAME])
    files = {**members, "README.md": build_readme(own, manifest, in_virtual_machine=in_virtual_machine)}
    if in_virtual_machine and not own.limits_only:
        files[VAGRANTFILE] = build_vagrantfile(own, manifest)
    folder = download_name(host).removesuffix(SUFFIX)
    return pack({f"{folder}/{name}": content for name, content in files.items()})


_DEDICATED_MACHINE = """\
Use a machine with a current Debian or Ubuntu on which nothing else uses the ports below. Install
{packages}."""
_VIRTUAL_MACHINE = """\
The `Vagrantfile` in this folder creates a virtual machine (VirtualBox, Debian 12), forwards the UDP ports below, and
runs the commands of section 3 in it. Create a folder `packages` beside it with the `.deb` files of
{packages},
and run `vagrant up` in this folder. Keep the folder: the machine uses it. *We have not tested the box or the packages
in it.* Or create a machine yourself, install these packages, and continue with section 2."""
_OPENVPN = "\n\nA link goes over the VPN of its attachment point: install `openvpn` too."
_PACKAGES = {
    "scionlab": "the SCION packages of SCIONLab (border router, control service, daemon, dispatcher, tools) and its "
    "client\n`scionlab-config`",
    "upstream": "the packages of SCION v0.15 from upstream (scionproto): `scion-router`, `scion-control`,\n"
    "`scion-daemon`, `scion-dispatcher`, `scion-tools`",
}
_README = """\
# SCIONLab AS {isd_as}

This folder configures the host of your AS. Anyone who has it can impersonate your AS: keep it secret.

- host id: `{uid}`
- configuration version: `{version}`
- Coordination Service: {site_url}

| file | content | readable by |
|---|---|---|
{contents}

{missing}## 1. Prepare the machine

{machine}

## 2. Let these packets through

{links}

## 3. Install the configuration

{fetch}{by_hand}

```sh
{by_hand_commands}
```

If SCION ran on this machine for another testbed, remove its databases before you start it:
`sudo rm -f /var/lib/scion/*.db`. A control service exits if they contain a different TRC with the same number.

Then start SCION{when}:

```sh
{start}
```

{vpn}## 4. Check

Check whether this configuration is still the newest one: 304 means yes, 200 means that there is a newer one.

```sh
curl -s -o /dev/null -w '%{{http_code}}\\n' -u {uid}:{secret} \\
    '{site_url}/api/v4/host/{uid}/config?version={version}'
```

Check whether your border router and your attachment points reach each other:

```sh
journalctl -u '{router}@*' | grep -i 'state'
```

{paths}The bandwidth limit of each link is enforced by the attachment point, not here: this host needs nothing for it.
The page of your AS at {site_url} shows the requested and the enforced limits.
"""
_FETCH = """\
Let the client fetch this configuration and all later ones. Run all of these commands; the first one reports which SCION
files this machine has, without their content and secrets:

```sh
{commands}
```

The client makes the user `scion`, which runs SCION, the owner of all files in `/etc/scion`, and starts SCION. If a file
exists that it did not install, it prompts: answer `b` to keep a copy.

If the machine is configured by another service, for example SCIONLab's own, the first command exits with an error and
nothing is changed: `scionlab-config` would delete that service's keys and certificates, without a backup. An
administrator can then take over the host, whose page lists what would be deleted; or use another machine.

"""
_BY_HAND = """\
Or install the files by hand, from within this folder, on a machine that no other service configures. Replaced files are
kept as copies:"""
_BY_HAND_ONLY = """\
Install the files from within this folder, on a machine that no other service configures. Replaced files are kept as
copies. Repeat this with a new download when section 4 shows that there is a newer one: `scionlab-config`, which fetches
automatically, works only with SCIONLab's packages.
"""
_VPN_NOTE = (
    "The OpenVPN unit needs the keys that the operator of the attachment point gives you; they are not in this "
    "folder.\n\n"
)
_NO_CHAIN = """\
**Missing from this folder:** {folders}. This service issues no certificates while the ISD has no core AS here. Get them
from the operator of the ISD and put them in `/etc/scion`. Without them SCION exits immediately.

"""
_LIMITS_ONLY = """\
# SCIONLab AS {isd_as}: limits only

Another service configures SCION on the host of this AS (host id `{uid}`). There is nothing to install from
here: continue with that service, and do not point `scionlab-config` at {site_url}, which rejects it.

If the AS is an attachment point, `scionlab-bw-agent`, which an administrator enrols, delivers its bandwidth limits to
the host. The page of your AS shows the requested and the enforced limits.
"""
_COMMANDS = """\
sudo python3 -c '
import json, os
path = "/etc/scion/scionlab-config.json"
found = json.load(open(path)) if os.path.exists(path) else {{}}
names = ("host_id", "url", "version", "files", "systemd_units")
print(json.dumps({{name: found[name] for name in names if name in found}}))
' | curl -sS --fail-with-body -u {uid}:{secret} --data-binary @- \\
    {site_url}/api/v4/host/{uid}/installed &&
sudo scionlab-config --host-id={uid} --host-secret={secret} --url={site_url}
"""
_INSTALL_SCION = """\
for file in $(find etc/scion -type f); do
    case "$file" in *.key) mode=600 ;; *) mode=644 ;; esac
    sudo install -D -C -o scion -g scion -m "$mode" --backup=numbered "$file" "/$file"
done
"""
_OWN_CERTS = "sudo chown scion:scion /etc/scion/certs  # SCION stores fetched TRCs there\n"
_INSTALL_VPN = """\
for file in $(find etc/openvpn -type f); do
    case "$file" in *.conf) mode=600 ;; *) mode=644 ;; esac
    sudo install -D -C -m "$mode" --backup=numbered "$file" "/$file"
done
"""


def install_commands(*, uid: str, secret: str, site_url: str) -> str:
    """Return shell commands that report the installed files and let the stock client fetch if the service allows it."""
    return _COMMANDS.format(uid=uid, secret=secret, site_url=site_url)


def build_readme(host: HostSnapshot, manifest: Mapping[str, Any], *, in_virtual_machine: bool) -> bytes:
    """Return the README of this host, with its commands ready to be copied."""
    if host.limits_only:
        return _LIMITS_ONLY.format(isd_as=host.AS.isd_as, uid=host.uid, site_url=manifest["url"]).encode()
    machine = _VIRTUAL_MACHINE if in_virtual_machine else _DEDICATED_MACHINE
    files = manifest["files"]
    is_in_vpn = any(end.is_vpn for end in host.link_ends)
    missing = _missing(files)
    return _README.format(
        isd_as=host.AS.isd_as,
        uid=host.uid,
        secret=host.secret,
        version=manifest["version"],
        site_url=manifest["url"],
        contents=_contents(files),
        missing=missing,
        machine=machine.format(packages=_PACKAGES[host.scion_packages]) + _OPENVPN * is_in_vpn,
        links=_links(host),
        fetch=_fetch(host, manifest),
        by_hand=_BY_HAND if _has_client(host) else _BY_HAND_ONLY.rstrip(),
        by_hand_commands=_install_by_hand(files).rstrip(),
        when=_when(host, is_missing=bool(missing)),
        start=_start(manifest["systemd_units"]).rstrip(),
        vpn=_VPN_NOTE if is_in_vpn and not _has(files, _VPN_FOLDER) else "",
        router=PACKAGES[host.scion_packages].router_unit,
        paths=_check_paths(host),
    ).encode()


def _has(files: Collection[str], folder: str) -> bool:
    return any(path.startswith(folder) for path in files)


def _has_client(host: HostSnapshot) -> bool:
    """Upstream's packages lack `scionlab-config` and the target that it starts."""
    return host.scion_packages == "scionlab"


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


def _contents(files: Collection[str]) -> str:
    """Rows of the table: one per kind of file, with the number of files."""
    counts = {pattern: 0 for pattern, _, _ in _KINDS}
    for path in files:
        counts[next(pattern for pattern in counts if _fits(path, pattern))] += 1
    rows = [
        f"| `{pattern}`{f' ({counts[pattern]})' if '*' in pattern else ''} | {what} | {who} |"
        for pattern, what, who in _KINDS
        if counts[pattern]
    ]
    return "\n".join([*rows, f"| `{MANIFEST_NAME}` | what was installed; the host's secret | `scion` |"])


def _fits(path: str, pattern: str) -> bool:
    begin, star, end = pattern.partition("*")
    return path.startswith(begin) and path.endswith(end) if star else path == pattern


def _missing(files: Collection[str]) -> str:
    folders = [name for name in ("certs/", "crypto/", "keys/") if not _has(files, f"{FOLDER}/{name}")]
    return _NO_CHAIN.format(folders=", ".join(f"`{name}`" for name in folders)) if folders else ""


def _when(host: HostSnapshot, *, is_missing: bool) -> str:
    if is_missing:
        return ", when these files are there"
    return "; the client does this automatically" if _has_client(host) else ""


def _links(host: HostSnapshot) -> str:
    if not host.link_ends:
        return "Nothing: this AS has no active link."
    rows = [
        f"| {end.remote_isd_as} | {join_address(end.local_ip, end.local_port)} | "
        f"{join_address(end.remote_ip, end.remote_port)} | {'yes' if end.is_vpn else 'no'} |"
        for end in host.link_ends
    ]
    return "\n".join(["| to AS | UDP here | UDP there | over the VPN |", "|---|---|---|---|", *rows])


def _fetch(host: HostSnapshot, manifest: Mapping[str, Any]) -> str:
    if not _has_client(host):
        return ""
    commands = install_commands(uid=host.uid, secret=host.secret, site_url=manifest["url"])
    return _FETCH.format(commands=commands.rstrip())


def _install_by_hand(files: Collection[str]) -> str:
    """Shell commands to run in the folder; they keep a copy of what they replace."""
    own_certs = _OWN_CERTS if _has(files, f"{FOLDER}/certs/") else ""
    return _INSTALL_SCION + own_certs + (_INSTALL_VPN if _has(files, _VPN_FOLDER) else "")


def _start(units: Collection[str]) -> str:
    """OpenVPN first: a router exits if one of its addresses is missing."""
    vpn = [unit for unit in units if unit.startswith("openvpn@")]
    scion = [unit for unit in units if unit not in vpn]
    return "".join(f"sudo systemctl enable --now {' '.join(some)}\n" for some in (vpn, scion) if some)


def _check_paths(host: HostSnapshot) -> str:
    if not host.link_ends:
        return ""
    command = f"scion showpaths {host.link_ends[0].remote_isd_as}"
    return f"Show the paths of SCION; the first one appears after a few seconds:\n\n```sh\n{command}\n```\n\n"


# --- a virtual machine ----------------------------------------------------------------------------------------------

_VAGRANTFILE = """\
# A virtual machine for {isd_as}, see README.md. It holds the host's secret: keep it secret.
Vagrant.configure("2") do |config|
  config.vm.box = "debian/bookworm64"
  config.vm.hostname = "{hostname}"
{ports}  config.vm.provider "virtualbox" do |machine|
    machine.memory = 2048
  end
  config.vm.provision "shell", inline: <<~'SCRIPT'
    set -e
    cd /vagrant
    export DEBIAN_FRONTEND=noninteractive
    apt-get update
    apt-get install -y {tools} ./packages/*.deb
{install}
  SCRIPT
end
"""


def build_vagrantfile(host: HostSnapshot, manifest: Mapping[str, Any]) -> bytes:
    """Return a Vagrantfile: the machine fetches its configuration, or installs the folder if it has no client."""
    ports = sorted({(end.public_port, end.local_port) for end in host.link_ends if not end.is_vpn})
    if _has_client(host):
        install = install_commands(uid=host.uid, secret=host.secret, site_url=manifest["url"])
    else:
        install = _install_by_hand(manifest["files"]) + _start(manifest["systemd_units"])
    vpn = any(end.is_vpn for end in host.link_ends)
    return _VAGRANTFILE.format(
        isd_as=host.AS.isd_as,
        hostname="scionlab-" + host.AS.isd_as.replace(":", "-"),
        ports="".join(
            f'  config.vm.network "forwarded_port", protocol: "udp", host: {public}, guest: {local}\n'
            for public, local in ports
        ),
        tools="sudo curl python3" + (" openvpn" if vpn else ""),
        install=textwrap.indent(install.rstrip(), "    "),
    ).encode()
