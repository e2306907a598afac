"""Both programs under what their units take away: they do their whole work, and what they may not do they cannot."""

from __future__ import annotations

import gzip
import json
import os
import signal
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from contract.link_tests import UDP, LinkTest, run_key
from measuring.netns import REPOSITORY
from station.plan import ap_bytes, ap_kbit, total_s
from station.report import read_report
from station.tools import TOOLS
from station.user_end import UserOrder, run_user_end
from tests.agent_bundles import SECRET, bundle_bytes
from tests.agent_service import Service, like_the_service, stored
from tests.kernel.conftest import Host, entry
from tests.kernel.sandbox import GROUP, USERS, directives, expanded, words
from tests.kernel.test_agent_cli import AGENT, LIMITER, Operator, running, service, until

__all__ = ["service"]  # the fixture

UNITS = REPOSITORY / "packaging" / "systemd"
AGENT_UNIT, LIMITER_UNIT = UNITS / "scionlab-bw-agent.service", UNITS / "scionlab-bw-limiter.service"
AGENT_USER, LIMITER_USER = USERS["scionlab-bw"], USERS["scionlab-bw-limiter"]
NET_ADMIN, BPF = 1 << 12, 1 << 39

pytestmark = [pytest.mark.kernel]


@pytest.fixture
def confined(host: Host) -> Iterator[Operator]:
    """An attachment point whose programs have the folders that systemd makes, and nothing else to write to."""
    with tempfile.TemporaryDirectory(prefix="slt-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for part, mode, user in (
            ("state", 0o750, AGENT_USER),
            ("run", 0o755, AGENT_USER),
            ("lstate", 0o700, LIMITER_USER),
            ("lrun", 0o755, LIMITER_USER),
        ):
            (folder / part).mkdir(mode)
            (folder / part).chmod(mode)
            os.chown(folder / part, user, GROUP)
        operator = Operator(host, folder)
        operator.maps = Path("/sys/fs/bpf/scionlab-bw")
        yield operator


def sandbox(operator: Operator, unit: Path) -> list[str]:
    """What starts a program as this unit would."""
    parts = ("lstate", "lrun") if unit == LIMITER_UNIT else ("state", "run")
    folders = [str(operator.folder / part) for part in parts]
    return [sys.executable, "-m", "tests.kernel.sandbox", str(unit), *folders, "--"]


def use_with_a_secret(operator: Operator, service: Service) -> None:
    """A configuration with the host's secret, which both users may read, as members of the agent's group."""
    operator.use(service)
    with operator.config.open("a") as config:
        config.write(f'metrics_listen = "127.0.0.1:9106"\nmetrics_file = "{operator.folder}/run/metrics.prom"\n')
    os.chown(operator.config, 0, GROUP)
    operator.config.chmod(0o640)


