"""The stock client of the field, as far as our service can displease or harm it (DOMAIN section 4). Tests only.

`complaints` says what is wrong with a tarball; `StockHost` is a machine on which the client installs one. Both are
written from the contract and from how `scionlab-config` 3 behaves:

- With --host-id it sends no version, else that of the manifest which it has installed. It calls itself Python-urllib.
- 200: each file that differs from the one installed and was altered by hand is asked about (nobody answers: it ends);
  then SCION stops, what the old manifest lists and the new one does not is deleted without a backup, the rest is
  replaced (with the mode that it has in the tarball; all then belongs to the user scion), SCION starts, the version is
  confirmed.
- 204: SCION stops, and nothing else. 304: nothing. 5xx and network errors: it complains, and asks again as a daemon.
  Anything else: it ends.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import json
import os
import sys
import tarfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MANIFEST = "scionlab-config.json"
FOLDERS = ("etc/scion/", "etc/openvpn/")
TIMEOUT_S = 10

# A host of SCIONLab's own service: a user AS that is an attachment point too.
OTHER_URL = "https://www.scionlab.example.net"
OTHER_HOST_ID = "00112233445566778899aabbccddeeff"
OTHER_FILES: dict[str, bytes] = {
    "etc/scion/topology.json": b'{"isd_as": "17-ffaa:1:b6"}\n',
    "etc/scion/br-1.toml": b'[general]\nid = "br-1"\n',
    "etc/scion/cs-1.toml": b'[general]\nid = "cs-1"\n',
    "etc/scion/sd.toml": b'[general]\nid = "sd"\n',
    "etc/scion/disp.toml": b'[dispatcher]\nid = "disp"\n',
    "etc/scion/certs/ISD17-B1-S1.trc": b"a trust root configuration",
    "etc/scion/crypto/as/cp-as.key": b"the key of the AS",
    "etc/scion/keys/master0.key": b"MDEyMzQ1Njc4OWFiY2RlZg==",
    "etc/openvpn/server.conf": b"port 1194\n",
}
OTHER_UNITS = ["scion-border-router@br-1.service", "scion-control-service@cs-1.service", "scion-daemon.service"]


def complaints(tarball: bytes) -> list[str]:
    """Empty for a tarball that the stock client installs and removes again cleanly."""
    members, contents = _members(tarball)
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
        if _sha1(contents[name]) != files[name]:
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


class Ended(Exception):  # noqa: N818  the client's own word for it is an exit status
    """The client ended with an error; as a daemon too, unless `is_temporary`."""

    def __init__(self, why: str, *, is_temporary: bool = False) -> None:
        super().__init__(why)
        self.is_temporary = is_temporary


class StockHost:
    """A machine with the stock client. `root` is its file system; what it does to units stands in `root`/units.log."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "etc/scion").mkdir(parents=True, exist_ok=True)

    def install_other(self, *, version: str = "1.37", url: str = OTHER_URL, host_id: str = OTHER_HOST_ID) -> None:
        """What another coordination service had installed here, with its manifest."""
        for name, content in OTHER_FILES.items():
            self._write(name, content)
        manifest = {
            "host_id": host_id,
            "host_secret": "another secret",
            "url": url,
            "version": version,
            "files": {name: _sha1(content) for name, content in OTHER_FILES.items()},
            "systemd_units": OTHER_UNITS,
        }
        self._write(f"etc/scion/{MANIFEST}", json.dumps(manifest).encode())

    @property
    def files(self) -> dict[str, bytes]:
        """All below /etc, without the manifest."""
        paths = (path for path in self.root.glob("etc/**/*") if path.is_file() and path.name != MANIFEST)
        return {str(path.relative_to(self.root)): path.read_bytes() for path in paths}

    @property
    def manifest(self) -> dict[str, Any] | None:
        path = self.root / "etc/scion" / MANIFEST
        return json.loads(path.read_bytes()) if path.exists() else None

    @property
    def unit_log(self) -> list[str]:
        path = self.root / "units.log"
        return path.read_text().splitlines() if path.exists() else []

    def run(self, *, host_id: str = "", host_secret: str = "", url: str = "") -> None:
        """`scionlab-config`, with the options given. Raises `Ended`."""
        version = ""
        if not host_id:
            manifest = self.manifest
            if manifest is None:
                raise Ended("No scionlab config info file found")
            host_id, host_secret, version = (manifest[name] for name in ("host_id", "host_secret", "version"))
            url = url or manifest["url"]
        answer = self._fetch(f"{url.rstrip('/')}/api/v4/host/{host_id}", host_id, host_secret, version)
        if answer is None:
            return
        if answer == b"":
            self._log("stop scionlab.target")
            return
        self.install_tar(answer)
        new = self.manifest or {}
        confirm = f"{url.rstrip('/')}/api/v4/host/{new['host_id']}/deployed_config_version"
        body = urllib.parse.urlencode({"version": new["version"]}).encode()
        try:
            _open(confirm, new["host_id"], new["host_secret"], body)
        except urllib.error.HTTPError as exc:
            exc.close()

    def _fetch(self, address: str, host_id: str, host_secret: str, version: str) -> bytes | None:
        """The tarball; empty for 204, None for 304."""
        query = f"?{urllib.parse.urlencode({'version': version})}" if version else ""
        try:
            status, content = _open(f"{address}/config{query}", host_id, host_secret)
        except urllib.error.HTTPError as exc:
            exc.close()
            if exc.code == 304:
                return None
            raise Ended(f"Failed to fetch: {exc}", is_temporary=500 <= exc.code <= 599) from exc
        except OSError as exc:
            raise Ended(f"Failed to fetch: {exc}", is_temporary=True) from exc
        if status not in {200, 204}:
            raise Ended(f"Failed to fetch: {status}")
        return content if status == 200 else b""

    def install_tar(self, tarball: bytes) -> None:
        """`scionlab-config --tar`. Raises `Ended`."""
        members, contents = _members(tarball)
        modes = {one.name: one.mode for one in members}
        manifest = contents.pop(MANIFEST)
        old: Mapping[str, str] = (self.manifest or {}).get("files", {})
        new: Mapping[str, str] = json.loads(manifest)["files"]
        here = {name: _sha1(content) for name, content in self.files.items()}
        for name in new.keys() & here.keys():
            if here[name] not in {new[name], old.get(name)} and new[name] != old.get(name):
                raise Ended(f"/{name} was altered, and nobody answers what to do")
        self._log("stop scionlab.target")
        for name in old.keys() - new.keys():
            (self.root / name).unlink()
        for name in new:
            if new[name] != old.get(name):
                self._write(name, contents[name])
                (self.root / name).chmod(modes[name])
        for unit in json.loads(manifest)["systemd_units"]:
            self._log(f"enable {unit}")
        self._write(f"etc/scion/{MANIFEST}", manifest)
        for name in sorted(old.keys() - new.keys()):
            if name.startswith("etc/openvpn/") and name.endswith(".conf"):
                self._log(f"stop openvpn@{Path(name).stem}")
        self._log("start scionlab.target")

    def _write(self, name: str, content: bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def _log(self, line: str) -> None:
        with (self.root / "units.log").open("a") as log:
            log.write(line + "\n")


def _open(address: str, user: str, password: str, body: bytes | None = None) -> tuple[int, bytes]:
    """Raises `urllib.error.HTTPError`, `OSError`."""
    request = urllib.request.Request(address, data=body)  # noqa: S310  a test's own server
    request.add_header("Authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310  as above
        return answer.status, answer.read()


def _members(tarball: bytes) -> tuple[list[tarfile.TarInfo], dict[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(tarball), mode="r:gz") as tar:
        members = tar.getmembers()
        return members, {one.name: tar.extractfile(one).read() for one in members if one.isreg()}  # type: ignore[union-attr]


def _sha1(content: bytes) -> str:
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


def main() -> int:
    """`python -m tests.contract.stock_client`, on the machine whose root is in STOCK_ROOT."""
    parser = argparse.ArgumentParser(prog="scionlab-config")
    for name in ("--host-id", "--host-secret", "--url"):
        parser.add_argument(name, default="")
    try:
        StockHost(Path(os.environ["STOCK_ROOT"])).run(**vars(parser.parse_args()))
    except Ended as exc:
        print(f"ERROR: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
