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

import pytest

from lab.demo.world import PREFIX, USER_ASES
from measuring.iproute import RUN_NETNS, available

ROOT = Path(__file__).resolve().parents[2]
DEMO = [sys.executable, "-m", "lab.demo", "--no-wait", "--seconds", "4"]

TERMINAL_COLUMNS = 120

needs_root = pytest.mark.skipif(available() is not None, reason=f"demo: {available()}")


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in {"DJANGO_SETTINGS_MODULE", "SCIONLAB_VAR"}}


def _folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob(f"{PREFIX}-*"))


def _left_over() -> list[str]:
    return [path.name for path in RUN_NETNS.glob(f"{PREFIX}-*")] if RUN_NETNS.is_dir() else []


@pytest.mark.kernel
@pytest.mark.measured
@pytest.mark.alone
@needs_root
def test_demo_confirms_each_limit_and_leaves_nothing_after_one_that_was_killed() -> None:
    folders_before = _folders()
    killed = subprocess.Popen(
        DEMO,
        cwd=ROOT,
        env=_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while len(_left_over()) < 4 and time.monotonic() < deadline:  # until it has built a part of its network
        assert killed.poll() is None, "the demo ended before it could be killed"
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    corpses = _left_over()
    assert corpses, "nothing was left behind, so nothing is shown to be cleaned up"

    done = subprocess.run(
        DEMO,
        cwd=ROOT,
        env=_environment(),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=240,
    )

    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    removed = re.search(r"the remains of a killed demo: ([0-9]+) network namespaces, 1 folder", done.stdout)
    assert removed is not None, done.stdout[:500]
    assert int(removed.group(1)) >= len(corpses)
    assert max(map(len, done.stdout.splitlines())) <= TERMINAL_COLUMNS
    for user_as in USER_ASES:
        assert re.search(rf"^  {re.escape(user_as.label)} +{user_as.kbit:,} ", done.stdout, flags=re.MULTILINE), (
            user_as.label
        )
    assert re.search(r"^  Pinned key: [0-9a-f]{32}, valid until ", done.stdout, flags=re.MULTILINE)
    assert re.search(r"^  Median from Save to the kernel: 0\.[0-9]{2} s", done.stdout, flags=re.MULTILINE)
    assert "would make 0 writes" in done.stdout
    assert re.search(
        r"^  Together 1[12],[0-9]{3} kbit/s to the user ASes and 1[12],[0-9]{3} from", done.stdout, re.MULTILINE
    )
    assert "The site says: All links together carry at most 12\N{NO-BREAK SPACE}Mbit/s" in done.stdout
    assert re.search(
        r"^  [0-9]+ of [0-9,]+ packets lost, [0-9,]+ counted as above the limit\.$", done.stdout, re.MULTILINE
    )
    assert "The site says: Observed: nothing is limited" in done.stdout
    assert re.search(r"^ +5 +17-ffaa:1:5 +observed +to the user AS ", done.stdout, re.MULTILINE)
    watched = r"full for [0-9]+ of [0-9]+ s, [0-9]+ % dropped"
    assert re.search(rf"^  Anna +watch +{watched}  {watched}$", done.stdout, re.MULTILINE)
    tested = r"enforced, [0-9]{3} of 500 kbit/s"
    assert re.search(rf"^  Anna +quick +{tested}  {tested}$", done.stdout, re.MULTILINE)
    assert _left_over() == []
    assert _folders() - folders_before == set()


def test_demo_without_root_says_what_it_cannot_show_and_shows_the_rest() -> None:
    # Root without a single capability: may read the checkout wherever it is, but not make a namespace.
    command = ["setpriv", "--inh-caps=-all", "--bounding-set=-all", *DEMO] if os.geteuid() == 0 else DEMO
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=_environment() | {"HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=240,
    )
    assert done.returncode == 3, done.stdout + done.stderr
    assert "cannot enforce limits and measure them" in done.stdout
    assert "etwork namespaces" in done.stdout.splitlines()[0]
    assert "etc/scion/link_info.json" in done.stdout
    assert "link 1: 500 kbit/s, 192.0.2.11 port 50000" in done.stdout
    assert re.search(
        r"^ +1 +17-ffaa:1:1 +192\.0\.2\.11:50000 +none +500\skbit/s +limit$", done.stdout, flags=re.MULTILINE
    )
    assert "Not shown: limits in the kernel and measured traffic." in done.stdout
