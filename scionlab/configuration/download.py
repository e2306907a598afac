"""Host -> what its owner downloads: a folder with the host's files and a README.md for this very host, as bytes; for a
virtual machine a Vagrantfile too.

`config_tar` makes the files; nothing here touches the database.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Collection, Mapping
from typing import Any

from config_tar import MANIFEST_NAME, SUFFIX, ConfigHost, HostSnapshot, download_name, pack, snapshot
from scion_files import COMPLETE, FOLDER, PACKAGES, join_address

VAGRANTFILE = "Vagrantfile"
_VPN_FOLDER = "etc/openvpn/"


def build_user_download(host: ConfigHost, members: Mapping[str, bytes], *, in_virtual_machine: bool = False) -> bytes:
    """What a person downloads for a user AS: one folder with a README.md and the `members` of the host's tarball.

    Not for `scionlab-config --tar`, which wants the host's own tarball.
    """
    own, manifest = snapshot(host), json.loads(members[MANIFEST_NAME])
    files = {**members, "README.md": build_readme(own, manifest, in_virtual_machine=in_virtual_machine)}
    if in_virtual_machine and not own.limits_only:
        files[VAGRANTFILE] = build_vagrantfile(own, manifest)
    folder = download_name(host).removesuffix(SUFFIX)
    return pack({f"{folder}/{name}": content for name, content in files.items()})


_DEDICATED_MACHINE = """\
Use a machine with a current Debian or Ubuntu on which nothing else listens on the ports below. Install on it
{packages}."""
_VIRTUAL_MACHINE = """\
`Vagrantfile` beside this file makes a virtual machine (VirtualBox, Debian 12). It forwards the UDP ports below, and
does in the machine what section 3 says. Make a folder `packages` beside it with the `.deb` files of
{packages},
and run `vagrant up` in this folder. Keep the folder, the machine reads it. *Not tried by us: the box, and the packages
in it.* Or make a machine of your own, install these packages, and go on as with any other."""
_OPENVPN = "\n\nA link goes over the VPN of its attachment point: install `openvpn` too."
_PACKAGES = {
    "scionlab": "the SCION packages of SCIONLab (border router, control service, daemon, dispatcher, tools) and its "
    "client\n`scionlab-config`",
    "upstream": "the packages of SCION v0.15 as upstream (scionproto) has them: `scion-router`, `scion-control`,\n"
    "`scion-daemon`, `scion-dispatcher`, `scion-tools`",
}
_README = """\
# SCIONLab AS {isd_as}

This folder configures the host of your AS. Anyone who has it can impersonate your AS: keep it secret.

- host id: `{uid}`
- configuration version: `{version}`
- Coordination Service: {site_url}

| what is in it | what it is | who may read it |
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

If SCION ran on this machine for another testbed, remove what it remembers of that before you start it:
`sudo rm -f /var/lib/scion/*.db`. A control service ends when it finds another TRC of the same number there.

Then start SCION{when}:

```sh
{start}
```

{vpn}## 4. Check

This asks the service whether this configuration is still the newest one: 304 is yes, 200 means that there is a newer.

```sh
curl -s -o /dev/null -w '%{{http_code}}\\n' -u {uid}:{secret} \\
    '{site_url}/api/v4/host/{uid}/config?version={version}'
```

This shows whether your border router and your attachment points hear each other:

```sh
journalctl -u '{router}@*' | grep -i 'state'
```

{paths}The bandwidth limit of each link is enforced by the attachment point, not here: this host needs nothing for it.
What is asked for and what is enforced stands on the page of your AS at {site_url}
"""
_FETCH = """\
Let the client fetch it, and every later one. Run all of this; the first part tells the service what SCION files this
machine has, without their content and secrets:

```sh
{commands}
```

The client gives all files below `/etc/scion` to the user `scion`, as whom SCION runs, and starts SCION. Where a file
is there that it did not install, it asks: answer `b`, and it keeps a copy.

If the machine is configured by another service, SCIONLab's own for example, the first part ends with an error and
nothing is changed: `scionlab-config` would delete that service's keys and certificates, without a backup. An
administrator can then take the host over, and its page names what would be deleted first; or use another machine.

"""
_BY_HAND = """\
Or install by hand what is in this folder, from within it, on a machine that no other service configures. It keeps a
copy of what it replaces:"""
_BY_HAND_ONLY = """\
Install what is in this folder, from within it, on a machine that no other service configures. It keeps a copy of what
it replaces. Do it again with a new download when section 4 says that there is a newer one: `scionlab-config`, which
fetches by itself, works with SCIONLab's packages only.
"""
_VPN_NOTE = (
    "The OpenVPN unit needs the keys that the operator of the attachment point gives you; they are not in this "
    "folder.\n\n"
)
_TOPOLOGY_ONLY = """\
**What is not in this folder:** `topology.json` is all of SCION's files that this host gets so far: it was made before
the service had more. The settings of the programs, keys and certificates come with the next change of the AS, or when
an administrator completes its configuration. Until then they come from whoever operates the ISD: without them the units
below end as soon as they are started.

