"""All files of a host, those made elsewhere too: names, units, modes; what both clients make of them."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ap_agent.agent.archive import Limits
from ap_agent.agent.bundle import read_bundle
from config_tar import full_paths, snapshot
from contract.scion_files import as_mtu_bytes, link_mtu_bytes
from scionlab.delivery.download import build_user_download
from tests.cases import table
from tests.contract.config_samples import (
    ADDED_FILES,
    AP_HOST,
    CORE_HOST,
    FULL_AP_HOST,
    HOSTS,
    SITE_URL,
    TRUST_FILES,
    USER_HOST,
    SampleHost,
    members_of,
    tar_of,
)
from tests.contract.stock_client import OTHER_FILES, Ended, StockHost, complaints
from tests.support.polling import config_members

SAMPLE = Path(__file__).with_name("samples") / "schema1-ap-complete.tar.gz"


def units_of(host: SampleHost, **options: Any) -> list[str]:
    units: list[str] = json.loads(members_of(host, **options)["scionlab-config.json"])["systemd_units"]
    return units


def full(host: SampleHost, **options: Any) -> bytes:
    """With everything that is handed in."""
    return tar_of(host, added_files=ADDED_FILES, **options)


# --- exactly these files ----------------------------------------------------------------------------------------------


def test_upstream_s_packages_look_for_other_files_and_have_other_units() -> None:
    """As dist/systemd of SCION names them; SCIONLab's are in the test above."""
    host = replace(AP_HOST, scion_packages="upstream")
    ours, theirs = members_of(AP_HOST), members_of(host)
    assert sorted(theirs.keys() - ours.keys()) == ["etc/scion/daemon.toml", "etc/scion/dispatcher.toml"]
    assert sorted(ours.keys() - theirs.keys()) == ["etc/scion/disp.toml", "etc/scion/sd.toml"]
    assert theirs["etc/scion/daemon.toml"] == ours["etc/scion/sd.toml"]
    assert units_of(host) == [
        "openvpn@server.service",
        "scion-control@cs-1.service",
        "scion-daemon.service",
        "scion-dispatcher.service",
        "scion-router@br-1.service",
        "scion-router@br-2.service",
    ]


def test_a_second_host_has_its_own_routers_and_no_control_service() -> None:
    first = replace(AP_HOST, link_ends=AP_HOST.link_ends[:3], internal_ip="10.0.0.1")
    second = replace(
        AP_HOST, uid="2" * 32, link_ends=AP_HOST.link_ends[3:], internal_ip="10.0.0.2", attachment_point=None
    )
    members = members_of(second, as_hosts=[first, second])
    topology = json.loads(members["etc/scion/topology.json"])
    assert {name: one["internal_addr"] for name, one in topology["border_routers"].items()} == {
        "br-1": "10.0.0.1:30001",
        "br-2": "10.0.0.2:30002",
    }
    assert topology["control_service"] == {"cs-1": {"addr": "10.0.0.1:30254"}}
    assert topology == json.loads(members_of(first, as_hosts=[first, second])["etc/scion/topology.json"])
    assert sorted(members) == [
        "etc/scion/br-2.toml",
        "etc/scion/disp.toml",
        "etc/scion/sd.toml",
        "etc/scion/topology.json",
        "scionlab-config.json",
    ]
    assert members["etc/scion/disp.toml"].decode() == (
        '[dispatcher]\nid = "dispatcher"\n[log.console]\nlevel = "info"\n'
    )
    assert units_of(second, as_hosts=[first, second]) == [
        "scion-border-router@br-2.service",
        "scion-daemon.service",
        "scion-dispatcher.service",
    ]


def test_only_a_host_with_the_key_of_the_ca_renews_chains() -> None:
    key = {"etc/scion/crypto/ca/cp-ca.key": b"a private key"}
    without, with_key = (members_of(CORE_HOST, added_files=files) for files in ({}, key))
    assert b"[ca]" not in without["etc/scion/cs-1.toml"]
    assert with_key["etc/scion/cs-1.toml"].endswith(b'\n[ca]\nmode = "in-process"\n')


