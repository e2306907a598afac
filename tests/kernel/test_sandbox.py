"""The agent under what its systemd unit takes away: it does its whole work, and what it may not it cannot."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import witness
from measuring.netns import REPOSITORY
from tests.agent_bundles import bundle_bytes
from tests.agent_service import Service, like_the_service
from tests.kernel.conftest import Host, entry
from tests.kernel.packets import Datagram
from tests.kernel.sandbox import NOBODY, directives, expanded, words
from tests.kernel.test_agent_cli import Operator, agent_running, service, until

__all__ = ["service"]  # the fixture

UNITS = REPOSITORY / "packaging" / "systemd"
AGENT = UNITS / "scionlab-bw-agent.service"

pytestmark = [pytest.mark.kernel]


@pytest.fixture
def confined(host: Host) -> Iterator[Operator]:
    """An attachment point whose agent has its two folders, as systemd makes them, and nothing else to write to."""
    with tempfile.TemporaryDirectory(prefix="slt-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for part, mode in (("state", 0o700), ("run", 0o755)):
            (folder / part).mkdir(mode)
            os.chown(folder / part, NOBODY, NOBODY)
        operator = Operator(host, folder)
        operator.config.chmod(0o644)
        yield operator


def sandbox(operator: Operator, unit: Path) -> list[str]:
    """What starts a program as this unit would."""
    folders = (operator.folder / "state", operator.folder / "run")
    return [sys.executable, "-m", "tests.kernel.sandbox", str(unit), *map(str, folders)]


def command(operator: Operator, unit: Path, *arguments: str | Path) -> list[str]:
    return [*sandbox(operator, unit), sys.executable, *map(str, arguments)]


def test_the_agent_does_its_whole_work_under_its_unit(confined: Operator, service: Service) -> None:
    use_with_a_secret_file(confined, service)
    with confined.config.open("a") as config:
        config.write("usage_interval_s = 1\n")
        config.write(f'metrics_listen = "127.0.0.1:9106"\nmetrics_file = "{confined.folder}/run/metrics.prom"\n')
    with agent_running(confined, *sandbox(confined, AGENT)) as process:
        until(lambda: confined.rate_bits("eth0", "1:1") == 500_000, "the first limit")
        changed = bundle_bytes({"1": entry("192.0.2.11", 900)}, limits_version=8)
        service.answers["/config"] = like_the_service(changed, "1.18", "8")
        until(lambda: confined.rate_bits("eth0", "1:1") == 900_000, "the changed limit")
        until(lambda: service.receipts()[-1]["limits_version"] == 8, "its receipt")
        confined.host.ap.ip("link", "del", "slbw0")
        until(lambda: confined.rate_bits("slbw0", "3:1") == 900_000, "the repaired IFB")
        until(lambda: b"scionlab_bw_link_bytes_total{" in scraped(confined), "metrics of what was counted")
        assert "used kbit/s" in confined.agent("usage").stdout
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert f"Uid:\t{NOBODY}\t{NOBODY}\t{NOBODY}\t{NOBODY}" in status
        for kind in ("CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert f"{kind}:\t{1 << 12:016x}" in status  # CAP_NET_ADMIN
        assert "NoNewPrivs:\t1" in status
        assert "Seccomp:\t2" in status
        process.send_signal(signal.SIGHUP)
        said = confined.agent("status")
        assert (said.returncode, "usage_" in said.stdout) == (0, False)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    kept = {path.relative_to(confined.folder) for path in confined.folder.rglob("*") if path.is_file()}
    assert {Path("run/health.json"), Path("run/metrics.prom")} <= kept
    assert any(path.parent == Path("state/usage") for path in kept)
    everybodys = {path.name: path.stat().st_mode & 0o777 for path in (confined.folder / "run").iterdir()}
    assert set(everybodys.values()) == {0o644}, everybodys  # for `status`, whatever the unit's umask
    private = [path for path in (confined.folder / "state").rglob("*") if path.stat().st_mode & 0o077]
    assert private == []


def use_with_a_secret_file(operator: Operator, service: Service) -> None:
    """A configuration that the agent's user may read, and its secret where nobody else may."""
    operator.use(service)
    secret = operator.folder / "secret"
    text = operator.config.read_text()
    operator.config.chmod(0o644)
    operator.config.write_text(text.replace("host_secret = ", "# host_secret = ") + f'host_secret_file = "{secret}"\n')
    secret.write_text(text.partition('host_secret = "')[2].partition('"')[0])
    os.chown(secret, NOBODY, NOBODY)
    secret.chmod(0o400)


