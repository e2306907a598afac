"""`scionlab-bw-agent routes` on a real kernel: an attachment point with three uplinks, judged by bytes.

     ┌─ eth0  192.0.2.0/24     2001:db8:1::/64 ─┐
ap ──┼─ eth1  198.51.100.0/24  2001:db8:2::/64 ─┼── core ── user  10.99.0.11, 2001:db8:99::11
     └─ eth2  203.0.113.0/24   2001:db8:3::/64 ─┘              (the default route of ap: eth0)
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from measuring.netns import REPOSITORY
from tests import agent_service as svc
from tests.agent_bundles import bundle_bytes, entry
from tests.agent_service import like_the_service
from tests.kernel.conftest import PREFIX
from tests.kernel.engine_bed import Host
from tests.kernel.test_agent_cli import AGENT, ENVIRONMENT, Operator
from tests.support.namespaces import a_lab
from tests.support.waiting import until

DEVICES = ("eth0", "eth1", "eth2")
NETS4 = ("192.0.2.", "198.51.100.", "203.0.113.")
NETS6 = ("2001:db8:1::", "2001:db8:2::", "2001:db8:3::")
OURS = {4: [f"{net}1" for net in NETS4], 6: [f"{net}1" for net in NETS6]}
BYTES = 1_000_000
WITHIN = "5"  # the shortest time for a confirmation


def uplinks(gateway: str = "254") -> str:
    """`gateway`: the last number of that of eth1; any but 254 is nobody's."""
    texts = []
    for number, device in enumerate(DEVICES):
        last = gateway if number == 1 else "254"
        texts.append(
            f'[[uplink]]\nname = "net{number}"\ndev = "{device}"\ntable = {1000 + number}\n'
            f'addresses = ["{NETS4[number]}1", "{NETS6[number]}1"]\n'
            f'gateway4 = "{NETS4[number]}{last}"\ngateway6 = "{NETS6[number]}{last}"\n'
        )
    return "\n".join(texts)