def test_no_port_of_metrics_is_given_twice_on_one_host() -> None:
    ends = tuple(replace(AP_HOST.link_ends[1], interface_id=n, border_router=n) for n in range(1, 254))
    members = members_of(replace(AP_HOST, link_ends=ends))
    ports = [port for text in members.values() for port in re.findall(rb'prometheus = "127\.0\.0\.1:(\d+)"', text)]
    assert len(ports) == len(set(ports)) == 254
    assert not {b"30254", b"30255"} & set(ports)  # control service and daemon


def test_limits_only_is_link_info_alone_here_too() -> None:
    host = replace(AP_HOST, limits_only=True)
    assert sorted(members_of(host, added_files=ADDED_FILES)) == [
        "etc/scion/link_info.json",
        "scionlab-config.json",
    ]


@table("host", [AP_HOST, replace(USER_HOST, scion_packages="upstream")])
def test_full_paths_are_the_files_that_a_full_tarball_has(host: SampleHost) -> None:
    members = members_of(host, added_files=ADDED_FILES)
    assert full_paths(snapshot(host), runs_control_service=True, further=ADDED_FILES) == {*members} - {
        "scionlab-config.json"
    }


def test_private_keys_are_for_one_user_and_the_rest_is_for_everybody() -> None:
    with tarfile.open(fileobj=io.BytesIO(full(AP_HOST)), mode="r:gz") as tar:
        secret = [one.name for one in tar.getmembers() if one.mode == 0o600]
        assert {one.mode for one in tar.getmembers()} == {0o600, 0o644}
    assert secret == [
        "etc/openvpn/server.conf",
        "etc/scion/crypto/as/cp-as.key",
        "etc/scion/keys/master0.key",
        "etc/scion/keys/master1.key",
        "scionlab-config.json",
    ]


# --- MTUs -------------------------------------------------------------------------------------------------------------


@table(("ip", "mtu"), [("192.0.2.7", 1472), ("10.10.1.2", 1472), ("2001:db8::7", 1452)])
def test_a_link_s_mtu_leaves_room_for_the_headers_of_its_underlay(ip: str, mtu: int) -> None:
    assert link_mtu_bytes(ip) == mtu
    assert mtu + 8 + (40 if ":" in ip else 20) == 1500


def test_the_as_s_mtu_is_that_of_its_inner_network_on_all_its_hosts() -> None:
    first, second = replace(AP_HOST, link_ends=()), replace(USER_HOST, internal_ip="2001:db8:1::2", link_ends=())
    assert as_mtu_bytes([snapshot(first)]) == 1472
    for host in (first, second):
        topology = json.loads(members_of(host, as_hosts=[first, second])["etc/scion/topology.json"])
        assert topology["mtu"] == 1452
    assert json.loads(members_of(CORE_HOST)["etc/scion/topology.json"])["mtu"] == 1452  # over IPv6 inside


# --- what the clients take --------------------------------------------------------------------------------------------


@table("name", HOSTS)
def test_stock_client_has_no_complaint(name: str) -> None:
    assert complaints(tar_of(HOSTS[name])) == complaints(full(HOSTS[name])) == []


def test_stock_client_installs_every_file_with_its_mode(tmp_path: Path) -> None:
    machine = StockHost(tmp_path)
    machine.install_tar(full(AP_HOST))
    members = members_of(AP_HOST, added_files=ADDED_FILES)
    assert machine.files == {name: one for name, one in members.items() if name != "scionlab-config.json"}
    modes = {name: oct((tmp_path / name).stat().st_mode & 0o777) for name in machine.files}
    assert modes["etc/scion/crypto/as/cp-as.key"] == "0o600"
    assert modes["etc/scion/topology.json"] == "0o644"
    assert "enable scion-dispatcher.service" in machine.unit_log


def test_stock_client_deletes_what_was_ours_and_nothing_else(tmp_path: Path) -> None:
    machine = StockHost(tmp_path)
    machine.install_tar(full(AP_HOST))
    (tmp_path / "etc/scion/beacon_policy.yaml").write_text("an operator's own")
    one_router = replace(AP_HOST, link_ends=AP_HOST.link_ends[:1], config_version=19)
    machine.install_tar(tar_of(one_router, added_files=TRUST_FILES))
    assert "etc/scion/br-2.toml" not in machine.files
    assert "etc/openvpn/server.conf" not in machine.files
    assert machine.files["etc/scion/beacon_policy.yaml"] == b"an operator's own"
    assert machine.files["etc/scion/keys/master0.key"] == TRUST_FILES["etc/scion/keys/master0.key"]


