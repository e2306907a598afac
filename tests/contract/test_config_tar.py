"""What `config_tar` packs: exact documents and names, the same bytes every time."""

from __future__ import annotations

import io
import json
import tarfile
import time
from dataclasses import replace
from typing import Any

import pytest

from bandwidth_config import RuleError
from config_tar import download_name, host_tar_name
from scionlab.delivery.download import build_user_download
from tests.cases import table
from tests.contract.config_samples import (
    AP_HOST,
    CORE_HOST,
    HOSTS,
    USER_AP_HOST,
    USER_HOST,
    SampleHost,
    members_of,
    tar_of,
)
from tests.support.polling import config_members


def document(tarball: bytes, name: str) -> Any:
    return json.loads(config_members(tarball)[name])


# --- the documents, written out -----------------------------------------------------------------------------


def test_topology_of_a_core_as_has_the_core_attributes_and_ipv6_in_brackets() -> None:
    topology = document(tar_of(CORE_HOST), "etc/scion/topology.json")
    assert topology["attributes"] == ["authoritative", "core", "issuing", "voting"]
    assert topology["control_service"] == {"cs-1": {"addr": "[2001:db8:1::1]:30254"}}
    assert topology["border_routers"]["br-1"]["internal_addr"] == "[2001:db8:1::1]:30001"
    interfaces = topology["border_routers"]["br-1"]["interfaces"]
    assert interfaces["1"]["link_to"] == "CORE"
    assert interfaces["1"]["mtu"] == 1400


def test_topology_behind_nat_binds_the_local_address() -> None:
    topology = document(tar_of(USER_HOST), "etc/scion/topology.json")
    assert topology["border_routers"]["br-1"]["interfaces"]["1"] == {
        "isd_as": "17-ffaa:0:1107",
        "link_to": "PARENT",
        "mtu": 1472,
        "underlay": {"local": "10.0.0.7:50000", "remote": "192.0.2.7:50002"},
    }


def test_router_without_active_links_is_left_out() -> None:
    one_router = replace(AP_HOST, link_ends=AP_HOST.link_ends[:3])
    assert list(document(tar_of(one_router), "etc/scion/topology.json")["border_routers"]) == ["br-1"]
    assert document(tar_of(replace(AP_HOST, link_ends=())), "etc/scion/topology.json")["border_routers"] == {}


def test_vpn_client_names_the_unit_of_its_attachment_point() -> None:
    end = replace(USER_HOST.link_ends[0], is_vpn=True, local_ip="10.10.1.2", remote_ip="10.10.1.1")
    units = document(tar_of(replace(USER_HOST, link_ends=(end,))), "scionlab-config.json")["systemd_units"]
    assert "openvpn@client-scionlab-17-ffaa_0_1107.service" in units
    assert "openvpn@server.service" not in units


def test_user_as_that_is_an_attachment_point_lists_its_own_uplink_unlimited() -> None:
    links = document(tar_of(USER_AP_HOST), "etc/scion/link_info.json")
    assert [(key, value["IsUserAS"]) for key, value in links.items()] == [("1", False), ("2", True)]


def test_two_hosts_with_one_router_number_are_refused_by_name() -> None:
    twin = replace(AP_HOST, uid="2" * 32)
    with pytest.raises(RuleError) as caught:
        tar_of(AP_HOST, as_hosts=[AP_HOST, twin])
    assert caught.value.code == "border_router_twice"


def test_host_without_as_has_no_configuration() -> None:
    with pytest.raises(RuleError) as caught:
        tar_of(replace(AP_HOST, AS=None))
    assert caught.value.code == "host_without_as"


# --- bytes --------------------------------------------------------------------------------------------------


@table("name", HOSTS)
def test_same_configuration_gives_the_same_bytes_at_any_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tar_of(HOSTS[name])
    monkeypatch.setattr(time, "time", lambda: 2_000_000_000.0)
    shuffled = replace(HOSTS[name], link_ends=tuple(reversed(HOSTS[name].link_ends)))
    assert tar_of(shuffled) == first


def test_higher_l_changes_the_manifest_alone() -> None:
    before, after = config_members(tar_of(AP_HOST)), config_members(tar_of(replace(AP_HOST, limits_version=8)))
    assert {name for name in before if before[name] != after[name]} == {"scionlab-config.json"}


def test_members_carry_nothing_of_this_machine_or_day() -> None:
    with tarfile.open(fileobj=io.BytesIO(tar_of(AP_HOST)), mode="r:gz") as tar:
        members = {one.name: one for one in tar.getmembers()}
    assert list(members) == sorted(members)
    assert {(one.mtime, one.uid, one.gid, one.uname, one.gname) for one in members.values()} == {
        (946_684_800, 0, 0, "", "")
    }
    assert {name: oct(one.mode) for name, one in members.items()} == {
        "etc/scion/br-1.toml": "0o644",
        "etc/scion/br-2.toml": "0o644",
        "etc/scion/cs-1.toml": "0o644",
        "etc/scion/disp.toml": "0o644",
        "etc/scion/link_info.json": "0o644",
        "etc/scion/sd.toml": "0o644",
        "etc/scion/topology.json": "0o644",
        "scionlab-config.json": "0o600",
    }
    assert tar_of(AP_HOST)[4:8] == b"\0\0\0\0"  # no time in the gzip header (RFC 1952)


# --- the download for people --------------------------------------------------------------------------------


def download_of(host: SampleHost, **options: Any) -> dict[str, bytes]:
    return config_members(build_user_download(host, members_of(host), **options))


def test_download_is_one_folder_with_a_readme_and_the_files_of_the_host() -> None:
    files = download_of(USER_HOST)
    folder = "scionlab_17-ffaa_1_b6"
    assert list(files) == [
        f"{folder}/README.md",
        f"{folder}/etc/scion/br-1.toml",
        f"{folder}/etc/scion/cs-1.toml",
        f"{folder}/etc/scion/disp.toml",
        f"{folder}/etc/scion/sd.toml",
        f"{folder}/etc/scion/topology.json",
        f"{folder}/scionlab-config.json",
    ]
    own = config_members(tar_of(USER_HOST))
    assert files[f"{folder}/etc/scion/topology.json"] == own["etc/scion/topology.json"]
    assert files[f"{folder}/scionlab-config.json"] == own["scionlab-config.json"]


def test_download_of_a_user_as_never_has_the_limits_of_its_attachment_point() -> None:
    assert not [name for name in download_of(USER_HOST) if "link_info" in name]
    assert not [one for one in download_of(USER_HOST).values() if b"IsUserAS" in one]


def test_file_names_have_underscores_for_colons() -> None:
    assert download_name(USER_HOST) == "scionlab_17-ffaa_1_b6.tar.gz"
    assert host_tar_name(USER_HOST) == "scionlab_17-ffaa_1_b6_v3.tar.gz"


def test_what_a_download_adds_shows_the_secret_to_its_owner_alone() -> None:
    content = build_user_download(USER_HOST, members_of(USER_HOST), in_virtual_machine=True)
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
        modes = {one.name.rpartition("/")[2]: one.mode for one in tar.getmembers()}
    secret = {"README.md", "Vagrantfile", "scionlab-config.json"}
    assert {name for name, mode in modes.items() if mode == 0o600} == secret
    assert set(modes.values()) == {0o600, 0o644}