def rights(pid: int) -> tuple[int, set[int], bool]:
    """User, every set of capabilities but the inheritable one, and whether it has a filter and can gain nothing."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    capabilities = {int(found[kind], 16) for kind in ("CapPrm", "CapEff", "CapBnd", "CapAmb")}
    return int(found["Uid"].split()[1]), capabilities, (found["NoNewPrivs"], found["Seccomp"]) == ("1", "2")


def test_both_programs_do_their_whole_work_under_their_units(confined: Operator, service: Service) -> None:
    use_with_a_secret(confined, service)
    with (
        running(confined, LIMITER, *sandbox(confined, LIMITER_UNIT)) as limiter,
        running(confined, AGENT, *sandbox(confined, AGENT_UNIT)) as agent,
    ):
        until(lambda: confined.rates(1) == (500, 500), "the first limit", 60)
        changed = bundle_bytes({"1": entry("192.0.2.11", 900)}, limits_version=8)
        service.answers["/config"] = like_the_service(changed, "1.18", "8")
        until(lambda: confined.rates(1) == (900, 900), "the changed limit")
        until(lambda: service.receipts()[-1]["limits_version"] == 8, "its receipt")
        confined.host.ap.ip("link", "del", "slbw0")
        until(lambda: confined.rates(1) == (900, 900), "the repaired IFB")
        until(lambda: b"scionlab_bw_link_bytes_total{" in scraped(confined), "metrics of what was counted")
        until(lambda: "OF LIMIT" in confined.agent("usage").stdout, "samples")
        assert rights(limiter.pid) == (LIMITER_USER, {NET_ADMIN | BPF}, True)
        assert rights(agent.pid) == (AGENT_USER, {0}, True)
        for process in (limiter, agent):
            process.send_signal(signal.SIGHUP)
        until(lambda: confined.agent("status").returncode == 0, "the status that all is well")
        for process in (agent, limiter):
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) == 0
    for part in ("run", "lrun"):  # for `status` and `show`, whatever the unit's umask; a lock is its owner's
        for path in (confined.folder / part).iterdir():
            assert path.stat().st_mode & 0o777 == (0o600 if path.suffix == ".lock" else 0o644), path
    shared = {"document.json"}
    for part in ("state", "lstate"):
        private = [path for path in (confined.folder / part).rglob("*") if path.stat().st_mode & 0o077]
        assert {path.name for path in private} - shared == set()


def test_quick_test_runs_under_the_unit_and_gets_what_the_limit_says(confined: Operator, service: Service) -> None:
    """Both real ends: a process without rights, its port, what passed in each direction, and its report."""
    use_with_a_secret(confined, service)
    confined.config.write_text(confined.config.read_text() + "link_tests = true\n")
    service.answers["/test_results"] = stored()
    phases = TOOLS["quick"].phases(TOOLS["quick"].read({}), 500, 500)
    begins_at = (datetime.now(UTC) + timedelta(seconds=12)).replace(microsecond=0)
    ends_at = begins_at + timedelta(seconds=total_s(phases))
    test = LinkTest(begins_at, ends_at, "0f" * 16, UDP, 30_300, ap_kbit(phases), ap_bytes(phases))
    links = {"1": {**entry("192.0.2.11", 500), "Tests": [test.statement()]}}
    service.answers["/config"] = like_the_service(bundle_bytes(links), "1.18", "7")
    begins_ms, ends_ms = (round(one.timestamp() * 1000) for one in (begins_at, ends_at))
    key = run_key(SECRET, test.test_id)
    order = UserOrder(test.test_id, key, "192.0.2.1", 30_300, begins_ms, ends_ms, phases, bind="192.0.2.11")
    with (
        running(confined, LIMITER, *sandbox(confined, LIMITER_UNIT)),
        running(confined, AGENT, *sandbox(confined, AGENT_UNIT)) as agent,
    ):
        until(lambda: ":30300 " in confined.host.ap.run("ss", "-Huln"), "the port", 60)
        [child] = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
        assert rights(int(child)) == (AGENT_USER, {0}, True)
        user = confined.host.u1.call(lambda: run_user_end(order, print))
        until(lambda: bool(service.asked("/test_results")), "the result", 30)
        until(lambda: b'"report"' in gzip.decompress(service.asked("/test_results")[-1].body), "the report", 30)
    result = json.loads(gzip.decompress(service.asked("/test_results")[-1].body))
    ap = read_report(result["report"])
    assert (result["is_final"], ap.outcome, read_report(user).outcome) == (True, "completed", "completed")
    for receiver, phase in ((read_report(user), phases[0]), (ap, phases[1])):
        got = receiver.phases[phase.number]
        frames = got.received_packets * (phase.payload_bytes + 42) * 8 / phase.duration_ms
        assert frames == pytest.approx(500, rel=0.12), "the limit, and a queue's room over five seconds"
        assert got.lost_packets > 0


def scraped(operator: Operator) -> bytes:
    def inside() -> bytes:
        with urllib.request.urlopen("http://127.0.0.1:9106/metrics", timeout=20) as answer:
            found: bytes = answer.read()
            return found

    return operator.host.inside(inside)


# What is tried inside, and the error that it must meet.
BOTH = {
    "os.open('/etc/scionlab-test', os.O_CREAT | os.O_WRONLY)": "EROFS",
    "open('/etc/shadow').read()": "EACCES",
    "os.setuid(0)": "EPERM",
    "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)": "EAFNOSUPPORT",
    "mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)": "EPERM",
    "os.chown('/tmp', 0, 0)": "EPERM",
    "os.sched_setaffinity(0, {0})": "EPERM",
    "os.nice(1)": "EPERM",
    "open('/proc/sys/kernel/hostname').read()": "ENOENT",
    "os.stat('/proc/1')": "ENOENT",
}
ONE = {
    AGENT_UNIT: {
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)": "EAFNOSUPPORT",
        "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)": "EPERM",
        "os.open('FOLDER/lrun/state.json', os.O_CREAT | os.O_WRONLY)": "EROFS",
        "os.listdir('FOLDER/lstate')": "EACCES",
    },
    LIMITER_UNIT: {
        "socket.socket(socket.AF_INET, socket.SOCK_STREAM)": "EAFNOSUPPORT",
        "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)": "EAFNOSUPPORT",
        "os.open('FOLDER/state/document.json', os.O_CREAT | os.O_WRONLY)": "EROFS",
        "open('FOLDER/state/trust.json').read()": "EACCES",
        "os.mkdir('/sys/fs/bpf/other')": "EROFS",
    },
}


@pytest.mark.parametrize("unit", [AGENT_UNIT, LIMITER_UNIT])
def test_what_the_unit_takes_away_is_gone(confined: Operator, unit: Path) -> None:
    trust = confined.folder / "state" / "trust.json"
    trust.write_text("{}")
    trust.chmod(0o600)
    os.chown(trust, AGENT_USER, GROUP)
    wanted = {tried.replace("FOLDER", str(confined.folder)): error for tried, error in (BOTH | ONE[unit]).items()}
    program = f"""
