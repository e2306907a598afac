"""OpenVPN itself, Debian's program, on the files that the service makes for an attachment point and two user ASes.

    u1, u2 ── 192.0.2.0/24 ── ap        inside the VPN: ap 10.10.5.1, u1 10.10.5.2, u2 10.10.5.3

Programs start as Debian's unit openvpn@NAME starts them: within the folder, with NAME.conf.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from measuring.iproute import available, cleanup_stale
from measuring.netns import Lab, Namespace
from scionlab.accounts.models import User
from scionlab.scion_config.vpn import files_for, vpn_keys_renew
from scionlab.testbed.infrastructure import vpn_create
from scionlab.testbed.models import AttachmentPoint, Host, UserAS
from scionlab.user_ases.user_as import user_as_delete
from tests.factories import attach, spec

pytestmark = [pytest.mark.django_db, pytest.mark.kernel]

PREFIX = "slbwvpn"
SERVER, CLIENT = "server", "client-scionlab-17-ffaa_0_1107"
CONNECT_S = 30.0  # a client whose first packet comes before the server listens asks again after some seconds


class Peer:
    """A host with the files that it has of the service, and the OpenVPN that runs on them."""

    def __init__(self, namespace: Namespace, folder: Path, host: Host) -> None:
        self.namespace = namespace
        self.folder = folder
        self.host = host
        self.process: subprocess.Popen[str] | None = None

    def install(self) -> None:
        """Put the files of now in the place of those of before, as a configuration's tarball does."""
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "ccd").mkdir(parents=True)
        for name, content in files_for(self.host).items():
            path = self.folder / Path(name).relative_to("etc/openvpn")
            path.write_bytes(content)
            path.chmod(0o600 if path.suffix == ".conf" else 0o644)

    def start(self, name: str) -> None:
        """Anew, if it runs."""
        self.stop()
        argv = ["openvpn", "--cd", str(self.folder), "--config", f"{name}.conf"]
        with self._log.open("w", encoding="utf-8") as log:
            self.process = self.namespace.popen(argv, stdout=log, stderr=subprocess.STDOUT)

    def stop(self) -> None:
        if self.process is not None:
            self.namespace.lab.stop(self.process)
            self.process = None

    def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + CONNECT_S
        while not condition():
            assert self.process is None or self.process.poll() is None, f"OpenVPN ended: {self.said()}"
            assert time.monotonic() < deadline, f"{what}: {self.said()}"
            time.sleep(0.1)

    def until_said(self, pattern: str) -> None:
        self.until(lambda: re.search(pattern, self.said()), f"it does not say {pattern!r}")

    def said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def _log(self) -> Path:
        return self.folder.with_suffix(".log")

    def address(self) -> str:
        """Of its tun device; empty where there is none."""
        found = re.search(r"inet (\S+)", self.namespace.ip("-4", "addr", "show", "dev", "tun0", check=False))
        return found.group(1) if found else ""

    def reaches(self, to: str, *options: str) -> bool:
        """One of three pings came back."""
        said = self.namespace.run("ping", "-c", "3", "-i", "0.2", "-W", "1", *options, to, check=False)
        return " 0 received" not in said

    def count(self, device: str, what: str) -> int:
        """A counter of a network device: `tx_bytes`, `rx_packets`."""
        return int(self.namespace.run("cat", f"/sys/class/net/{device}/statistics/{what}"))


class Tunnels:
    def __init__(self, lab: Lab, folder: Path, ap: AttachmentPoint, first: UserAS, second: UserAS) -> None:
        switch = lab.switch("net")
        self.user_as = first
        self.ap, self.u1, self.u2 = (
            Peer(lab.namespace(name), folder / name, host)
            for name, host in (("ap", ap.host), ("u1", first.hosts.get()), ("u2", second.hosts.get()))
        )
        for peer, address in ((self.ap, "192.0.2.1/24"), (self.u1, "192.0.2.11/24"), (self.u2, "192.0.2.12/24")):
            switch.plug(peer.namespace.nic("eth0", address))
            peer.install()
        self.ap.start(SERVER)
        self.ap.until_said("Initialization Sequence Completed")

    def connect(self, peer: Peer, address: str) -> None:
        peer.start(CLIENT)
        peer.until(lambda: peer.address() == address, f"it does not get {address}")
        peer.until_said("Initialization Sequence Completed")


