"""Both programs as an operator and systemd start them, in a namespace, on a real kernel; the witness is `tc`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab import witness
from measuring.netns import REPOSITORY
from tests import agent_service as svc
from tests.agent_bundles import HOST_ID, PINNED, SECRET, bundle_bytes, entry
from tests.agent_service import Service, like_the_service, status
from tests.kernel.engine_bed import Host, bpf_file_system
from tests.support.waiting import until

LINKS = {
    "1": entry(500, "192.0.2.11"),
    "2": entry(0, "2001:db8:2::11"),
    "9": {**entry(7, "192.0.2.99"), "IsUserAS": False},
}
AGENT = (sys.executable, "-P", "-m", "ap_agent")
ENVIRONMENT = {"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
LIMITER = (sys.executable, "-P", "-m", "ap_agent.commands.limiter_cli")


class Operator:
    """Somebody with root on the attachment point: a configuration, folders of his own, three command lines."""

    def __init__(self, host: Host, folder: Path) -> None:
        self.host = host
        self.folder = folder
        self.config = folder / "agent.toml"
        self.maps = folder / "maps"
        self.configure()

    def configure(self, text: str = "") -> None:
        folders = {"state_dir": "state", "run_dir": "run", "limiter_state_dir": "lstate", "limiter_run_dir": "lrun"}
        lines = [f'{key} = "{self.folder}/{name}"' for key, name in folders.items()]
        self.config.write_text("\n".join([*lines, f'maps_dir = "{self.maps}"', text]))
        self.config.chmod(0o640)

    def use(self, service: Service) -> None:
        self.configure(
            f'url = "{service.url}"\nhost_id = "{HOST_ID}"\nhost_secret = "{SECRET}"\n{PINNED}poll_interval_s = 0.2\n'
            "backoff_max_s = 1\naudit_interval_s = 1\nreceipt_interval_s = 1\nusage_interval_s = 1\n"
        )

    def link_info(self, document: Any) -> Path:
        path = self.folder / "link_info.json"
        path.write_text(json.dumps(document))
        return path

    def agent(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return self.run(*AGENT, *arguments, "--config", self.config)

    def limiter(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return self.run(*LIMITER, *arguments, "--config", self.config)

    def thesis(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return self.run(REPOSITORY / "packaging/bin/scionlab_bw_limiter", *arguments, "--config", self.config)

    def run(self, *argv: str | Path) -> subprocess.CompletedProcess[str]:
        command = self.inside(*map(str, argv))
        return subprocess.run(
            command, cwd=REPOSITORY, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False
        )

    def inside(self, *argv: str) -> list[str]:
        """The command there; it sees the host's mounts."""
        return ["nsenter", f"--net=/run/netns/{self.host.ap.name}", *argv]

    def rates(self, minor: int) -> tuple[int | None, int | None]:
        """In kbit/s, to the user and from the user, as `tc` has them."""
        found = []
        for device, number in (("slbw0", minor), ("slbw1", 0x1000 | minor)):
            one = witness.classes(self.host.ap, device) if device in self.host.devices() else {}
            rate = next(
                (kept.rate_bits for classid, kept in one.items() if int(classid.partition(":")[2], 16) == number), None
            )
            found.append(rate // 1000 if rate is not None else None)
        return found[0], found[1]


@pytest.fixture
def operator(host: Host, tmp_path: Path) -> Iterator[Operator]:
    made = Operator(host, tmp_path)
    with bpf_file_system(made.maps):
        yield made


def test_once_enforces_a_file_and_reset_leaves_the_host_as_it_was(operator: Operator) -> None:
    before = operator.host.snapshot()
    path = operator.link_info(LINKS)

    planned = operator.limiter("plan", "--link-info", path)
    assert planned.returncode == 0, planned.stderr
    assert "(-v lists them); no foreign object is touched." in planned.stdout
    assert operator.host.snapshot() == before
    done = operator.limiter("once", "--link-info", path)

    assert done.returncode == 0, done.stderr
    assert "2 of 2 limited links enforced" in done.stdout
    assert operator.rates(1) == (500, 500)
    removed = operator.limiter("reset", "-v")
    assert removed.returncode == 0, removed.stderr
    assert "slbw0: remove IFB" in removed.stdout
    assert operator.host.snapshot() == before


def test_command_line_of_the_thesis_limits_shows_and_resets(operator: Operator) -> None:
    before = operator.host.snapshot()
    path = operator.link_info(LINKS)

    done = operator.thesis("-l", "-p", path)
    assert done.returncode == 0, done.stderr
    assert (operator.rates(1), operator.rates(0xFFF)) == ((500, 500), (None, None))
    operator.link_info({**LINKS, "1": entry(800, "192.0.2.11")})
    assert operator.thesis("-b", "5000", "-l").returncode == 0  # the path is remembered
    assert (operator.rates(1), operator.rates(0xFFF)) == ((800, 800), (5000, 5000))  # everything else shares it
    assert "800 kbit/s" in operator.thesis("-s").stdout
    assert operator.thesis("-r").returncode == 0
    assert operator.host.snapshot() == before


def test_looking_needs_no_right_and_changing_says_which(operator: Operator) -> None:
    path = operator.link_info(LINKS)
    without = ("setpriv", "--bounding-set=-net_admin,-bpf,-sys_admin", "--inh-caps=-net_admin,-bpf,-sys_admin")

    planned = operator.run(*without, *LIMITER, "plan", "--link-info", path, "--config", operator.config)
    assert "no foreign object is touched" in planned.stdout
    refused = operator.run(*without, *LIMITER, "once", "--link-info", path, "--config", operator.config)
    assert refused.returncode == 3
    assert (
        refused.stderr
        == "scionlab-bw-limiter once: Changing limits needs root (CAP_NET_ADMIN and CAP_BPF); use sudo.\n"
    )


ENFORCE = """
import sys
from pathlib import Path
from ap_agent.common.errors import NotPermittedError
from ap_agent.dataplane.engine import Engine
from tests.kernel.engine_bed import link, wanted
try:
    Engine(Path(sys.argv[1])).enforce(wanted(link(7, 500)))
except NotPermittedError as exc:
    print(exc.code, exc.message)
"""


def test_an_engine_without_cap_bpf_names_it_and_changes_nothing(operator: Operator) -> None:
    before = operator.host.snapshot()
    without = ("setpriv", "--bounding-set=-bpf,-sys_admin", "--inh-caps=-bpf,-sys_admin")
    done = operator.run(*without, sys.executable, "-c", ENFORCE, operator.maps)
    assert done.stdout.startswith("no_bpf_right "), done.stderr
    assert "CAP_BPF" in done.stdout
    assert operator.host.snapshot() == before


# --- the service ------------------------------------------------------------------------------------------------------


@pytest.fixture
def service(host: Host) -> Iterator[Service]:
    """A Coordination Service inside the attachment point's namespace."""
    manager = svc.service()
    running = host.ap.call(manager.__enter__)
    running.answers["/config"] = like_the_service(bundle_bytes({"1": entry(500, "192.0.2.11")}), "1.18", "7")
    yield running
    manager.__exit__(None, None, None)


@contextmanager
def running(operator: Operator, program: tuple[str, ...], *wrapper: str) -> Iterator[subprocess.Popen[str]]:
    """The service of a program, started by `wrapper` if there is one. What it printed is shown where a test fails."""
    name = "limiter" if "limiter" in program[-1] else "agent"
    with (operator.folder / f"{name}.log").open("ab") as log:
        command = operator.inside(*wrapper, *program, "run", "--config", str(operator.config))
        process = subprocess.Popen(
            command, cwd=REPOSITORY, env=ENVIRONMENT, stdout=log, stderr=subprocess.STDOUT, text=True
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(timeout=20)
        print((operator.folder / f"{name}.log").read_text()[-6000:])


def test_limits_survive_the_death_of_either_program(operator: Operator, service: Service) -> None:
    operator.use(service)
    with running(operator, AGENT) as agent:
        with running(operator, LIMITER) as limiter:
            until(lambda: operator.rates(1) == (500, 500), "the first limit")
            changed = bundle_bytes({"1": entry(900, "192.0.2.11")}, limits_version=8)
            service.answers["/config"] = like_the_service(changed, "1.18", "8")
            until(lambda: operator.rates(1) == (900, 900), "the changed limit")
            until(lambda: service.receipts()[-1]["limits_version"] == 8, "its receipt")
            receipt = service.receipts()[-1]
            assert receipt["links"]["1"]["to_user"]["rate_kbit"] == 900
            assert receipt["links"]["1"]["from_user"]["dev"] == "slbw1"
            until(lambda: operator.agent("status").returncode == 0, "the status that all is well")
            assert operator.agent("show").returncode == operator.limiter("show").returncode == 0
            refused = operator.thesis("-r")
            assert refused.returncode == 4
            assert f"pid {limiter.pid}" in refused.stderr
            limiter.kill()
            limiter.wait(timeout=10)
        assert operator.rates(1) == (900, 900)
        until(lambda: "limiter_silent" in json.dumps(service.receipts()[-1]["problems"]), "that the limiter is silent")
        shown = operator.agent("show")
        assert shown.returncode == 1
        assert "The limiter is not running; the limits that it set stay in the kernel." in shown.stdout
        agent.kill()
        agent.wait(timeout=10)

    # The service is gone, and somebody deleted a device meanwhile: the limiter's own copy knows what was there.
    service.answers["/config"] = status(503)
    operator.host.ap.ip("link", "del", "slbw0")
    with running(operator, LIMITER) as limiter:
        until(lambda: operator.rates(1) == (900, 900), "the limit from the limiter's own copy")
        limiter.send_signal(signal.SIGTERM)
        assert limiter.wait(timeout=20) == 0
    assert operator.rates(1) == (900, 900)
    assert operator.limiter("reset").returncode == 0
    assert operator.rates(1) == (None, None)
    assert operator.agent("tell").returncode == 0
    assert "limits_removed" in json.dumps(service.receipts()[-1]["problems"])
