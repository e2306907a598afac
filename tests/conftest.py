"""What every test shares: with SLBW_NO_SKIPS=1 (CI) a skipped test makes the run fail."""

from __future__ import annotations

import os

import pytest

_skipped: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if os.environ.get("SLBW_NO_SKIPS") == "1" and _skipped and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _skipped and os.environ.get("SLBW_NO_SKIPS") == "1":
        terminalreporter.write_line(f"SLBW_NO_SKIPS=1: {len(_skipped)} skipped tests count as failures:", red=True)
        for name in _skipped:
            terminalreporter.write_line(f"  {name}")
