"""The lock of a running agent whose file somebody deletes. (How commands meet it: test_agent_commands.)"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ap_agent.errors import LockHeldError
from ap_agent.lock import AgentLock, holder, lock_path


def test_a_deleted_lock_file_is_made_again_and_keeps_others_out(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with AgentLock(run_dir, "run") as lock:
        for delete in (lambda: lock_path(run_dir).unlink(), lambda: shutil.rmtree(run_dir)):
            delete()
            lock.keep()
            found = holder(lock_path(run_dir))
            assert found is not None
            assert found.command == "run"
            with pytest.raises(LockHeldError), AgentLock(run_dir, "once"):
                pass
    with AgentLock(run_dir, "once"):
        pass


def test_whoever_finds_another_one_in_its_place_hears_of_it(tmp_path: Path) -> None:
    with AgentLock(tmp_path, "run") as first:
        lock_path(tmp_path).unlink()
        with AgentLock(tmp_path, "once"), pytest.raises(LockHeldError, match="`once` is at work"):
            first.keep()
        first.keep()


def test_a_lock_that_nobody_touched_is_not_written_again(tmp_path: Path) -> None:
    with AgentLock(tmp_path, "run") as lock:
        before = lock_path(tmp_path).stat()
        lock.keep()
        assert lock_path(tmp_path).stat() == before
