"""An attachment point with the real agent and the real limiter, a service beside it, and faults to be had."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ap_agent.agent.store import Store
from ap_agent.common.times import time_text
from ap_agent.document.state import read_state
from lab import witness
from measuring.netns import Namespace
from tests.agent_bundles import FAR, HOST_ID, SECRET, SigningKey, bundle_bytes, entry
from tests.agent_service import Request, Service, like_the_service, service
from tests.support.namespaces import a_lab
from tests.support.waiting import until

PREFIX = "slbwf"
PATIENCE_S = 60.0  # beside other tests
eventually = partial(until, within_s=PATIENCE_S)
MS_RDONLY, MS_REMOUNT = 1, 32  # <sys/mount.h>


class Zygote:
    """The process that agents and limiters are forked from; see `zygote`."""

    def __init__(self, host: Namespace) -> None:
        self._process = host.popen([sys.executable, "-m", "tests.faults.agent.zygote"], stdin=subprocess.PIPE)
        self.pid: int = self._answer()["pid"]

    def do(self, what: str, **arguments: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **arguments}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            assert self._process.stderr is not None
            raise AssertionError(f"the zygote died: {self._process.stderr.read()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def sees(self, path: Path) -> Path:
        """The same path with the mounts that only the zygote and its agents have."""
        return Path(f"/proc/{self.pid}/root{path}")


@dataclass
class World:
    """One attachment point: its folders, its kernel, its programs, and the service that they talk to."""

    host: Namespace
    zygote: Zygote
    service: Service
    folder: Path
    running: list[int] = field(default_factory=list)
    number: int = 0  # of the newest bundle
    offered: bytes = b""
    limiter: int = 0  # its pid

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def config(self) -> Path:
        return self.folder / "agent.toml"

    @property
    def log(self) -> Path:
        return self.folder / "agent.log"

    def configure(self, **changes: object) -> None:
        keys: dict[str, object] = {
            "url": self.service.url,
            "host_id": HOST_ID,
            "host_secret": SECRET,
            "service_keys": [_key_text(SigningKey(1))],
            "state_dir": str(self.state),
            "run_dir": str(self.folder / "run"),
            "limiter_state_dir": str(self.folder / "limiter-state"),
            "limiter_run_dir": str(self.folder / "limiter-run"),
            "maps_dir": str(self.folder / "bpf" / "maps"),
            "poll_interval_s": 0.2,
            "backoff_max_s": 1,
            "read_timeout_s": 5,
            **changes,
        }
        self.config.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()))
        self.config.chmod(0o600)

    # --- the service --------------------------------------------------------------------------------------------------

    def offer(self, limits: dict[int, int]) -> str:
        """From now on the service has a newer bundle with these limits (link -> kbit/s). Returns its version."""
        self.number += 1
        # Each bundle retires a key and brings another one, as a rotation does: what is believed is at stake as well.
        former, current, coming = (SigningKey(self.number + one) for one in range(3))
        self.offered = data = bundle_bytes(
            links_of(limits),
            version=f"1.{self.number}",
            limits_version=self.number,
            signers=(former, current),
            keys=(current, coming),
            revoked=[SigningKey(gone).key_id for gone in range(1, self.number)],
        )
        self.service.answers["/config"] = like_the_service(data, f"1.{self.number}", str(self.number))
        return f"1.{self.number}"

    def keys(self) -> list[str]:
        """The service's keys of today, as an operator pins them."""
        return [_key_text(SigningKey(self.number + one)) for one in (1, 2)]

    def told(self, version: str) -> bool:
        """A receipt says that this version is enforced, every link of it."""
        return any(
            one["version"] == version and all(link["state"] == "enforced" for link in one["links"].values())
            for one in map(_receipt, self.service.asked("/enforcement"))
            if one is not None
        )

    # --- agent and limiter --------------------------------------------------------------------------------------------

    def _command(self, program: str, command: str, **more: object) -> dict[str, object]:
        log = self.log if program == "agent" else self.folder / "limiter.log"
        return {"program": program, "argv": [command, "--config", str(self.config)], "log": str(log), **more}

    def start(self, command: str = "run", program: str = "agent", **options: object) -> int:
        pid: int = self.zygote.do("start", **self._command(program, command, options=options))["pid"]
        self.running.append(pid)
        return pid

    def start_limiter(self) -> int:
        """As its unit does: it runs before the agent and after it."""
        self.limiter = self.start("run", "limiter")
        return self.limiter

    def ended(self, pid: int, timeout_s: float = PATIENCE_S) -> int | None:
        """Its exit code (negative: the signal); None where it still runs."""
        code: int | None = self.zygote.do("wait", pid=pid, timeout_s=timeout_s)["exit_code"]
        if code is not None:
            self.running.remove(pid)
        return code

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        assert self.ended(pid) == -signal.SIGKILL

    def stop(self, pid: int) -> None:
        eventually(lambda: _catches(pid, signal.SIGTERM), self.said)
        os.kill(pid, signal.SIGTERM)
        assert self.ended(pid) == 0, self.said()

    def once(self, program: str = "agent", **options: object) -> int | None:
        return self.ended(self.start("once", program, **options))

    def watched(self, command: str = "once", program: str = "agent", **how: object) -> dict[str, Any]:
        """A command under the tracer, to its end or its death; see `zygote`."""
        return self.zygote.do("watch", **self._command(program, command, **how))

    def end_watched(self) -> None:
        """SIGTERM for what another thread watches."""
        found = Path(f"/proc/{self.zygote.pid}/task/{self.zygote.pid}/children").read_text().split()
        for pid in set(map(int, found)) - set(self.running):
            os.kill(pid, signal.SIGTERM)

    def said(self) -> str:
        """What agents and limiters printed, without what they wrote to the kernel."""
        logs = (self.log, self.folder / "limiter.log")
        text = "\n".join(one.read_text() for one in logs if one.exists())
        return "\n".join(line for line in text.splitlines() if not line.startswith(("kernel.write", "  ")))

    def problems(self) -> dict[str, str]:
        """Codes of the agent's health file and of the limiter's state, with their messages."""
        found = {}
        with suppress(OSError, ValueError):
            health = json.loads((self.folder / "run" / "health.json").read_bytes())
            found = {one["code"]: one["message"] for one in health["problems"]}
        state = read_state(self.folder / "limiter-run")
        return found | {one.code: one.message for one in (state.problems if state is not None else ())}

    def stored(self) -> str | None:
        """The version that the next start will find."""
        found = Store(self.zygote.sees(self.state)).load(host_id=HOST_ID)
        return None if found is None else found.version

    # --- the kernel ---------------------------------------------------------------------------------------------------

    def limits(self) -> dict[int, tuple[int, int]]:
        """What `tc` shows for each link: kbit/s to the user AS and from it."""
        found = [
            {
                int(classid.partition(":")[2], 16) & 0xFFF: one.rate_bits // 1000
                for classid, one in witness.classes(self.host, dev).items()
            }
            for dev in ("slbw0", "slbw1")
        ]
        return {link: (found[0].get(link, -1), found[1].get(link, -1)) for link in found[0].keys() | found[1].keys()}

    def enforces(self, limits: dict[int, int]) -> bool:
        return self.limits() == {link: (kbit, kbit) for link, kbit in limits.items()}


