"""Both programs under what their units take away: they do their whole work, and what they may not do they cannot."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from contract.link_tests import UDP, LinkTest
from measuring.netns import REPOSITORY
from tests.agent_bundles import bundle_bytes, entry
from tests.agent_service import Service, like_the_service
from tests.kernel.engine_bed import Host
from tests.kernel.sandbox import GROUP, USERS
from tests.kernel.test_agent_cli import AGENT, LIMITER, Operator, running, service
from tests.support.waiting import until

__all__ = ["service"]  # the fixture

UNITS = REPOSITORY / "packaging" / "systemd"
AGENT_UNIT, LIMITER_UNIT = UNITS / "scionlab-bw-agent.service", UNITS / "scionlab-bw-limiter.service"
AGENT_USER, LIMITER_USER = USERS["scionlab-bw"], USERS["scionlab-bw-limiter"]
NET_ADMIN, BPF = 1 << 12, 1 << 39


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


def rights(pid: int) -> tuple[int, set[int], bool]:
    """User, every set of capabilities but the inheritable one, and whether it has a filter and can gain nothing."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    capabilities = {int(found[kind], 16) for kind in ("CapPrm", "CapEff", "CapBnd", "CapAmb")}
    return int(found["Uid"].split()[1]), capabilities, (found["NoNewPrivs"], found["Seccomp"]) == ("1", "2")


def test_both_programs_do_their_whole_work_under_their_units(confined: Operator, service: Service) -> None:
    confined.use(service)
    metrics = confined.folder / "run" / "metrics.prom"
    with confined.config.open("a") as config:
        config.write(f'metrics_listen = "127.0.0.1:9106"\nmetrics_file = "{metrics}"\nlink_tests = true\n')
    os.chown(confined.config, 0, GROUP)  # it has the secret; both users are members of the agent's group
    confined.config.chmod(0o640)
    with (
        running(confined, LIMITER, *sandbox(confined, LIMITER_UNIT)) as limiter,
        running(confined, AGENT, *sandbox(confined, AGENT_UNIT)) as agent,
    ):
        until(lambda: confined.rates(1) == (500, 500), "the first limit", 60)
        changed = bundle_bytes({"1": entry(900)}, limits_version=8)
        service.answers["/config"] = like_the_service(changed, "1.18", "8")
        until(lambda: confined.rates(1) == (900, 900), "the changed limit")
        until(lambda: service.receipts()[-1]["limits_version"] == 8, "its receipt")
        confined.host.ap.ip("link", "del", "slbw0")
        until(lambda: confined.rates(1) == (900, 900), "the repaired IFB")
        until(
            lambda: metrics.exists() and "scionlab_bw_link_bytes_total{" in metrics.read_text(),
            "metrics of what was counted",
        )
        assert ":9106 " in confined.host.ap.run("ss", "-Htln")
        until(lambda: "OF LIMIT" in confined.agent("usage").stdout, "samples")
        assert rights(limiter.pid) == (LIMITER_USER, {NET_ADMIN | BPF}, True)
        assert rights(agent.pid) == (AGENT_USER, {0}, True)
        begins_at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=5)
        test = LinkTest(begins_at, begins_at + timedelta(minutes=1), "0f" * 16, UDP, 30_300, 500, 10_000)
        changed = bundle_bytes({"1": {**entry(900), "Tests": [test.statement()]}}, limits_version=9)
        service.answers["/config"] = like_the_service(changed, "1.18", "9")  # not before the repair, which ends tests
        until(lambda: ":30300 " in confined.host.ap.run("ss", "-Huln"), "the port of a test that sends")
        [child] = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
        assert rights(int(child)) == (AGENT_USER, {0}, True)
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
