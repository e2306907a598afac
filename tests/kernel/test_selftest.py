"""`scionlab-bw-limiter selftest` for real: it finds wrong limits, touches nothing, leaves nothing, says what it lacks.

A loaded machine makes a row inconclusive, never wrong: no test here depends on speed.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ap_agent.document.handover import write_document
from measuring.iproute import RUN_NETNS, available, cleanup_stale
from measuring.netns import Lab, Namespace
from tests.agent_bundles import HOST_ID, PINNED, entry
from tests.kernel.conftest import is_alive
from tests.limiter_documents import handed

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "slbwsfhost"
COMMAND = [sys.executable, "-m", "ap_agent.commands.limiter_cli", "selftest"]
INNER = "ap_agent.selftest.inside"
PATIENCE_S = 60.0

pytestmark = pytest.mark.kernel


@pytest.fixture
def host() -> Iterator[Namespace]:
    """A host with an interface, in a namespace of its own: nobody but the test changes anything there."""
    missing = available()
    if missing is not None:
        pytest.skip(f"selftest: {missing}")
    cleanup_stale(PREFIX)
    with Lab(PREFIX) as lab:
        ap, user = lab.namespace("ap"), lab.namespace("user")
        lab.veth(ap.nic("eth0", "192.0.2.1/24"), user.nic("eth0", "192.0.2.11/24"))
        yield ap


def run(*argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*argv], cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_S + 60, **options
    )


# --- what it leaves alone ---------------------------------------------------------------------------------------------


def network_of(run_there: Any) -> dict[str, str]:
    """Everything of a host's network that a self-test could have changed; no counters."""
    commands = {
        "links": ("ip", "-details", "link"),
        "addresses": ("ip", "address"),
        "routes": ("ip", "route", "show", "table", "all"),
        "qdiscs": ("tc", "qdisc"),
        "filters": ("tc", "filter", "show", "dev", "eth0", "ingress"),
        "classes": ("tc", "class", "show", "dev", "slbw0"),
        "sysctls": ("sysctl", "-a", "--pattern", r"^net\.(core|ipv[46])\."),
    }
    # What the kernel counts of packets before our tree was there: multicast reports leave a new interface at any time.
    # And the seconds that are left of what DHCP and router advertisements gave this machine.
    passing = re.compile(r"direct_packets_stat \d+|\b(valid_lft|preferred_lft|expires) \d+sec")
    return {name: passing.sub("", run_there(*command)) for name, command in commands.items()}


def of_this_machine(*argv: str) -> str:
    return run(*argv).stdout if not {"eth0", "slbw0"} & {*argv} else ""


def wait_for(condition: Any, what: str, within_s: float = PATIENCE_S) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def test_two_at_once_beside_a_running_limiter_touch_nothing_and_find_no_fault(host: Namespace, tmp_path: Path) -> None:
    config = tmp_path / "agent.toml"
    config.write_text(
        f'url = "https://service.example"\nhost_id = "{HOST_ID}"\nhost_secret = "secret-of-this-host"\n{PINNED}'
        f'state_dir = "{tmp_path}/agent"\nlimiter_state_dir = "{tmp_path}/limiter"\n'
        f'limiter_run_dir = "{tmp_path}/run"\nmaps_dir = "{tmp_path}/maps"\n'
    )
    config.chmod(0o600)
    for name in ("agent", "maps"):
        (tmp_path / name).mkdir()
    write_document(tmp_path / "agent" / "document.json", handed({"1": entry(500)}))
    limiter = host.python("tests.run_limiter", str(config), stdout=subprocess.DEVNULL)
    shown = ("tc", "class", "show", "dev", "slbw0")
    wait_for(lambda: "rate 500Kbit" in host.run(*shown, check=False), "the limiter enforces nothing")
    there, here = network_of(host.run), network_of(of_this_machine)
    events = host.popen(["ip", "monitor", "link", "address", "route"])
    time.sleep(0.3)  # until it listens

    both = [host.popen([*COMMAND, "--json"], cwd=ROOT) for _ in range(2)]
    said = [(one.communicate(timeout=120), one.returncode) for one in both]

    host.lab.stop(events)
    assert events.stdout is not None
    assert events.stdout.read() == ""
    assert network_of(host.run) == there
    assert network_of(of_this_machine) == here
    assert limiter.poll() is None
    for (out, complaints), exit_code in said:
        document = json.loads(out)
        assert complaints == ""  # no progress where nobody watches
        assert document["result"] in {"pass", "inconclusive"}, out
        assert exit_code == (0 if document["result"] == "pass" else 1)
        assert {one["verdict"] for one in document["links"]} <= {"holds", "inconclusive"}
        caught = [one for one in document["links"] if one["is_control"] and one["verdict"] == "holds"]
        assert len(caught) == 4, out
        blocked = [one["verdict"] for one in document["links"] if one["measured"]["case"]["state"] == "blocked"]
        assert blocked == ["holds"] * 4
        assert {one["state"] for one in document["needs"]} == {"present"}