def test_stock_client_overwrites_nothing_that_an_operator_put_there_by_hand(tmp_path: Path) -> None:
    """It asks; where nobody answers it ends."""
    machine = StockHost(tmp_path)
    machine.install_tar(tar_of(AP_HOST))
    for name, content in OTHER_FILES.items():
        if name not in machine.files:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(content)
    before = machine.files
    with pytest.raises(Ended, match="was altered"):
        machine.install_tar(full(replace(AP_HOST, config_version=19)))
    assert machine.files == before


def test_agents_in_the_field_take_the_largest_tarball() -> None:
    """These limits are in every agent that was released. A core AS with 4094 links, ten TRCs of 100 kB each (as long as
    those of an ISD with a hundred voters), which no compressor makes smaller, and 253 clients of its VPN."""
    released = Limits(
        compressed_bytes=8 * 1024 * 1024,
        unpacked_bytes=32 * 1024 * 1024,
        members=1000,
        member_bytes=16 * 1024 * 1024,
        name_chars=200,
        ratio=200,
    )
    trust = {f"etc/scion/certs/ISD17-B1-S{n}.trc": noise(n, 100_000) for n in range(1, 11)}
    trust |= {f"etc/scion/crypto/voting/{kind}.key": noise(20, 300) for kind in ("sensitive", "regular")}
    vpn = {f"etc/openvpn/ccd/17-ffaa_1_{n:x}": b"ifconfig-push 10.10.1.2 255.255.255.0\n" for n in range(253)}
    core = replace(FULL_AP_HOST, AS=CORE_HOST.AS)
    tarball = tar_of(core, added_files=ADDED_FILES | trust | vpn)
    bundle = read_bundle(tarball, host_id=core.uid, limits=released)
    assert len(bundle.links) == 4094
    assert len(bundle.members) == 278
    assert len(tarball) < 2_000_000