class Rig(Operator):
    """Whoever operates that attachment point."""

    def configure(self, text: str = "") -> None:
        self.file = self.folder / "uplinks.toml"
        super().configure(f'uplinks_file = "{self.file}"\nroutes_dir = "{self.folder}/routes"\n{text}')

    def write(self, text: str) -> None:
        self.file.write_text(text)

    def routes(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.agent("routes", *arguments)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return self.host.ap.popen([*AGENT, "routes", *arguments, "--config", str(self.config)], env=ENVIRONMENT)

    def kernel(self) -> str:
        """Every rule and route as iproute2 prints them."""
        asked = (("rule",), ("-6", "rule"), ("route", "show", "table", "all"), ("-6", "route", "show", "table", "all"))
        return "\n".join(self.host.ap.ip("-j", *one) for one in asked)

    def bytes(self) -> dict[str, tuple[int, int]]:
        """(received, sent) at each uplink."""
        found = {one["ifname"]: one["stats64"] for one in json.loads(self.host.ap.ip("-s", "-j", "link"))}
        return {name: (found[name]["rx"]["bytes"], found[name]["tx"]["bytes"]) for name in DEVICES}

    def guard_pid(self) -> int:
        text = next((self.folder / "routes").glob("routes-guard-*.pid")).read_text()
        return int(json.loads(text)["pid"]) if text else 0

    def trial(self, key: str = "state") -> str:
        return str(json.loads(next((self.folder / "routes").glob("trial-*.json")).read_text())[key])

    def exchange(self, address: str, count: int = BYTES, timeout_s: float = 20) -> None:
        """The user sends bytes to an address of the attachment point by TCP, and gets as many back."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = self.host.ap.call(lambda: socket.create_server((address, 50000), family=family))
        listener.settimeout(timeout_s)

        def answer() -> None:
            with closing(listener), listener.accept()[0] as end:
                end.settimeout(timeout_s)
                received = 0
                while received < count and (data := end.recv(65536)):
                    received += len(data)
                end.sendall(b"a" * count)

        thread = threading.Thread(target=lambda: ignoring_timeouts(answer))
        thread.start()
        try:
            with self.host.u2.call(lambda: socket.create_connection((address, 50000), timeout_s)) as end:
                end.sendall(b"q" * count)
                received = 0
                while received < count and (data := end.recv(65536)):
                    received += len(data)
                assert received == count
        finally:
            thread.join()

    def shares(self, dev: str, address: str) -> tuple[float, float]:
        """Which part of the bytes of an exchange with this address passed this interface, received and sent."""
        before = self.bytes()
        self.exchange(address)
        after = self.bytes()
        grown = {name: [one - other for one, other in zip(after[name], before[name], strict=True)] for name in DEVICES}
        received, sent = (grown[dev][way] / sum(one[way] for one in grown.values()) for way in (0, 1))
        return received, sent


def ignoring_timeouts(do: object) -> None:
    try:
        do()  # type: ignore[operator]
    except OSError:
        return


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with a_lab(PREFIX) as lab:
        ap, core, user = lab.namespace("ap"), lab.namespace("core", forwards=True), lab.namespace("user")
        for one in (ap, core):
            one.sysctl({"net.ipv4.conf.all.rp_filter": 0, "net.ipv4.conf.default.rp_filter": 0})
        for number, dev in enumerate(DEVICES):
            lab.veth(
                ap.nic(dev, f"{NETS4[number]}1/24", f"{NETS6[number]}1/64"),
                core.nic(dev, f"{NETS4[number]}254/24", f"{NETS6[number]}254/64"),
            )
        lab.veth(
            core.nic("eth9", "10.99.0.254/24", "2001:db8:99::254/64"),
            user.nic("eth0", "10.99.0.11/24", "2001:db8:99::11/64"),
        )
        for host, via4, via6 in ((ap, "192.0.2.254", "2001:db8:1::254"), (user, "10.99.0.254", "2001:db8:99::254")):
            host.ip_batch([f"route add default via {via4}", f"route add default via {via6}"])
        made = Rig(Host(lab, ap, core, user), tmp_path)
        made.write(uplinks())
        yield made


@pytest.mark.parametrize("version", [4, 6])
def test_n9_policy_routing_keeps_both_directions_on_the_uplink_of_the_address(rig: Rig, version: int) -> None:
    """And the same measure without rules fails, at every uplink but that of the default route."""
    addresses = dict(zip(DEVICES, OURS[version], strict=True))
    without = {dev: rig.shares(dev, address) for dev, address in addresses.items()}
    assert without["eth0"] > (0.999, 0.999)
    assert all(without[dev][0] > 0.999 and without[dev][1] < 0.01 for dev in ("eth1", "eth2")), without

    done = rig.routes("apply")
    assert done.returncode == 0, done.stderr
    for dev, address in addresses.items():
        received, sent = rig.shares(dev, address)
        assert received >= 0.999, (dev, received)
        assert sent >= 0.999, (dev, sent)


def test_verify_tells_right_from_wrong_and_from_nothing(rig: Rig) -> None:
    def verified() -> dict[str, tuple[str, str | None, bool]]:
        process = rig.start("verify", "--for", "3s", "--json")
        while process.poll() is None:
            for address in OURS[4][:2]:
                rig.exchange(address, 100_000)
                time.sleep(0.1)
        said, error = process.communicate(timeout=30)
        assert error == ""
        found = json.loads(said)["uplinks"]
        assert process.returncode == 1  # net2 has no traffic, so not all is right
        return {one["name"]: (one["answers"], one["left_by"], bool(one["detours"])) for one in found}

    assert verified() == {
        "net0": ("right", None, False),
        "net1": ("elsewhere", "eth0", True),
        "net2": ("no traffic", None, True),
    }
    assert rig.routes("apply").returncode == 0
    assert verified() == {
        "net0": ("right", None, False),
        "net1": ("right", None, False),
        "net2": ("no traffic", None, False),
    }


def test_apply_twice_writes_once_and_removal_leaves_what_was_there(rig: Rig) -> None:
    ap = rig.host.ap
    ap.ip("rule", "add", "from", "10.1.0.0/16", "lookup", "77", "priority", "9999", "protocol", "201")  # near, not ours
    ap.ip("rule", "add", "fwmark", "5", "lookup", "main", "priority", "10192")
    ap.ip("route", "add", "10.2.0.0/16", "via", "192.0.2.7", "table", "77", "proto", "201")
    ap.ip("-6", "route", "add", "2001:db8:77::/48", "via", "2001:db8:1::7", "table", "999", "proto", "201")
    before = rig.kernel()
    planned = rig.routes("plan")
    assert planned.returncode == 0, planned.stderr
    assert rig.kernel() == before
    assert rig.routes("apply").returncode == 0
    built = rig.kernel()
    assert json.loads(rig.routes("apply", "--json").stdout)["operations"] == []
    assert rig.kernel() == built
    assert rig.routes("remove").returncode == 0
    assert rig.kernel() == before


def test_what_others_have_in_our_place_is_a_named_refusal(rig: Rig) -> None:
    ap = rig.host.ap
    for command, undo, code in (
        ("rule add from 10.1.2.3 lookup main priority 10000", "rule del priority 10000", "priority_taken"),
        ("route add 10.2.0.0/16 dev eth0 table 1002", "route flush table 1002", "table_taken"),
        ("link set eth1 down", "link set eth1 up", "device_down"),
    ):
        ap.ip(*command.split())
        before = rig.kernel()
        for action in ("plan", "apply"):
            refused = rig.routes(action)
            assert (refused.returncode, refused.stdout) == (1, ""), (command, refused.stdout)
            assert f"{code} (" in refused.stderr, refused.stderr
            assert refused.stderr.endswith("Nothing was changed.\n")
        assert rig.kernel() == before
        ap.ip(*undo.split())


OUT_OF_MEMORY = """
import errno, sys
from pyroute2.netlink.exceptions import NetlinkError
from ap_agent.commands import agent_cli
from ap_agent.routes import kernel
do = kernel._do_rule
def refusing(socket, verb, rule):
    if verb == "add" and rule.priority == 10_004:
        raise NetlinkError(errno.ENOMEM)
    do(socket, verb, rule)
kernel._do_rule = refusing
sys.exit(agent_cli.main())
"""


@pytest.mark.parametrize("options", [(), ("--confirm-within", WITHIN)])
def test_what_the_kernel_refuses_half_way_is_undone(rig: Rig, options: tuple[str, ...]) -> None:
    before = rig.kernel()
    refused = rig.run(sys.executable, "-c", OUT_OF_MEMORY, "routes", "apply", *options, "--config", rig.config)
    words = "refused to add rule 10004: from 198.51.100.1 lookup main suppress_prefixlength 0: Cannot allocate memory"
    assert (refused.returncode, f"{words} (ENOMEM). It was undone." in refused.stderr) == (1, True), refused.stderr
    assert rig.kernel() == before
    assert not options or rig.trial() == "rolled_back"


# --- roll back --------------------------------------------------------------------------------------------------------


def begin(rig: Rig, *options: str, within: str = WITHIN) -> subprocess.Popen[str]:
    """A shell that runs `apply` with a gateway that is nobody's; returns when the change is made."""
    command = " ".join([*AGENT, "routes", "apply", "--confirm-within", within, *options, "--config", str(rig.config)])
    rig.write(uplinks("253"))
    shell = subprocess.Popen(
        rig.inside("sh", "-c", f"{command}; echo ended $?"),
        cwd=REPOSITORY,
        env=ENVIRONMENT,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: any((rig.folder / "routes").glob("trial-*.json")) and rig.trial() == "pending", "the change")
    return shell


@pytest.mark.parametrize(
    "how", ["waits", "SIGHUP", "SIGTERM", "SIGKILL", "guard SIGTERM", "guard SIGHUP", "guard SIGKILL"]
)
def test_without_a_confirmation_everything_is_as_before(rig: Rig, how: str) -> None:
    """Whoever is killed: the shell with all that it started, or the guard. The change cuts the user off meanwhile."""
    assert rig.routes("apply").returncode == 0
    rig.exchange("198.51.100.1", 1000)
    before = rig.kernel()
    shell = begin(rig)
    assert rig.kernel() != before
    with pytest.raises(OSError, match="timed out"):
        rig.exchange("198.51.100.1", 1000, timeout_s=1)
    if how.startswith("guard"):
        os.kill(rig.guard_pid(), signal.Signals[how.split()[1]])
        if how != "guard SIGKILL":  # then the waiting `apply` starts another one
            os.killpg(shell.pid, signal.SIGKILL)
    elif how != "waits":
        os.killpg(shell.pid, signal.Signals[how])
    until(lambda: rig.trial() == "rolled_back", "the roll-back", 40)
    assert rig.kernel() == before
    assert rig.trial("ended_by") == ("SIGTERM" if how == "guard SIGTERM" else "no confirmation within 5 s")
    rig.exchange("198.51.100.1", 1000)
    said, error = shell.communicate(timeout=30)
    if how == "waits":
        assert said.endswith("ended 1\n")
        assert "The change was rolled back at " in error
        assert "(no confirmation within 5 s)" in error
    assert rig.routes("confirm").returncode == 1
    rig.write(uplinks())
    assert rig.routes("show").returncode == 0


def test_a_confirmed_change_stays_and_is_what_counts_at_boot(rig: Rig) -> None:
    shell = begin(rig, "--by-hand", "--json", within="60")
    assert rig.routes("remove").returncode == 1  # one change at a time
    confirmed = rig.routes("confirm")
    assert (confirmed.returncode, confirmed.stdout.partition(" at ")[0]) == (0, "The change was confirmed")
    document, _, end = shell.communicate(timeout=30)[0].rpartition("ended ")
    found = json.loads(document)
    assert (end, found["state"], found["ended_by"]) == ("0\n", "confirmed", "the operator")
    assert len(found["operations"]) == 27 + 18
    built = rig.kernel()
    until(lambda: rig.guard_pid() == 0, "the end of the guard")
    assert rig.kernel() == built
    rig.write(uplinks("200"))  # not confirmed: a reboot must not set it
    rig.host.ap.ip("rule", "flush", "protocol", "201")
    assert rig.routes("apply", "--boot").returncode == 0
    assert sorted(rig.kernel()) == sorted(built)
    rig.host.ap.ip("link", "set", "eth1", "down")
    late = rig.routes("apply", "--boot")
    assert (late.returncode, late.stderr.partition(":")[0]) == (1, "device_down (uplink net1)")
    assert "10006:" in rig.host.ap.ip("rule")  # of net2
    assert rig.routes("remove").returncode == 0
    assert "does not exist" in rig.routes("apply", "--boot").stderr


def test_the_unit_of_the_boot_may_do_its_work_and_no_other(rig: Rig) -> None:
    unit = REPOSITORY / "packaging/systemd/scionlab-bw-routes.service"
    rig.routes("apply")
    built = rig.kernel()
    rig.host.ap.ip("rule", "flush", "protocol", "201")
    confined = (
        "import os, sys; from pathlib import Path; from tests.kernel.sandbox import directives, load_filters; "
        f"load_filters(directives(Path({str(unit)!r}))); os.execv(sys.argv[1], sys.argv[1:])"
    )
    rights = ("setpriv", "--no-new-privs", "--bounding-set=-all,+net_admin", "--inh-caps=-all", sys.executable, "-c")
    done = rig.run(*rights, confined, *AGENT, "routes", "apply", "--boot", "--config", rig.config)
    assert done.returncode == 0, done.stderr
    assert sorted(rig.kernel()) == sorted(built)
    asked = "import socket; socket.create_connection(('192.0.2.254', 80))"
    refused = rig.run(*rights, confined, sys.executable, "-c", asked)
    assert "Address family not supported" in refused.stderr


@pytest.mark.parametrize("answers", [True, False])
def test_a_service_that_is_reached_confirms(rig: Rig, answers: bool) -> None:
    manager = svc.service()
    service = rig.host.ap.call(manager.__enter__)
    rig.use(service)
    if answers:
        service.answers["/config"] = like_the_service(bundle_bytes({"1": entry(5, "192.0.2.11")}), "1.18", "7")
    else:
        service.answers["/config"] = svc.status(401)
    try:
        shell = begin(rig, within="60" if answers else WITHIN)
        said, error = shell.communicate(timeout=60)
        if answers:
            assert "(the Coordination Service was reached)" in said, error
        assert rig.trial() == ("confirmed" if answers else "rolled_back")
    finally:
        manager.__exit__(None, None, None)
