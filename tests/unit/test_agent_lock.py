"""The locks of agent and limiter: who has one, who sees that, and what happens where somebody deletes the file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ap_agent.common.errors import LockHeldError
from ap_agent.common.lock import Holder, Lock, holder, lock_path


def test_a_deleted_lock_file_is_made_again_and_keeps_others_out(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with Lock(run_dir, "limiter", "run") as lock:
        for delete in (lambda: lock_path(run_dir, "limiter").unlink(), lambda: shutil.rmtree(run_dir)):
            delete()
            lock.keep()
            assert holder(lock_path(run_dir, "limiter")) == Holder(os.getpid(), "run")
            with pytest.raises(LockHeldError), Lock(run_dir, "limiter", "once"):
                pass
    with Lock(run_dir, "limiter", "once"):
        pass


def test_agent_and_limiter_do_not_keep_each_other_out(tmp_path: Path) -> None:
    with Lock(tmp_path, "limiter", "run"), Lock(tmp_path, "agent", "run"):
        assert holder(lock_path(tmp_path, "agent")) == holder(lock_path(tmp_path, "limiter"))


def test_whoever_finds_another_one_in_its_place_hears_of_it(tmp_path: Path) -> None:
    with Lock(tmp_path, "agent", "run") as first:
        lock_path(tmp_path, "agent").unlink()
        with Lock(tmp_path, "agent", "once"), pytest.raises(LockHeldError, match="`once` is running"):
            first.keep()
        first.keep()


def test_a_service_that_runs_is_named_with_how_to_stop_it(tmp_path: Path) -> None:
    with Lock(tmp_path, "limiter", "run"), pytest.raises(LockHeldError) as refused:
        Lock(tmp_path, "limiter", "reset").__enter__()
    assert refused.value.message == (
        f"The limiter's service is running (pid {os.getpid()}). To work by hand, stop it first: "
        f"`systemctl stop scionlab-bw-limiter` (or end process {os.getpid()}); the limits stay in the kernel."
    )


def test_a_lock_that_nobody_touched_is_not_written_again(tmp_path: Path) -> None:
    with Lock(tmp_path, "agent", "run") as lock:
        before = lock_path(tmp_path, "agent").stat()
        lock.keep()
        assert lock_path(tmp_path, "agent").stat() == before


def test_a_dead_holder_holds_nothing_whatever_its_file_says(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from ap_agent.common.lock import Lock\n"
        "Lock(Path(sys.argv[1]), 'limiter', 'run').__enter__(); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, timeout=60)

    assert done.returncode == -9
    assert b'"command": "run"' in lock_path(tmp_path, "limiter").read_bytes()
    assert holder(lock_path(tmp_path, "limiter")) is None
    with Lock(tmp_path, "limiter", "run"):
        pass


def test_another_user_sees_who_has_the_lock_and_takes_nothing_by_asking() -> None:
    """The agent asks whether the limiter lives, and runs as somebody who may not even signal it."""
    with TemporaryDirectory() as name, Lock(folder := Path(name), "limiter", "run"):  # others may not enter tmp_path
        folder.chmod(0o755)
        path = lock_path(folder, "limiter")
        child = os.fork()
        if child == 0:
            os.setuid(65534)
            os._exit(0 if all(holder(path) == Holder(os.getppid(), "run") for _ in range(3)) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_holder_that_says_nothing_of_use_is_one_all_the_same(tmp_path: Path) -> None:
    with Lock(tmp_path, "agent", "run"):
        for content in ("", "[]", '{"pid": 1}'):
            lock_path(tmp_path, "agent").write_text(content)
            assert holder(lock_path(tmp_path, "agent")) == Holder(0, "")
    lock_path(tmp_path, "agent").unlink()
    assert holder(lock_path(tmp_path, "agent")) is None
