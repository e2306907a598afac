"""What a user downloads, installed by its README.md in a root of its own, and run as the user that packages make."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab.scion.net import CORE, ScionNet
from lab.scion.programs import folder
from scionlab.delivery.download import build_user_download

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(300)]

# ExecStart of the units of upstream's packages (dist/systemd of SCION v0.15); they run as the user scion.
UPSTREAM = {
    "scion-router@br-1.service": ("router", "/etc/scion/br-1.toml"),
    "scion-control@cs-1.service": ("control", "/etc/scion/cs-1.toml"),
    "scion-daemon.service": ("daemon", "/etc/scion/daemon.toml"),
    "scion-dispatcher.service": ("dispatcher", "/etc/scion/dispatcher.toml"),
}
SCION_ID = 64_990  # of the user and group scion in the root; nobody's here
_ENTER = """
for one in usr bin lib lib64 dev proc; do
    [ ! -e "/$one" ] || { mkdir -p "$0/$one" && mount --rbind "/$one" "$0/$one"; }
done
mkdir -p "$0/opt/scion" && mount --bind "$SCION_PROGRAMS" "$0/opt/scion"
export PATH=/opt/bin:/opt/scion:/usr/bin:/bin:/usr/sbin:/sbin
exec chroot "$0" "$@"
"""


class Root:
    """A root with the programs of this machine and an /etc of its own: what a new machine has after packages were
    installed. Its mounts are those of each command, and end with it."""

    def __init__(self, net: ScionNet, path: Path) -> None:
        self._namespace, self._path = net.user.namespace, path
        for name in ("etc/scion", "var/lib/scion", "opt/bin", "tmp", "root"):
            (path / name).mkdir(parents=True)
        (path / "etc/passwd").write_text(f"root:x:0:0::/root:/bin/sh\nscion:x:{SCION_ID}:{SCION_ID}::/var/lib/scion:\n")
        (path / "etc/group").write_text(f"root:x:0:\nscion:x:{SCION_ID}:\n")
        for name in ("etc/scion", "var/lib/scion"):  # as upstream's packages do
            os.chown(path / name, SCION_ID, SCION_ID)
        for name, does in {"sudo": 'exec "$@"', "systemctl": 'printf "%s\\n" "$@" >>/opt/units'}.items():
            (path / "opt/bin" / name).write_text(f"#!/bin/sh\n{does}\n")
            (path / "opt/bin" / name).chmod(0o755)

    def argv(self, *command: str) -> list[str]:
        return ["env", f"SCION_PROGRAMS={folder()}", "sh", "-euc", _ENTER, str(self._path), *command]

    def run(self, commands: str) -> str:
        """In a shell, from within the download."""
        return self._namespace.run(*self.argv("sh", "-euc", f"cd /root\n{commands}"), timeout_s=60)

    def put(self, download: bytes) -> None:
        subprocess.run(["tar", "-xz", "-C", self._path / "root"], input=download, check=True)
        (inner,) = (self._path / "root").iterdir()
        for one in inner.iterdir():
            one.rename(self._path / "root" / one.name)
        inner.rmdir()

    @property
    def units(self) -> list[str]:
        return (self._path / "opt/units").read_text().split()

    def mode(self, name: str) -> tuple[int, int]:
        found = (self._path / name).stat()
        return found.st_mode & 0o777, found.st_uid


@pytest.fixture
def root(net: ScionNet, tmp_path: Path) -> Iterator[Root]:
    net.user.stop()
    path = tmp_path / "root"
    path.mkdir()
    yield Root(net, path)
    net.user.start()
    assert net.user.time_until_path(CORE, 60) is not None


def commands_of(readme: str) -> list[str]:
    return re.findall(r"```sh\n(.*?)```", readme, re.DOTALL)


def test_an_as_runs_that_was_installed_by_hand_with_upstream_s_packages(
    net: ScionNet, root: Root, tmp_path: Path
) -> None:
    """With the inner address that a host has which a form made."""
    host = replace(net.user_host, scion_packages="upstream", internal_ip="127.0.0.1")
    root.put(build_user_download(host, net.members(host)))
    install, start, _, _, check = commands_of(root.run("cat README.md"))
    root.run(install)
    root.run(start)
    assert root.units == ["enable", "--now", *sorted(UPSTREAM)]
    assert root.mode("etc/scion/crypto/as/cp-as.key") == (0o600, SCION_ID)
    assert root.mode("etc/scion/keys/master0.key") == (0o600, SCION_ID)
    running = {}
    try:
        for unit in root.units[2:]:
            program, settings = UPSTREAM[unit]
            identity = [f"--reuid={SCION_ID}", f"--regid={SCION_ID}", "--clear-groups"]
            argv = root.argv("setpriv", *identity, f"/opt/scion/{program}", "--config", settings)
            with (tmp_path / unit).open("w") as log:
                running[unit] = net.user.namespace.popen(argv, stdout=log, stderr=subprocess.STDOUT)
        began = time.monotonic()
        assert net.user.until(lambda: net.user.paths(CORE, probe=True), 60, began=began) is not None
        assert {unit: process.poll() for unit, process in running.items()} == dict.fromkeys(UPSTREAM)
        assert "Available paths to 17-ffaa:0:1107" in root.run(check)
    finally:
        for process in running.values():
            net.lab.stop(process)
