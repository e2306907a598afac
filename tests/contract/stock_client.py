"""What the stock client does with a tarball, as far as a tarball can displease it (DOMAIN section 4). Tests only.

Written from the contract: it stops SCION and dies on a member that it does not know what to do with.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from typing import Any

MANIFEST = "scionlab-config.json"
FOLDERS = ("etc/scion/", "etc/openvpn/")


def complaints(tarball: bytes) -> list[str]:
    """Empty for a tarball that the stock client installs and removes again cleanly."""
    with tarfile.open(fileobj=io.BytesIO(tarball), mode="r:gz") as tar:
        members = tar.getmembers()
        contents = {one.name: tar.extractfile(one).read() for one in members if one.isreg()}  # type: ignore[union-attr]
    names = [one.name for one in members]
    found = [f"{one.name} is not a plain file" for one in members if not one.isreg()]
    found += [f"{name} is there twice" for name in sorted({name for name in names if names.count(name) > 1})]
    if MANIFEST not in contents:
        return [*found, "there is no manifest"]
    manifest: dict[str, Any] = json.loads(contents.pop(MANIFEST))
    found += [f"the manifest has no {key}" for key in _REQUIRED if not isinstance(manifest.get(key), _REQUIRED[key])]
    found += [f"{name} is outside of etc/scion and etc/openvpn" for name in contents if not name.startswith(FOLDERS)]
    found += [f"{name} is no path that can be joined" for name in contents if ".." in name.split("/") or "//" in name]
    files = manifest.get("files", {})
    found += [f"{name} is not listed" for name in contents.keys() - files.keys()]
    found += [f"{name} is listed and not there" for name in files.keys() - contents.keys()]
    for name in contents.keys() & files.keys():
        if hashlib.sha1(contents[name], usedforsecurity=False).hexdigest() != files[name]:
            found.append(f"{name} has another sha1")
    return sorted(found)


_REQUIRED: dict[str, type] = {
    "host_id": str,
    "host_secret": str,
    "url": str,
    "version": str,
    "files": dict,
    "systemd_units": list,
}
