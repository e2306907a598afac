"""The lock of a running agent whose file somebody deletes. (How commands meet it: test_agent_commands.)"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ap_agent.agent.health import is_running
from ap_agent.common.errors import LockHeldError
from ap_agent.common.lock import AgentLock, holder, lock_path


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


def test_another_process_that_got_the_pid_of_a_dead_agent_is_no_agent(tmp_path: Path) -> None:
    """Killed, and its number given to somebody else: this process, whose number it is, stands for that one."""
    with AgentLock(tmp_path, "run"):
        alive = json.loads(lock_path(tmp_path).read_bytes())
        assert is_running(tmp_path)
    lock_path(tmp_path).write_text(json.dumps(alive | {"started": alive["started"] - 1}))

    assert holder(lock_path(tmp_path)) is None
    assert not is_running(tmp_path)


def test_a_lock_file_that_says_nothing_of_use_names_nobody(tmp_path: Path) -> None:
    for content in ("", "[]", '{"pid": 1, "command": "run"}', '{"pid": 99999999, "started": 1, "command": "run"}'):
        lock_path(tmp_path).write_text(content)
        assert holder(lock_path(tmp_path)) is None