"""
_NO_CHAIN = """\
**What is not in this folder:** {folders}. Certificates are not made here while the ISD has no core AS in this service.
They come from whoever operates the ISD: put them below `/etc/scion`. Without them SCION ends as soon as it is started.

"""
_LIMITS_ONLY = """\
# SCIONLab AS {isd_as}: limits only

Another service configures SCION on the host of this AS (host id `{uid}`). There is nothing to install from here: go on
with that service, and do not point `scionlab-config` at {site_url}, which refuses it.

If the AS is an attachment point, its bandwidth limits reach the host by `scionlab-bw-agent`, which an administrator
enrols. What is asked for and what is enforced stands on the page of your AS.
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
_OWN_CERTS = "sudo chown scion:scion /etc/scion/certs  # SCION keeps TRCs there that it fetches\n"
_INSTALL_VPN = """\
for file in $(find etc/openvpn -type f); do
    case "$file" in *.conf) mode=600 ;; *) mode=644 ;; esac
    sudo install -D -C -m "$mode" --backup=numbered "$file" "/$file"
done
"""


def install_commands(*, uid: str, secret: str, site_url: str) -> str:
    """For a shell: says what is installed, and has the stock client fetch only if nothing is lost by that."""
    return _COMMANDS.format(uid=uid, secret=secret, site_url=site_url)


def build_readme(host: HostSnapshot, manifest: Mapping[str, Any], *, in_virtual_machine: bool) -> bytes:
    """The commands for this very host, ready to be copied."""
    if host.limits_only:
        return _LIMITS_ONLY.format(isd_as=host.AS.isd_as, uid=host.uid, site_url=manifest["url"]).encode()
    machine = _VIRTUAL_MACHINE if in_virtual_machine else _DEDICATED_MACHINE
    files = manifest["files"]
    is_in_vpn = any(end.is_vpn for end in host.link_ends)
    missing = _missing(host, files)
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
    """Upstream's packages have neither `scionlab-config` nor the target that it starts."""
    return host.scion_packages == "scionlab"


_KINDS = (  # of the first that fits: what a path begins and ends with, what the file is, who may read it
    ("etc/scion/topology.json", "the links and addresses of the AS", "everybody"),
    ("etc/scion/*.toml", "settings of SCION's programs", "everybody"),
    ("etc/scion/certs/*", "TRCs: whom SCION trusts", "everybody"),
    ("etc/scion/*.key", "private keys of the AS", "`scion`, as whom SCION runs"),
    ("etc/scion/crypto/*", "certificates of the AS", "everybody"),
    ("etc/scion/link_info.json", "the bandwidth limits, for `scionlab-bw-agent`", "everybody"),
    ("etc/openvpn/*.conf", "settings and keys of OpenVPN", "root"),
    ("etc/openvpn/*", "addresses of the VPN's clients", "everybody"),
    ("etc/*", "more settings", "everybody"),
)


def _contents(files: Collection[str]) -> str:
    """The rows of the table: each kind of file once, with how many there are."""
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


def _missing(host: HostSnapshot, files: Collection[str]) -> str:
    if host.configuration_format < COMPLETE:
        return _TOPOLOGY_ONLY
    folders = [name for name in ("certs/", "crypto/", "keys/") if not _has(files, f"{FOLDER}/{name}")]
    return _NO_CHAIN.format(folders=", ".join(f"`{name}`" for name in folders)) if folders else ""


def _when(host: HostSnapshot, *, is_missing: bool) -> str:
    if is_missing:
        return ", when all of that is there"
    return "; the client does that by itself" if _has_client(host) else ""


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
    """For a shell in the folder; nothing that is there is lost."""
    own_certs = _OWN_CERTS if _has(files, f"{FOLDER}/certs/") else ""
    return _INSTALL_SCION + own_certs + (_INSTALL_VPN if _has(files, _VPN_FOLDER) else "")


def _start(units: Collection[str]) -> str:
    """OpenVPN first: a router ends where an address of its is not there."""
    vpn = [unit for unit in units if unit.startswith("openvpn@")]
    scion = [unit for unit in units if unit not in vpn]
    return "".join(f"sudo systemctl enable --now {' '.join(some)}\n" for some in (vpn, scion) if some)


def _check_paths(host: HostSnapshot) -> str:
    if not host.link_ends:
        return ""
    command = f"scion showpaths {host.link_ends[0].remote_isd_as}"
    return f"And this asks SCION for paths; the first one is there after some seconds:\n\n```sh\n{command}\n```\n\n"


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
    """For Vagrant: a machine that fetches its configuration, or takes it from the folder where it has no client."""
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
