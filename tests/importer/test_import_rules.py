"""`manage.py import_scionlab`: what it refuses, what it leaves out, and what it says (`tests.upstream_dump.small`)."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from bandwidth_config import RuleError
from scionlab.importer import importer
from scionlab.importer.management.commands.import_scionlab import Command
from scionlab.limits.defaults import site_default_set
from scionlab.testbed.models import AS, Host, Link, UserAS
from tests.cases import table
from tests.support.importing import counted, everything, run
from tests.upstream_dump import Dump, small

pytestmark = pytest.mark.django_db


# --- rules ------------------------------------------------------------------------------------------------------


def _set(model: str, pk: int, **fields: Any) -> Callable[[Dump], object]:
    return lambda dump: dump[model][pk].update(fields)


def _second_host(dump: Dump) -> None:
    """Of the attachment point's AS, where Link 6 ends."""
    dump["host"][3]["internal_ip"] = "10.0.0.7"
    router = dump.router(dump.host(3, public_ip="192.0.2.8", internal_ip="10.0.0.8"))
    dump["interface"][12] |= {"host": 10, "border_router": router}


def _client_outside(dump: Dump) -> None:
    dump["vpnclient"][1]["ip"] = dump["interface"][10]["public_ip"] = "10.10.2.2"


def _second_of_user_as(dump: Dump) -> None:
    dump.host(6, internal_ip="10.0.0.9")
    dump["host"][6]["internal_ip"] = "10.0.0.8"


RULES: dict[str, tuple[Callable[[Dump], object], str]] = {
    "email address": (_set("user", 1, email="anna"), "user 1 (anna): This is not an email address."),
    "email address twice": (
        _set("user", 2, email="ANNA@example.org"),
        "user 2 (ANNA@example.org): Its email address is taken by user 1 (anna@example.org).",
    ),
    "ISD": (_set("isd", 3, isd_id=70_000), "isd 3 (ISD 70000): ISD 70000 is outside 1 to 65535."),
    "label": (
        _set("as", 1, label="x" * 101),
        "as 1 (17-ffaa:0:1101): Its label has 101 characters, of 100 allowed. Shorten it there.",
    ),
    "user AS range": (_set("as", 6, as_id="ffaa:0:9"), "ffaa:0:9 is not among the ids of user ASes"),
    "infrastructure range": (_set("as", 5, as_id="ffaa:1:77"), "ffaa:1:77 is in the range of user ASes"),
    "AS number twice": (_set("as", 7, as_id="FFAA:1:1"), "as 7 (17-ffaa:1:1): Its AS number is taken by as 6"),
    "owner": (_set("as", 6, owner=None), "as 6 (17-ffaa:1:1): It is a user AS without an owner."),
    "host id": (_set("host", 5, uid="a/b"), "host 5 (a/b): Its id is not 1 to 32 letters, digits, - and _."),
    "secret": (_set("host", 5, secret="hunter 2"), "Its secret is not 1 to 64 printable characters without spaces."),
    "public address": (
        lambda dump: (dump["host"][5].update(public_ip=None), dump["interface"][8].update(public_ip="192.0.2.4")),
        "A host of an infrastructure AS needs a public address.",
    ),
    "internal address": (_set("host", 5, internal_ip="224.0.0.1"), "224.0.0.1 is a multicast address"),
    "hosts of a user AS": (_second_of_user_as, "host 10 ("),
    "VPN": (_set("vpn", 1, subnet="10.10.1.0/31"), "vpn 1 (VPN 10.10.1.0/31): 10.10.1.0/31 has no room"),
    "VPN server": (_set("vpn", 1, server_vpn_ip="10.10.2.1"), "The server's address 10.10.2.1 is not in 10.10.1.0/24."),
    "VPN client": (_client_outside, "vpnclient 1 (10.10.2.2): It is not a client's address in 10.10.1.0/24"),
    "interface id": (
        _set("interface", 12, interface_id=4095),
        "link 6 (17-ffaa:0:1107#4095 - 17-ffaa:1:2#1): Interface 12 has the id 4095, outside 1 to 4094.",
    ),
    "interface id twice": (
        _set("interface", 12, interface_id=3),
        "link 6 (17-ffaa:0:1107#3 - 17-ffaa:1:2#1): The interface id 17-ffaa:0:1107#3 is taken by link 5",
    ),
    "port": (_set("interface", 11, public_port=80), "Port 80 is outside 1024 to 65535."),
    "address of the testbed": (
        _set("interface", 11, public_ip="192.0.2.4"),
        "192.0.2.4 is the address of a host of 17-ffaa:0:1102.",
    ),
    "own address": (_set("interface", 11, public_ip="192.0.2.7"), "192.0.2.7 is the attachment point's own address."),
    "address in a VPN": (_set("interface", 11, public_ip="10.10.1.9"), "10.10.1.9 is in the VPN of 17-ffaa:0:1107"),
    "bind address": (_set("interface", 11, bind_ip="127.0.0.1"), "127.0.0.1 is a loopback address"),
    "family": (_set("interface", 4, public_ip="2001:db8::7"), "192.0.2.1 and 2001:db8::7 are of different families."),
    "no address": (_set("interface", 11, public_ip=None), "Neither interface 11 nor its host has a public address."),
    "same port behind one address": (
        lambda dump: dump.attach(6, 7, "198.51.100.2"),
        "198.51.100.2 port 50000, as the attachment point sees it, is taken by link 6",
    ),
    "same port at two attachment points": (
        lambda dump: (dump["as"][4].update(isd=1), dump["as"][8].update(isd=1), _both_ipv4(dump)),
        "198.51.100.2 port 50000 is taken by link 6",
    ),
    "peer of a user AS": (_set("link", 7, type="PEER"), "It is a Link of a user AS and does not attach it"),
    "no attachment point": (
        lambda dump: dump["attachmentpoint"].pop(2),
        "19-ffaa:0:1303 is not an attachment point, so its limit would not be enforced.",
    ),
    "another ISD": (_set("as", 8, isd=1), "17-ffaa:1:b6 is in another isolation domain than 19-ffaa:0:1303."),
    "another host": (_second_host, "It ends at 17-ffaa:0:1107 on another host than the attachment point has"),
    "core": (_set("as", 2, is_core=False), "It is a core Link, and not both ASes are core ASes."),
    "router": (_set("interface", 12, border_router=5), "border router of interface 12 are not one's."),
}


