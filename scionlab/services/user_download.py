"""Host -> what its owner downloads: a folder with the host's files and a README.md for this very host, as bytes.

`config_tar` makes the files; nothing here touches the database.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from config_tar import (
    MANIFEST_NAME,
    SUFFIX,
    ConfigHost,
    HostSnapshot,
    download_name,
    join_address,
    pack,
    snapshot,
)


def build_user_download(host: ConfigHost, members: Mapping[str, bytes], *, in_virtual_machine: bool = False) -> bytes:
    """What a person downloads for a user AS: one folder with a README.md and the `members` of the host's tarball.

    Not for `scionlab-config --tar`, which wants the host's own tarball.
    """
    readme = build_readme(snapshot(host), json.loads(members[MANIFEST_NAME]), in_virtual_machine=in_virtual_machine)
    folder = download_name(host).removesuffix(SUFFIX)
    return pack({f"{folder}/{name}": content for name, content in {**members, "README.md": readme}.items()})


_VIRTUAL_MACHINE = (
    "Create a virtual machine with a current Debian or Ubuntu, and forward the UDP ports below to it, unless the link "
    "goes over the VPN."
)
_DEDICATED_MACHINE = "Use a machine with a current Debian or Ubuntu on which nothing else listens on the ports below."
_VPN_NOTE = (
    "The OpenVPN unit needs the keys that the operator of the attachment point gives you; they are not in this "
    "folder.\n\n"
)
_README = """\
# SCIONLab AS {isd_as}

This folder configures the host of your AS. It holds the host's secret (`scionlab-config.json`): keep it to yourself.

- host id: `{uid}`
- configuration version: `{version}`
- Coordination Service: {site_url}

## 1. Prepare the machine

{machine}

Install the SCION packages of SCIONLab (border router, control service, daemon) and its client `scionlab-config`.

## 2. Let these packets through

{links}

## 3. Install the configuration

Let the client fetch it, and every later one:

    sudo scionlab-config --host-id={uid} --host-secret={secret} --url={site_url}

Or install by hand what is in this folder, from within it:

    sudo install -D -m 644 etc/scion/topology.json /etc/scion/topology.json
    sudo systemctl enable --now {units}

{vpn}## 4. Check

This asks the service whether this configuration is still the newest one: 304 is yes, 200 means that there is a newer.

    curl -s -o /dev/null -w '%{{http_code}}\\n' -u {uid}:{secret} \\
        '{site_url}/api/v4/host/{uid}/config?version={version}'

This shows whether your border router and your attachment points hear each other:

    journalctl -u 'scion-border-router@*' | grep -i 'state'

The bandwidth limit of each link is enforced by the attachment point, not here: this host needs nothing for it. What is
asked for and what is enforced stands on the page of your AS at {site_url}
"""


def build_readme(host: HostSnapshot, manifest: Mapping[str, Any], *, in_virtual_machine: bool) -> bytes:
    """The commands for this very host, ready to be copied."""
    machine = _VIRTUAL_MACHINE if in_virtual_machine else _DEDICATED_MACHINE
    rows = [
        f"| {end.remote_isd_as} | {join_address(end.local_ip, end.local_port)} | "
        f"{join_address(end.remote_ip, end.remote_port)} | {'yes' if end.is_vpn else 'no'} |"
        for end in host.link_ends
    ]
    table = "\n".join(["| to AS | UDP here | UDP there | over the VPN |", "|---|---|---|---|", *rows])
    return _README.format(
        isd_as=host.AS.isd_as,
        uid=host.uid,
        secret=host.secret,
        version=manifest["version"],
        site_url=manifest["url"],
        machine=machine,
        links=table if rows else "Nothing: this AS has no active link.",
        units=" ".join(manifest["systemd_units"]),
        vpn=_VPN_NOTE if any(end.is_vpn for end in host.link_ends) else "",
    ).encode()