# --- what it finds ----------------------------------------------------------------------------------------------------


def test_a_wrong_limiter_fails(host: Namespace) -> None:
    """The engine is told other limits than those that are judged: 1 Mbit/s is 5 % too high, 10 Mbit/s 10 % too low, a
    blocked link is let through and a bystander blocked."""
    program = textwrap.dedent(
        """
        import json
        import sys
        from dataclasses import replace
        from ap_agent.selftest import inside
        from ap_agent.selftest.cases import BLOCKED, BYSTANDER, SLOW, Direction, Round
        from ap_agent.selftest.report import document
        from measuring.netns import Lab
        inside.isolate()
        told = inside.wanted
        wrong = {2: 1_050, 3: 9_000, BLOCKED.number: 500, BYSTANDER.number: 0}
        inside.wanted = lambda cases: told(
            [replace(one, enforced_kbit=wrong.get(one.number, one.enforced_kbit)) for one in cases]
        )
        rounds = (Round("short", (*SLOW, BLOCKED, BYSTANDER), tuple(Direction), 2.5),)
        with Lab(inside.PREFIX) as lab:
            report = inside.Course(lambda *_: None, rounds, longest_s=5).run(lab)
        print(json.dumps(document(report)))
        sys.exit(report.exit_code)
        """
    )
    apart = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]

    done = run(*apart, sys.executable, "-c", program)

    document = json.loads(done.stdout)
    verdicts: dict[int, set[str]] = {}
    for one in document["links"]:
        verdicts.setdefault(one["measured"]["case"]["number"], set()).add(one["verdict"])
    assert verdicts[2] == {"does not hold"}
    # A machine without time may be why too little arrives, and never why too much does.
    assert verdicts[3] <= {"does not hold", "inconclusive"}
    assert verdicts[1] <= {"holds", "inconclusive"}
    assert verdicts[18] == {"does not hold"}
    assert "holds" not in verdicts[21]
    assert verdicts[4] == verdicts[5] == {"holds"}  # the controls
    assert (document["result"], done.returncode) == ("fail", 1)


# --- how it ends ------------------------------------------------------------------------------------------------------


def descendants(pid: int) -> set[int]:
    found, parents = {pid}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def network_namespace(pid: int) -> str:
    """Which one it is in; a process that is gone is nowhere."""
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_however_it_ends(host: Namespace, number: signal.Signals) -> None:
    process = host.popen(COMMAND, cwd=ROOT)

    def is_measuring() -> bool:
        assert process.poll() is None, process.communicate()
        return sum("measuring.station" in command_line(one) for one in descendants(process.pid)) >= 2

    wait_for(is_measuring, "it does not begin to measure")
    started = descendants(process.pid)
    assert any(INNER in command_line(one) for one in started)
    assert network_namespace(process.pid) not in set(map(network_namespace, started))  # the host's is not in reach

    process.send_signal(number)
    out, complaints = process.communicate(timeout=PATIENCE_S)

    wait_for(lambda: not any(map(is_alive, started)), f"left: {[command_line(one) for one in started]}")
    expected = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}
    assert (process.returncode, out) == (expected[number], "")
    assert "Traceback" not in complaints
    assert [one.name for one in RUN_NETNS.iterdir() if one.name.startswith("slbwself")] == []
    assert host.run("ip", "-brief", "link").count("\n") == 2  # lo and eth0


# --- what is missing --------------------------------------------------------------------------------------------------


def test_a_person_without_rights_learns_what_is_missing_and_what_can_be_read(tmp_path: Path) -> None:
    as_nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *COMMAND]
    # The checkout may be below root's home, which Debian closes to everybody else.
    program = "import os, sys, pathlib\nfrom tests.kernel.sandbox import show_to_others\n"
    program += "show_to_others(pathlib.Path(sys.argv[1]))\nos.chdir(os.getcwd())\nos.execvp(sys.argv[2], sys.argv[2:])"
    done = run(sys.executable, "-c", program, str(tmp_path), *as_nobody)

    assert (done.returncode, done.stderr) == (3, "")
    assert "Run it as root: sudo scionlab-bw-limiter selftest" in done.stdout
    assert "nothing was measured" in done.stdout
    (htb,) = (line for line in done.stdout.splitlines() if line.startswith("htb "))
    assert "not tried" in htb