def _both_ipv4(dump: Dump) -> None:
    dump["host"][4]["public_ip"] = "192.0.2.3"
    dump["interface"][5]["public_ip"] = "192.0.2.22"
    dump["interface"][13] |= {"public_ip": "198.51.100.2", "public_port": 50_000}


@table("name", RULES)
def test_one_entry_that_breaks_a_rule_is_told_and_nothing_is_imported_unless_it_is_to_be_left_out(name: str) -> None:
    spoil, said = RULES[name]
    dump = small()
    spoil(dump)
    before = everything()
    report = run(dump)
    assert said in str(report.problems[0])
    assert len(report.problems) == 1
    assert everything() == before
    run(dump, skip_invalid=True)
    assert AS.objects.count() > 0
    repeated = run(dump, skip_invalid=True)
    assert (repeated.made, repeated.changes) == (0, 0)


def test_all_problems_are_told_at_once() -> None:
    dump = small()
    dump["interface"][11]["public_port"] = 80
    dump["user"][2]["email"] = "ben"
    dump["host"][5]["uid"] = "a/b"
    assert [(one.kind, one.pk) for one in run(dump).problems] == [("user", 2), ("host", 5), ("link", 6)]


def test_what_depends_on_something_that_is_left_out_is_left_out_and_named() -> None:
    dump = small()
    dump["user"][1]["email"] = "anna"
    report = run(dump, skip_invalid=True)
    assert report.dependents == [
        "as 6 (17-ffaa:1:1) needs user 1",
        "as 7 (17-ffaa:1:2) needs user 1",
        f"host 6 ({6:032x}) needs as 6",
        f"host 7 ({7:032x}) needs as 7",
        "borderrouter 7 (br-1) needs host 6",
        "borderrouter 8 (br-1) needs host 7",
        "vpnclient 1 (10.10.1.2) needs host 6",
        "link 5 (17-ffaa:0:1107#3 - 17-ffaa:1:1#1) needs as 6",
        "link 6 (17-ffaa:0:1107#4 - 17-ffaa:1:2#1) needs as 7",
    ]
    assert counted(report)["link"] == (5, 0, 0)
    assert [one.isd_as for one in UserAS.objects.all()] == ["19-ffaa:1:b6"]


def test_hosts_that_share_an_as_are_to_reach_each_other() -> None:
    dump = small()
    dump.host(3, public_ip="192.0.2.8", internal_ip="10.0.0.8")
    (problem,) = run(dump).problems
    assert str(problem).startswith(f"host 3 ({3:032x}): 127.0.0.1 is a loopback address")


