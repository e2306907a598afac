"""The agent as an operator and systemd start it, in a namespace, on a real kernel; the witness is `tc`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab import witness
from measuring.netns import REPOSITORY
from tests import agent_service as svc
from tests.agent_bundles import HOST_ID, PINNED, SECRET, bundle_bytes
from tests.agent_service import Service, like_the_service, status
from tests.kernel.conftest import Host, entry
from tests.kernel.packets import Datagram, arrivals

pytestmark = pytest.mark.kernel

LINKS = {
    "1": entry("192.0.2.11", 500),
    "2": entry("2001:db8:2::11", 0),
    "9": {**entry("192.0.2.99", 7), "IsUserAS": False},
}


class Operator:
    """Somebody with root on the attachment point: a configuration, folders of his own, two command lines."""

    def __init__(self, host: Host, folder: Path) -> None:
        self.host = host
        self.folder = folder
        self.config = folder / "agent.toml"
        self.configure()

    def configure(self, text: str = "") -> None:
        self.config.write_text(f'state_dir = "{self.folder}/state"\nrun_dir = "{self.folder}/run"\n{text}')
        self.config.chmod(0o640)

    def use(self, service: Service) -> None:
        self.configure(
            f'url = "{service.url}"\nhost_id = "{HOST_ID}"\nhost_secret = "{SECRET}"\n{PINNED}poll_interval_s = 0.2\n'
            "backoff_max_s = 1\naudit_interval_s = 1\nreceipt_interval_s = 1\n"
        )

    def link_info(self, document: Any) -> Path:
        path = self.folder / "link_info.json"
        path.write_text(json.dumps(document))
        return path

    def agent(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return self._run([sys.executable, "-m", "ap_agent", *map(str, arguments), "--config", str(self.config)])

    def limiter(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        wrapper = REPOSITORY / "packaging" / "bin" / "scionlab_bw_limiter"
        return self._run([str(wrapper), *map(str, arguments), "--config", str(self.config)])

    def _run(self, argv: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["ip", "netns", "exec", self.host.ap.name, *argv],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def rate_bits(self, dev: str, classid: str) -> int | None:
        found = witness.classes(self.host.ap, dev).get(classid)
        return found.rate_bits if found is not None else None


@pytest.fixture
def operator(host: Host, tmp_path: Path) -> Operator:
    return Operator(host, tmp_path)


def test_once_enforces_a_file_and_reset_leaves_the_host_as_it_was(operator: Operator) -> None:
    before = operator.host.snapshot()
    path = operator.link_info(LINKS)

    planned = operator.agent("plan", "--link-info", path)
    assert planned.returncode == 0, planned.stderr
    assert operator.host.snapshot() == before
    done = operator.agent("once", "--link-info", path)

    assert done.returncode == 0, done.stderr
    assert "2 of 2 limited links enforced" in done.stdout
    assert operator.rate_bits("eth0", "1:1") == 500_000
    assert operator.rate_bits("slbw0", "3:1") == 500_000
    assert operator.rate_bits("eth1", "1:2") == 8_000  # blocked: the nominal rate, and leaves that take nothing
    built = operator.host.snapshot()
    again = operator.agent("once", "--link-info", path)
    assert again.returncode == 0
    assert "Nothing had to change in the kernel." in again.stdout
    assert operator.host.snapshot() == built
    shown = operator.agent("show", "--link-info", path)
    assert shown.returncode == 0, shown.stderr
    assert "500\N{NO-BREAK SPACE}kbit/s  enforced  to the user AS" in shown.stdout
    removed = operator.agent("reset")
    assert removed.returncode == 0, removed.stderr
    assert "slbw0: delete this IFB" in removed.stdout
    assert operator.host.snapshot() == before


def test_command_line_of_the_thesis_limits_shows_and_resets(operator: Operator) -> None:
    before = operator.host.snapshot()
    path = operator.link_info(LINKS)

    done = operator.limiter("-l", "-p", path)
    assert done.returncode == 0, done.stderr
    assert operator.rate_bits("eth0", "1:1") == 500_000
    assert operator.rate_bits("eth0", "1:fffe") is None
    operator.link_info({**LINKS, "1": entry("192.0.2.11", 800)})
    assert operator.limiter("-b", "5000", "-l").returncode == 0  # the path is remembered
    assert operator.rate_bits("eth0", "1:1") == 800_000
    assert operator.rate_bits("eth0", "1:fffe") == 5_000_000  # everything else shares it
    shown = operator.limiter("-s")
    assert shown.returncode == 0, shown.stderr
    assert "800\N{NO-BREAK SPACE}kbit/s" in shown.stdout
    assert operator.limiter("-r").returncode == 0
    assert operator.host.snapshot() == before
    assert operator.limiter("-s").returncode == 1


def test_bad_file_leaves_the_last_good_state_in_the_kernel(operator: Operator) -> None:
    assert operator.agent("once", "--link-info", operator.link_info(LINKS)).returncode == 0
    built = operator.host.snapshot()

    documents: list[Any] = [{"1": entry("192.0.2.1; reboot", 5)}, {"1": entry("192.0.2.11", -5)}, []]
    for document in documents:
        failed = operator.agent("once", "--link-info", operator.link_info(document))
        assert failed.returncode == 1
        assert "Nothing was changed." in failed.stderr
        assert operator.limiter("-l", "-p", operator.folder / "link_info.json").returncode == 1
    assert operator.host.snapshot() == built


def test_link_without_a_way_to_it_is_exit_1_and_the_other_is_enforced(operator: Operator) -> None:
    done = operator.agent("once", "--link-info", operator.link_info({**LINKS, "3": entry("203.0.113.5", 5)}))

    assert done.returncode == 1
    assert "2 of 3 limited links enforced" in done.stdout
    assert "(link 3)" in done.stderr
    assert operator.rate_bits("eth0", "1:1") == 500_000


# --- the service ------------------------------------------------------------------------------------------------------


@pytest.fixture
def service(host: Host) -> Iterator[Service]:
    """A Coordination Service inside the attachment point's namespace."""
    manager = svc.service()
    running = host.ap.call(manager.__enter__)
    running.answers["/config"] = like_the_service(bundle_bytes({"1": entry("192.0.2.11", 500)}), "1.18", "7")
    yield running
    manager.__exit__(None, None, None)