def _catches(pid: int, number: signal.Signals) -> bool:
    """Whether it has a handler by now: one that has just begun would die of the signal (proc_pid_status(5))."""
    caught = re.search(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), flags=re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)


def _key_text(key: SigningKey) -> str:
    return f"{b64encode(key.public.public_key).decode()} {time_text(FAR)}"


def _receipt(request: Request) -> dict[str, Any] | None:
    """None for one whose sender was killed in the middle of it."""
    if len(request.body) < int(request.headers["Content-Length"]):
        return None
    found: dict[str, Any] = json.loads(request.body)
    return found


def links_of(limits: dict[int, int]) -> dict[str, Any]:
    return {str(link): entry(kbit, f"192.0.2.{10 + link}", 50000 + link) for link, kbit in limits.items()}


@pytest.fixture(scope="module")
def attachment_point() -> Iterator[tuple[Namespace, Zygote]]:
    """One host with a zygote for all tests of a module; each test has folders and a kernel without limits."""
    with a_lab(PREFIX) as lab:
        ap, user = lab.namespace("ap"), lab.namespace("u1")
        lab.veth(ap.nic("eth0", "192.0.2.1/24"), user.nic("eth0", "192.0.2.11/24"))
        yield ap, Zygote(ap)


@contextmanager
def a_world(host: Namespace, zygote: Zygote, folder: Path, **settings: object) -> Iterator[World]:
    """With a running limiter; in the end nothing of it is left in the kernel."""
    running = service()
    offered = host.call(running.__enter__)  # its socket stays in the namespace
    found = World(host, zygote, offered, folder)
    found.configure(**settings)
    bpf = folder / "bpf"
    bpf.mkdir()
    zygote.do("mount", kind="bpf", path=str(bpf), flags=0, data="")
    try:
        found.start_limiter()
        yield found
    finally:
        for pid in list(found.running):
            os.kill(pid, signal.SIGKILL)
            found.ended(pid)
        running.__exit__(None, None, None)
        assert found.ended(found.start("reset", "limiter")) == 0, found.said()
        zygote.do("unmount", path=str(bpf))


@pytest.fixture
def world(attachment_point: tuple[Namespace, Zygote], tmp_path: Path) -> Iterator[World]:
    with a_world(*attachment_point, tmp_path) as found:
        yield found