def test_more_than_an_attachment_point_allows_is_told_once_for_each(settings: Settings) -> None:
    site_default_set(default_bandwidth_kbit=400, actor=None)
    report = run(small())
    assert [str(one).replace("\N{NO-BREAK SPACE}", " ") for one in report.problems] == [
        "attachmentpoint 1 (17-ffaa:0:1107): Bandwidth 500 kbit/s is above this link's maximum of 400 "
        "kbit/s. Choose at most 400, or ask the administrators to raise it. 2 new Links are left out.",
        "attachmentpoint 2 (19-ffaa:0:1303): Bandwidth 500 kbit/s is above this link's maximum of 400 "
        "kbit/s. Choose at most 400, or ask the administrators to raise it. 1 new Links are left out.",
    ]
    assert counted(run(small(), skip_invalid=True))["link"] == (4, 0, 0)
    assert counted(run(small(), kbit=400))["link"] == (3, 0, 4)


def test_links_that_are_here_are_no_reason_to_refuse_a_number() -> None:
    run(small())
    site_default_set(default_bandwidth_kbit=400, actor=None)
    assert run(small()).problems == []


def test_0_blocks_links_when_it_was_given() -> None:
    run(small(), kbit=0)
    assert set(Link.objects.filter(interface_b__AS__useras__isnull=False).values_list("bandwidth_kbit")) == {(0,)}


def test_what_the_database_refuses_is_named_without_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importer, "problems_of", lambda _: [])
    dump = small()
    dump["host"][5]["uid"] = dump["host"][4]["uid"]
    with pytest.raises(RuleError) as caught:
        run(dump)
    assert caught.value.code == "import_refused"
    assert "uid" in caught.value.message
    assert "secret" not in caught.value.message
    # What the database said has the whole row.
    assert (caught.value.__cause__, caught.value.__suppress_context__) == (None, True)
    assert not Host.objects.exists()


# --- the command ------------------------------------------------------------------------------------------------


def command(path: Path, *arguments: str) -> tuple[str, str]:
    """What it writes to stdout and stderr."""
    out, err = StringIO(), StringIO()
    call_command("import_scionlab", str(path), *arguments, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "scionlab.json"
    path.write_bytes(small().content())
    return path


def test_the_command_reports_on_stdout_and_says_on_stderr_how_far_it_is(file: Path) -> None:
    out, err = command(file, "--kbit", "500")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "in the file made changed same skipped"
    assert "ISDs 3 2 0 0 1" in lines
    assert "Links 7 7 0 0 0" in lines
    assert "interfaces 15 14 0 0 1" in lines
    assert lines[-1] == "57 made, 0 changed."
    assert "import_scionlab: checking the rules" in err
    assert "secret-" not in out + err
    assert command(file, "--kbit", "500")[0].splitlines()[-1] == "0 made, 0 changed."


def test_the_command_with_a_dry_run_stores_nothing(file: Path) -> None:
    out, _ = command(file, "--kbit", "500", "--dry-run")
    assert out.startswith("Dry run: nothing was changed. Result of a real run:\n")
    assert out.endswith("\n57 would be made, 0 would be changed.\n")
    assert not AS.objects.exists()


def test_the_command_ends_with_1_where_nothing_was_imported_because_of_errors(tmp_path: Path) -> None:
    dump = small()
    dump["interface"][11]["public_port"] = 80
    path = tmp_path / "spoilt.json"
    path.write_bytes(dump.content())
    with pytest.raises(CommandError, match="Nothing was imported: 1 entries are invalid") as caught:
        command(path, "--kbit", "500")
    assert caught.value.returncode == 1
    path.write_bytes(b"[")
    with pytest.raises(CommandError, match=r"Nothing was imported\. The file is not JSON") as caught:
        command(path, "--kbit", "500")
    assert caught.value.returncode == 1


def test_the_command_ends_with_2_without_a_number_or_with_none_and_without_a_file(file: Path, capsys: Any) -> None:
    for kbit, said in (("1.5", "is not a whole number"), ("-1", "is below 0"), ("100000001", "is above the greatest")):
        with pytest.raises(CommandError, match=said) as caught:
            command(file, f"--kbit={kbit}")
        assert caught.value.returncode == 2
    with pytest.raises(SystemExit) as ended:
        Command().run_from_argv(["manage.py", "import_scionlab", str(file)])
    assert ended.value.code == 2
    assert "--kbit" in capsys.readouterr().err
    with pytest.raises(CommandError, match="cannot be read: No such file") as caught:
        command(file.with_name("none.json"), "--kbit", "500")
    assert caught.value.returncode == 2