def noise(seed: int, count: int) -> bytes:
    """Bytes that do not compress, the same ones each time."""
    blocks = (hashlib.sha256(f"{seed} {n}".encode()).digest() for n in range(count // 32 + 1))
    return b"".join(blocks)[:count]


def test_today_s_tarball_is_the_published_sample() -> None:
    """Fails when the contract changes: then raise `_FORMAT` in configuration.render and add a sample beside the old
    ones."""
    assert config_members(SAMPLE.read_bytes()) == config_members(full(AP_HOST))
    assert complaints(SAMPLE.read_bytes()) == []
    assert read_bundle(SAMPLE.read_bytes(), host_id=None).links.keys() == {1, 2, 10, 11}


# --- the download for people ------------------------------------------------------------------------------------------


def download_of(host: SampleHost, *, in_virtual_machine: bool = False, **files: Any) -> dict[str, bytes]:
    download = build_user_download(host, members_of(host, **files), in_virtual_machine=in_virtual_machine)
    return {name.split("/", 1)[1]: content for name, content in config_members(download).items()}


def readme_of(host: SampleHost, **options: Any) -> str:
    return download_of(host, **options)["README.md"].decode()


def test_readme_has_the_commands_and_the_links_of_this_host() -> None:
    readme, uid = readme_of(USER_HOST), USER_HOST.uid
    for line in (
        f"sudo scionlab-config --host-id={uid} --host-secret={USER_HOST.secret} --url={SITE_URL}\n",
        f"'{SITE_URL}/api/v4/host/{uid}/config?version=1.3'",
        "sudo systemctl enable --now scion-border-router@br-1.service scion-control-service@cs-1.service "
        "scion-daemon.service scion-dispatcher.service\n",
        "| 17-ffaa:0:1107 | 10.0.0.7:50000 | 192.0.2.7:50002 | no |",
    ):
        assert line in readme
    assert "OpenVPN" not in readme
    assert "a virtual machine" not in readme
    assert "Nothing: this AS has no active link." in readme_of(replace(USER_HOST, link_ends=()))


def test_readme_has_no_client_for_upstream_s_packages() -> None:
    readme = readme_of(replace(USER_HOST, scion_packages="upstream"), added_files=TRUST_FILES)
    assert "sudo scionlab-config" not in readme
    assert "journalctl -u 'scion-router@*'" in readme


def test_openvpn_is_started_before_the_router_that_binds_to_its_address() -> None:
    vpn = replace(USER_HOST.link_ends[0], is_vpn=True)
    readme = readme_of(replace(USER_HOST, link_ends=(vpn,)), added_files=TRUST_FILES)
    lines = [line for line in readme.splitlines() if line.startswith("sudo systemctl")]
    assert lines[0] == "sudo systemctl enable --now openvpn@client-scionlab-17-ffaa_0_1107.service"
    assert "scion-border-router@br-1.service" in lines[1]
    assert "install `openvpn` too" in readme
    assert "The OpenVPN unit needs the keys" in readme
    assert "install `openvpn` too" not in readme_of(USER_HOST)


def shell_of(readme: str, having: str) -> str:
    """The block of commands that has these words."""
    (found,) = (one for one in re.findall(r"```sh\n(.*?)```", readme, re.DOTALL) if having in one)
    assert isinstance(found, str)
    return found


def test_commands_by_hand_install_every_file_and_keep_what_was_there(tmp_path: Path) -> None:
    """As they stand in README.md, but for the root of the file system and the user scion, who is not here."""
    files = download_of(AP_HOST, added_files=ADDED_FILES)
    folder, root = tmp_path / "download", tmp_path / "root"
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (root / "etc/scion").mkdir(parents=True)
    (root / "etc/scion/sd.toml").write_text("an older one")
    commands = shell_of(files["README.md"].decode(), "find etc/scion")
    assert 'sudo install -D -C -o scion -g scion -m "$mode"' in commands
    assert "sudo chown scion:scion /etc/scion/certs" in commands
    commands = commands.replace('"/$file"', f'"{root}/$file"').replace("-o scion -g scion ", "")
    (tmp_path / "sudo").write_text('#!/bin/sh\ncase $1 in chown) exit 0 ;; esac\nexec "$@"\n')
    (tmp_path / "sudo").chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for _ in range(2):  # the second time nothing differs, and nothing is kept once more
        subprocess.run(["sh", "-euc", commands], cwd=folder, env=environment, check=True, timeout=60)
    installed = {str(one.relative_to(root)): one for one in root.rglob("*") if one.is_file()}
    assert installed.pop("etc/scion/sd.toml.~1~").read_text() == "an older one"
    assert {name: one.read_bytes() for name, one in installed.items()} == {
        name: content for name, content in files.items() if name.startswith("etc/")
    }
    secret = {name for name, one in installed.items() if one.stat().st_mode & 0o777 == 0o600}
    assert secret == {
        "etc/openvpn/server.conf",
        "etc/scion/crypto/as/cp-as.key",
        "etc/scion/keys/master0.key",
        "etc/scion/keys/master1.key",
    }


def test_a_virtual_machine_gets_a_vagrantfile_that_fetches_the_configuration() -> None:
    end = replace(USER_HOST.link_ends[0], public_port=50_004)
    host = replace(USER_HOST, link_ends=(end,))
    files = download_of(host, in_virtual_machine=True, added_files=TRUST_FILES)
    text = files["Vagrantfile"].decode()
    assert '  config.vm.network "forwarded_port", protocol: "udp", host: 50004, guest: 50000\n' in text
    assert f"    sudo scionlab-config --host-id={host.uid} --host-secret={host.secret} --url={SITE_URL}\n" in text
    assert "creates a virtual machine" in files["README.md"].decode()
    assert "Vagrantfile" not in download_of(host, added_files=TRUST_FILES)


def test_a_virtual_machine_with_upstream_s_packages_takes_its_files_from_the_folder() -> None:
    host = replace(USER_HOST, scion_packages="upstream")
    text = download_of(host, in_virtual_machine=True, added_files=TRUST_FILES)["Vagrantfile"].decode()
    assert "scionlab-config" not in text
    assert "    for file in $(find etc/scion -type f); do\n" in text
    assert "    sudo systemctl enable --now scion-control@cs-1.service" in text