def until(condition: Callable[[], bool], what: str, timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for: {what}"
        time.sleep(0.05)


@contextmanager
def agent_running(operator: Operator, *wrapper: str) -> Iterator[subprocess.Popen[str]]:
    """The agent's service, started by `wrapper` if there is one."""
    process = operator.host.ap.popen(
        [*wrapper, sys.executable, "-m", "ap_agent", "run", "--config", str(operator.config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        operator.host.lab.stop(process)


def test_agent_follows_the_service_survives_kill_9_and_leaves_the_limits(operator: Operator, service: Service) -> None:
    operator.use(service)
    with agent_running(operator) as process:
        until(lambda: operator.rate_bits("eth0", "1:1") == 500_000, "the first limit")
        changed = bundle_bytes({"1": entry("192.0.2.11", 900)}, limits_version=8)
        service.answers["/config"] = like_the_service(changed, "1.18", "8")
        until(lambda: operator.rate_bits("eth0", "1:1") == 900_000, "the changed limit")
        until(lambda: service.receipts()[-1]["limits_version"] == 8, "its receipt")
        receipt = service.receipts()[-1]
        assert receipt["links"]["1"]["to_user"]["rate_kbit"] == 900
        assert receipt["links"]["1"]["from_user"]["dev"] == "slbw0"
        assert operator.agent("status").returncode == 0
        refused = operator.limiter("-r")
        assert refused.returncode == 4
        assert f"pid {process.pid}" in refused.stderr
        process.kill()
        process.wait(timeout=10)
    assert operator.rate_bits("eth0", "1:1") == 900_000
    assert operator.agent("status").returncode == 1

    # The service is gone and somebody deleted our tree meanwhile: the disk knows it.
    service.answers["/config"] = status(503)
    operator.host.tc("qdisc", "del", "dev", "eth0", "root")
    with agent_running(operator) as process:
        until(lambda: operator.rate_bits("eth0", "1:1") == 900_000, "the limit from the disk")
        until(lambda: operator.agent("status").returncode == 5, "the status that the service is away")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    assert operator.rate_bits("eth0", "1:1") == 900_000
    assert operator.agent("reset").returncode == 0
    assert operator.rate_bits("eth0", "1:1") is None


def test_running_agent_repairs_what_somebody_breaks(operator: Operator, service: Service) -> None:
    operator.use(service)
    with agent_running(operator):
        until(lambda: operator.rate_bits("slbw0", "3:1") == 500_000, "the first limit")
        operator.host.ap.ip("link", "del", "slbw0")
        until(lambda: operator.rate_bits("slbw0", "3:1") == 500_000, "the repaired IFB")
        operator.host.tc("class", "change", "dev", "eth0", "classid", "1:1", "htb", "rate", "1gbit", "ceil", "1gbit")
        until(lambda: operator.rate_bits("eth0", "1:1") == 500_000, "the repaired class")


@pytest.mark.parametrize("harm", [("link", "del", "slbw0"), ("link", "set", "slbw0", "down")])
def test_ifb_is_repaired_at_the_next_poll_and_not_only_at_the_next_comparison(
    operator: Operator, service: Service, harm: tuple[str, ...]
) -> None:
    """Every packet of a limited source is dropped meanwhile."""
    operator.use(service)
    text = operator.config.read_text().replace("audit_interval_s = 1\n", "audit_interval_s = 3600\n")
    operator.config.write_text(text.replace("receipt_interval_s = 1\n", "receipt_interval_s = 3600\n"))
    back = Datagram(("192.0.2.11", 50000), ("192.0.2.1", 50100))

    def arrived() -> int:
        return arrivals(operator.host.ap, back.destination, lambda: operator.host.u1.call(back.send))

    with agent_running(operator):
        until(lambda: len(service.receipts()) > 0 and arrived() == 1, "the first limit")
        operator.host.ap.ip(*harm)
        until(lambda: arrived() == 1, "packets again")
        assert operator.rate_bits("slbw0", "3:1") == 500_000


@pytest.mark.parametrize("kind", ["broken", "html", "no_as", "refused"])
def test_once_with_a_bad_answer_keeps_the_kernel_and_ends_with_5(
    operator: Operator, service: Service, kind: str
) -> None:
    operator.use(service)
    assert operator.agent("once").returncode == 0
    built = operator.host.snapshot()
    service.answers["/config"] = {
        "broken": svc.tarball(bundle_bytes({"1": entry("192.0.2.11", 1)}, limits_version=8)[:-20]),
        "html": svc.reply(200, b"<html>", Content_Type="text/html"),
        "no_as": status(204),
        "refused": status(401),
    }[kind]

    done = operator.agent("once")

    assert done.returncode == 5, done.stdout + done.stderr
    assert "last good configuration is enforced" in done.stderr
    assert operator.host.snapshot() == built


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """pytest's own folders are private to root."""
    with tempfile.TemporaryDirectory(prefix="slt-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_cap_net_admin_alone_is_enough_and_nothing_is_not(host: Host, public_folder: Path) -> None:
    """What the systemd unit gives: another user, one capability. Dropped by the process itself."""
    program = """
import codecs, ctypes, os, sys
keep = sys.argv[1] == "cap"
libc = ctypes.CDLL(None, use_errno=True)
sys.argv[1:2] = []
from ap_agent.__main__ import main, real_engine
engine = real_engine()
codecs.lookup("ascii")
main(["plan", *sys.argv[2:]], engine=engine)  # loads what is loaded late: the interpreter's folder may be root's own
PR_SET_KEEPCAPS = 8
libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)
os.setgroups([]); os.setgid(65534); os.setuid(65534)
header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, <linux/capability.h>
bits = 1 << 12 if keep else 0
data = (ctypes.c_uint32 * 6)(bits, bits, 0, 0, 0, 0)
assert libc.capset(header, data) == 0
sys.exit(main(sys.argv[1:], engine=engine))
"""
    folder = public_folder / "nobodys"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    operator = Operator(host, public_folder)
    operator.config.write_text(f'state_dir = "{folder}/state"\nrun_dir = "{folder}/run"\n')
    operator.config.chmod(0o644)
    path = operator.link_info(LINKS)

    def run(keep: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return operator._run([sys.executable, "-c", program, keep, *arguments, "--config", str(operator.config)])

    planned = run("none", "plan", "--link-info", str(path))  # looking is free
    assert planned.returncode == 0, planned.stderr
    assert "Would change in the kernel" in planned.stdout
    refused = run("none", "once", "--link-info", str(path))
    assert refused.returncode == 3, refused.stderr
    assert "CAP_NET_ADMIN" in refused.stderr
    done = run("cap", "once", "--link-info", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert operator.rate_bits("eth0", "1:1") == 500_000
    assert run("cap", "reset").returncode == 0
    assert operator.rate_bits("eth0", "1:1") is None
