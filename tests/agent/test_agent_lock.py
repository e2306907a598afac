"""The locks of agent and limiter: who has one, who sees that, and what happens where somebody deletes the file."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ap_agent.common.errors import AgentError, LockHeldError
from ap_agent.common.lock import Holder, Lock, holder, lock_path, pid_path
from measuring.iproute import run_command


def test_a_deleted_lock_file_is_made_again_and_keeps_others_out(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with Lock(run_dir, "limiter", "run") as lock:
        for delete in (lambda: lock_path(run_dir, "limiter").unlink(), lambda: shutil.rmtree(run_dir)):
            delete()
            lock.keep()
            assert holder(run_dir, "limiter") == Holder(os.getpid(), "run")
            with pytest.raises(LockHeldError), Lock(run_dir, "limiter", "once"):
                pass
    with Lock(run_dir, "limiter", "once"):
        pass


def test_whoever_finds_another_one_in_its_place_hears_of_it(tmp_path: Path) -> None:
    with Lock(tmp_path, "agent", "run") as first:
        lock_path(tmp_path, "agent").unlink()
        with Lock(tmp_path, "agent", "once"), pytest.raises(LockHeldError, match="`once` is running"):
            first.keep()
        first.keep()


def test_another_user_sees_who_has_the_lock_and_takes_nothing_by_asking() -> None:
    """The agent asks whether the limiter lives, and runs as somebody who may not even signal it."""
    with TemporaryDirectory() as name, Lock(folder := Path(name), "limiter", "run"):  # others may not enter tmp_path
        folder.chmod(0o755)
        child = os.fork()
        if child == 0:
            os.setuid(65534)
            os._exit(0 if all(holder(folder, "limiter") == Holder(os.getppid(), "run") for _ in range(3)) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_no_read_lock_of_another_user_keeps_the_limiter_from_starting() -> None:
    """`nobody` locks for reading whatever it may open, and keeps that: no write permission is needed for it."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        with Lock(folder, "limiter", "run"):
            pass
        child = os.fork()
        if child == 0:
            os.setuid(65534)
            for path in folder.iterdir():
                with contextlib.suppress(OSError):
                    fcntl.lockf(os.open(path, os.O_RDONLY), fcntl.LOCK_SH | fcntl.LOCK_NB)
            os.kill(os.getpid(), signal.SIGSTOP)
            os._exit(0)
        try:
            os.waitpid(child, os.WUNTRACED)
            for command in ("run", "once", "reset"):
                with Lock(folder, "limiter", command) as lock:
                    lock.keep()
                    assert holder(folder, "limiter") == Holder(os.getpid(), command)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_the_lock_file_is_for_its_owner_alone_whatever_it_was(tmp_path: Path) -> None:
    lock_path(tmp_path, "limiter").touch(0o666)
    with Lock(tmp_path, "limiter", "run"):
        assert lock_path(tmp_path, "limiter").stat().st_mode & 0o777 == 0o600
        assert pid_path(tmp_path, "limiter").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("full", ["size", "nr_inodes"])
def test_a_full_file_system_and_a_lost_lock_file_are_no_other_process(tmp_path: Path, full: str) -> None:
    """`size`: a new file, and no byte for it. `nr_inodes`: no new file."""
    run_command(["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=8", "tmpfs", str(tmp_path)])
    try:
        with Lock(tmp_path, "limiter", "run") as lock:
            for number in range(4 if full == "nr_inodes" else 1):
                with contextlib.suppress(OSError):
                    (tmp_path / f"filler-{number}").write_bytes(bytes(100_000 if full == "size" else 0))
            lock_path(tmp_path, "limiter").unlink()
            pid_path(tmp_path, "limiter").unlink()
            if full == "nr_inodes":
                for number in range(4, 8):
                    with contextlib.suppress(OSError):
                        (tmp_path / f"filler-{number}").touch()
            for _ in range(3):
                with contextlib.nullcontext() if full == "size" else pytest.raises(AgentError, match="No space left"):
                    lock.keep()
            for filler in tmp_path.glob("filler-*"):
                filler.unlink()
            lock.keep()
            with pytest.raises(LockHeldError), Lock(tmp_path, "limiter", "once"):
                pass
    finally:
        run_command(["umount", str(tmp_path)])