@pytest.fixture
def tunnels(owner: User, ap: AttachmentPoint) -> Iterator[Tunnels]:
    missing = available() or (None if shutil.which("openvpn") else "OpenVPN is missing: apt-get install openvpn")
    if missing is not None:
        pytest.skip(missing)
    cleanup_stale(PREFIX)
    vpn_create(host=ap.host, subnet="10.10.5.0/24")
    users = [attach(owner, spec(ap, use_vpn=True)) for _ in range(2)]
    with tempfile.TemporaryDirectory() as folder, Lab(PREFIX) as lab:
        Path(folder).chmod(0o755)  # OpenVPN reads `ccd` as nobody
        yield Tunnels(lab, Path(folder), ap, *users)


def test_each_client_gets_its_address_and_reaches_the_attachment_point(tunnels: Tunnels) -> None:
    for peer, address in ((tunnels.u1, "10.10.5.2/24"), (tunnels.u2, "10.10.5.3/24")):
        tunnels.connect(peer, address)
        assert peer.reaches("10.10.5.1")
    assert "default" not in tunnels.u1.namespace.ip("route")

    # A frame that SCION fills: 1500 bytes in the tunnel are 1552 outside, in two fragments, as docs/vpn.md says.
    before = tunnels.u1.count("eth0", "tx_bytes")
    said = tunnels.u1.namespace.run("ping", "-c", "50", "-i", "0.01", "-M", "do", "-s", "1472", "10.10.5.1")
    assert " 50 received" in said
    fragments = 1552 + 20 + 2 * 14
    beside = tunnels.u1.count("eth0", "tx_bytes") - before - 50 * fragments
    assert 0 <= beside < 2 * 200, "keepalives and ARP may come in between"


def test_packets_from_the_address_of_another_client_are_dropped(tunnels: Tunnels) -> None:
    tunnels.connect(tunnels.u1, "10.10.5.2/24")
    tunnels.connect(tunnels.u2, "10.10.5.3/24")
    tunnels.u1.namespace.ip("addr", "add", "10.10.5.3/32", "dev", "tun0")
    sent, received = tunnels.u1.count("tun0", "tx_packets"), tunnels.ap.count("tun0", "rx_packets")
    tunnels.u1.reaches("10.10.5.1", "-I", "10.10.5.3")  # the answers would go to u2
    assert tunnels.u1.count("tun0", "tx_packets") - sent >= 3
    assert tunnels.ap.count("tun0", "rx_packets") == received
    assert tunnels.u1.reaches("10.10.5.1", "-I", "10.10.5.2")


def test_a_client_whose_as_is_deleted_is_refused_from_the_next_configuration_on(tunnels: Tunnels) -> None:
    tunnels.connect(tunnels.u1, "10.10.5.2/24")
    tunnels.u1.stop()
    user_as_delete(user_as_id=tunnels.user_as.pk, actor=None)
    tunnels.ap.install()
    tunnels.ap.start(SERVER)
    tunnels.u1.start(CLIENT)
    tunnels.ap.until_said("--client-config-dir authentication failed for common name '17-ffaa_1_1-")
    tunnels.u1.namespace.lab.stop(tunnels.u1.process) if tunnels.u1.process else None
    assert tunnels.u1.address() == ""
    tunnels.connect(tunnels.u2, "10.10.5.3/24")


def test_after_new_keys_the_former_ones_open_nothing(tunnels: Tunnels, ap: AttachmentPoint) -> None:
    tunnels.connect(tunnels.u1, "10.10.5.2/24")
    tunnels.u1.stop()
    vpn_keys_renew(vpn_id=ap.host.vpn.pk, actor=None)
    tunnels.ap.install()
    tunnels.ap.start(SERVER)
    tunnels.u1.start(CLIENT)
    tunnels.u1.until_said("VERIFY ERROR")
    assert tunnels.u1.address() == ""
    tunnels.u1.install()
    tunnels.connect(tunnels.u1, "10.10.5.2/24")