import errno, json, mmap, os, socket
met = {{}}
for tried in {list(wanted)!r}:
    try:
        eval(tried)
        met[tried] = "nothing"
    except OSError as exc:
        met[tried] = errno.errorcode[exc.errno]
print(json.dumps(met))
"""
    done = confined.run(*sandbox(confined, unit), sys.executable, "-c", program)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == wanted


def test_a_folder_of_maps_cannot_be_reached_without_what_the_unit_binds(confined: Operator) -> None:
    """systemd mounts /sys/fs/bpf with mode 0700; that is why the unit has TemporaryFileSystem= and BindPaths=."""
    program = "import os; os.mkdir('/sys/fs/bpf/scionlab-bw/x'); print('made')"
    done = confined.run(*sandbox(confined, LIMITER_UNIT), sys.executable, "-c", program)
    assert (done.stdout, done.stderr) == ("made\n", "")
    bare = confined.folder / "bare.service"
    bare.write_text("".join(line for line in LIMITER_UNIT.read_text().splitlines(True) if "/sys/fs/bpf" not in line))
    bare.chmod(0o644)
    done = confined.run(
        "unshare", "--mount", "sh", "-c", 'mount -t bpf -o mode=0700 bpf /sys/fs/bpf && exec "$@"', "sh",
        *sandbox(confined, LIMITER_UNIT)[:3], bare, confined.folder / "lstate", confined.folder / "lrun", "--",
        sys.executable, "-c", program,
    )  # fmt: skip
    assert "Permission denied: '/sys/fs/bpf/scionlab-bw/x'" in done.stderr


@pytest.mark.parametrize(("unit", "may_load"), [(AGENT_UNIT, False), (LIMITER_UNIT, True)])
def test_the_list_of_the_unit_holds_what_it_must_not_miss(unit: Path, may_load: bool) -> None:
    calls = expanded(words(directives(unit), "SystemCallFilter"))
    assert {"openat", "fsync", "renameat2", "sendmsg", "clone3", "fcntl", "inotify_add_watch"} <= calls
    assert not calls & {"setuid", "chown", "mount", "ptrace", "init_module", "keyctl", "sched_setaffinity"}
    assert ("bpf" in calls) == may_load
