"""This end of tests that send: a separate process for each, from the time the limiter has armed it.

The agent itself sends nothing. Its child has no credentials but the key of its run and cannot gain rights; the kernel
kills it with the agent (`tied`). It is ended early when the operator stops tests, and when the limiter no longer counts
its packets as the link's: they would not be limited.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import IO

from ap_agent.agent.agent import Agent
from ap_agent.agent.bundle import Bundle
from ap_agent.agent.kept_reports import MAX_REPORT_BYTES, made_report, parse_report
from ap_agent.agent.sending_order import order_of
from ap_agent.common.consent import STOP_FILE, Consent, sending_tests
from ap_agent.common.errors import StoreError
from ap_agent.common.log import Logger
from ap_agent.common.problem import Problem
from ap_agent.document.timetable import tests_by_id
from contract.link_info import LinkInfo
from contract.link_tests import TEST_LANES, LinkTest

LOOK_S = 0.2  # while a test runs
GRACE = timedelta(seconds=0.7)  # after its end the child is killed: a second later it is gone
_POLITE_S = 0.5  # from SIGTERM to SIGKILL
_KEY = "tests"
_PYTHON = (sys.executable, *(("-P",) if sys.flags.safe_path else ()), "-m")  # like the agent itself
COMMAND = (*_PYTHON, "station.ap_end")
_MIB = 1024 * 1024


@dataclass
class _Child:
    test: LinkTest
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    errors: IO[bytes]
    kill_at: float  # monotonic
    why_ended: str = ""  # by us


class Sending:
    """Current problems are in the agent's `extra`."""

    def __init__(
        self, agent: Agent, logger: Logger, *, monotonic: Callable[[], float], command: Sequence[str] = COMMAND
    ) -> None:
        self._agent, self._kept, self._log = agent, agent.kept, logger
        self._now, self._monotonic, self._command = agent.now, monotonic, command
        self._children: dict[str, _Child] = {}
        self._bundle: Bundle | None = None
        self._tests: dict[str, tuple[LinkInfo, LinkTest]] = {}
        self.consent: Consent = sending_tests(agent.settings)

    @property
    def running(self) -> int:
        return len(self._children)

    def moment(self) -> float | None:
        """Time of the next check (monotonic); None while nothing runs."""
        return self._monotonic() + LOOK_S if self._children else None

    def step(self) -> bool:
        """Start and end what is due; return whether there is news for the service."""
        before = self.consent, set(self._children)
        self.consent = sending_tests(self._agent.settings)
        armed = self._armed()
        for child in list(self._children.values()):
            self._look_after(child, armed)
        new = [one for one in armed.values() if self._kept.of(one[1].test_id) is None and self._now() < one[1].ends_at]
        if new and self.consent == "on" and not self._agent.limiter.is_silent:
            for link, test in new[: TEST_LANES - len(self._children)]:
                self._begin(link, test)
        self._kept.forget(self._now())
        return before != (self.consent, set(self._children))

    def close(self) -> None:
        """Stop with every child."""
        for child in list(self._children.values()):
            child.why_ended = "The agent was stopped."
            child.process.kill()
            child.process.wait()
            self._collect(child)

    def _armed(self) -> dict[str, tuple[LinkInfo, LinkTest]]:
        """Tests that send whose packets the limiter recognises, according to its state."""
        bundle, state = self._agent.configuration.bundle, self._agent.limiter.state
        if bundle is not self._bundle:
            self._bundle = bundle
            self._tests = tests_by_id(bundle.links if bundle is not None else {})
        told = state.tests if state is not None else ()
        return {test_id: self._tests[test_id] for test_id in told if test_id in self._tests}

    # --- a child ----------------------------------------------------------------------------------------------------

    def _begin(self, link: LinkInfo, test: LinkTest) -> None:
        client, test_id = self._agent.client, test.test_id
        if client is None:
            return
        try:
            self._kept.begin(test_id, round(test.ends_at.timestamp() * 1000))
        except StoreError as exc:
            self._agent.extra[_KEY] = Problem("state_unusable", str(self._agent.settings.state_dir), exc.message)
            return
        self._agent.extra.pop(_KEY, None)
        left_s = (test.ends_at + GRACE - self._now()).total_seconds()
        try:
            output, errors = (tempfile.TemporaryFile(dir=self._kept.folder) for _ in range(2))  # noqa: SIM115  # the child's
            process = subprocess.Popen(
                (*_PYTHON, "ap_agent.agent.tied", str(os.getpid()), *self._command),
                stdin=subprocess.PIPE, stdout=output, stderr=errors,
                env={name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ},
            )  # fmt: skip
        except OSError as exc:
            self._kept.end(test_id, made_report("error", f"The sending end cannot be started: {exc}."), self._now())
            self._log.error("test.unstarted", test=test_id, message=str(exc))
            return
        _bound(process.pid, left_s)  # before it gets its order
        order = order_of(link, test, client.secret, self._agent.settings.interfaces)
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(order).encode() + b"\n")  # type: ignore[union-attr]  # it is a pipe
            process.stdin.close()  # type: ignore[union-attr]
        self._children[test_id] = _Child(test, process, output, errors, self._monotonic() + left_s)
        self._log.info("test.begin", test=test_id, link=link.interface_id, port=test.port, pid=process.pid)

    def _look_after(self, child: _Child, armed: Mapping[str, object]) -> None:
        if child.process.poll() is not None:
            self._collect(child)
            return
        now = self._monotonic()
        why = self._why_to_end(child, armed)
        if why and not child.why_ended:
            child.why_ended, child.kill_at = why, min(child.kill_at, now + _POLITE_S)
            child.process.terminate()
        if now >= child.kill_at or self._now() >= child.test.ends_at + GRACE:  # independent of either clock
            child.process.kill()

    def _why_to_end(self, child: _Child, armed: Mapping[str, object]) -> str:
        if self.consent == "stopped":
            return f"The operator of the attachment point stopped all tests ({STOP_FILE})."
        if self.consent == "off":
            return "The operator of the attachment point no longer allows tests (link_tests = false)."
        if child.test.test_id not in armed and self._now() < child.test.ends_at:
            return "The limiter no longer counts this test: it was cancelled, or its link has no limit now."
        return ""

    def _collect(self, child: _Child) -> None:
        test_id, code = child.test.test_id, child.process.returncode
        del self._children[test_id]
        try:
            report = parse_report(_all_of(child.output, MAX_REPORT_BYTES + 1))
            if child.why_ended and report["outcome"] != "completed":
                report |= {"outcome": "cut", "why": child.why_ended}
        except ValueError as exc:
            last = _all_of(child.errors, 4096).decode("utf-8", "replace").strip().rpartition("\n")[2][:300]
            why = f"The sending end ended with code {code}, and {exc}." + (f" It said: {last}" if last else "")
            report = made_report("cut", child.why_ended) if child.why_ended else made_report("error", why)
        for stream in (child.output, child.errors):
            stream.close()
        self._kept.end(test_id, report, self._now())
        say = self._log.warning if report["outcome"] == "error" else self._log.info
        say("test.end", test=test_id, outcome=report["outcome"], why=report["why"] or None)


def _bound(pid: int, seconds: float) -> None:
    for what, most in (
        (resource.RLIMIT_CPU, math.ceil(seconds) + 1),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_AS, 512 * _MIB),
        (resource.RLIMIT_FSIZE, 2 * MAX_REPORT_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        with contextlib.suppress(ProcessLookupError):  # it has ended
            resource.prlimit(pid, what, (most, most))


def _all_of(stream: IO[bytes], most: int) -> bytes:
    stream.seek(0)
    return stream.read(most)