def scraped(operator: Operator) -> bytes:
    def inside() -> bytes:
        with urllib.request.urlopen("http://127.0.0.1:9106/metrics", timeout=20) as answer:
            found: bytes = answer.read()
            return found

    return operator.host.inside(inside)


def test_with_its_drop_in_the_agent_admits_whole_datagrams(confined: Operator, service: Service) -> None:
    """The one capability and the one system call more are enough; what somebody deletes is back at once."""
    unit = confined.folder / "with-drop-in.service"
    unit.write_text(AGENT.read_text() + (UNITS / "whole-datagrams.conf").read_text())
    unit.chmod(0o644)
    use_with_a_secret_file(confined, service)
    text = re.sub(r"(audit|receipt)_interval_s = .*", r"\1_interval_s = 600", confined.config.read_text())
    confined.config.write_text(
        text + "usage_interval_s = 1\nwhole_datagrams = true\n"
    )  # as the drop-in's Environment= does

    def filters(hook: str) -> str:
        has_hook = confined.host.has_hook("eth0", hook)
        return confined.host.tc("filter", "show", "dev", "eth0", hook) if has_hook else ""

    with agent_running(confined, *sandbox(confined, unit)) as process:
        for hook in ("ingress", "egress"):
            until(lambda hook=hook: "slbw-whole direct-action" in filters(hook), f"the program at {hook}")  # type: ignore[misc]
        status = Path(f"/proc/{process.pid}/status").read_text()
        for kind in ("CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert f"{kind}:\t{1 << 12 | 1 << 39:016x}" in status  # CAP_NET_ADMIN, CAP_BPF
        big = Datagram(("192.0.2.1", 40000), ("192.0.2.11", 50000), b"d" * 5000)
        confined.host.inside(lambda: big.send(40))
        until(lambda: drops_in_usage(confined) > 0, "refused datagrams in the usage")
        assert witness.classes(confined.host.ap, "eth0")["1:1001"].drops == 0
        confined.host.tc("filter", "del", "dev", "eth0", "egress", "pref", "105")
        until(lambda: "slbw-whole" in filters("egress"), "the repaired filter")
        assert confined.agent("status").returncode == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    assert "slbw-whole" in filters("egress")  # it goes on without its process


def drops_in_usage(operator: Operator) -> int:
    """Of link 1, to the user; 0 where nothing was counted yet."""
    said = operator.agent("usage", "--json")
    return int(json.loads(said.stdout)["links"]["1"]["to_user"]["drops"]) if said.returncode == 0 else 0


# What is tried inside, and the error that it must meet.
REFUSED = {
    "os.open('/etc/scionlab-test', os.O_CREAT | os.O_WRONLY)": "EROFS",
    "open('/etc/shadow').read()": "EACCES",
    "os.setuid(0)": "EPERM",
    "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)": "EAFNOSUPPORT",
    "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)": "EPERM",
    "mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)": "EPERM",
    "os.chown('/tmp', 0, 0)": "EPERM",
    "os.sched_setaffinity(0, {0})": "EPERM",
    "os.nice(1)": "EPERM",
    "open('/proc/sys/kernel/hostname').read()": "ENOENT",
    "os.stat('/proc/1')": "ENOENT",
}


def test_what_the_unit_takes_away_is_gone(confined: Operator) -> None:
    program = f"""
import errno, json, mmap, os, socket
met = {{}}
for tried in {list(REFUSED)!r}:
    try:
        eval(tried)
        met[tried] = "nothing"
    except OSError as exc:
        met[tried] = errno.errorcode[exc.errno]
print(json.dumps(met))
"""
    done = confined._run(command(confined, AGENT, "-c", program))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == REFUSED


def test_the_list_of_the_unit_holds_what_it_must_not_miss() -> None:
    calls = expanded(words(directives(AGENT), "SystemCallFilter"))
    assert {"openat", "fsync", "renameat2", "sendmsg", "clone3", "flock"} <= calls
    assert not calls & {"setuid", "chown", "mount", "bpf", "ptrace", "init_module", "keyctl", "sched_setaffinity"}
