"""The embedded set-up is proven by the demo itself: SQLite, file broker, a real worker, a real agent, real packets."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from lab.demo.world import PREFIX
from measuring.iproute import RUN_NETNS, available

ROOT = Path(__file__).resolve().parents[2]
DEMO = [sys.executable, "-m", "lab.demo", "--no-wait", "--seconds", "4"]

needs_root = pytest.mark.skipif(available() is not None, reason=f"demo: {available()}")


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in {"DJANGO_SETTINGS_MODULE", "SCIONLAB_VAR"}}


def _folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob(f"{PREFIX}-*"))


def _demo(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, env=_environment() | environment, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, check=False, timeout=240,
    )  # fmt: skip


def _left_over() -> list[str]:
    return [path.name for path in RUN_NETNS.glob(f"{PREFIX}-*")] if RUN_NETNS.is_dir() else []


@pytest.mark.kernel
@pytest.mark.measured
@pytest.mark.alone
@needs_root
def test_demo_confirms_each_limit_and_leaves_nothing_after_one_that_was_killed() -> None:
    folders_before = _folders()
    quiet: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    killed = subprocess.Popen(DEMO, cwd=ROOT, env=_environment(), **quiet)
    deadline = time.monotonic() + 60
    while len(_left_over()) < 4 and time.monotonic() < deadline:  # until it has built a part of its network
        assert killed.poll() is None, "the demo ended before it could be killed"
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    corpses = _left_over()
    assert corpses, "nothing was left behind, so nothing is shown to be cleaned up"

    done = _demo(DEMO)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    removed = re.search(r"the remains of a killed demo: ([0-9]+) network namespaces, 1 folder", done.stdout)
    assert removed is not None, done.stdout[:500]
    assert int(removed.group(1)) >= len(corpses)
    assert re.search(r"^All [1-9][0-9]+ checks passed: ", done.stdout, flags=re.MULTILINE)
    assert "would make 0 writes" in done.stdout
    assert _left_over() == []
    assert _folders() - folders_before == set()


def test_demo_without_root_says_what_it_cannot_show_and_shows_the_rest() -> None:
    # Root without a single capability: may read the checkout wherever it is, but not make a namespace.
    command = ["setpriv", "--inh-caps=-all", "--bounding-set=-all", *DEMO] if os.geteuid() == 0 else DEMO
    done = _demo(command, HOME="/nonexistent")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "cannot enforce limits and measure them" in done.stdout
    assert "link 1: 500 kbit/s, 192.0.2.11 port 50000" in done.stdout
    assert "Not shown: limits in the kernel and measured traffic." in done.stdout
