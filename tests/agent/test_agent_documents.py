"""Files and JSON that others wrote: whatever they are, the agent neither waits nor speaks of its own inside."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from ap_agent.commands import operator_choice
from ap_agent.common.errors import StoreError
from ap_agent.common.files import parse_json
from ap_agent.common.outcome import NOT_DONE
from ap_agent.document import live, series, state, trust
from tests.agent_host import Host

NESTED = "nested too deeply|invalid JSON at character"  # 60 000 levels are read by Python 3.14, to the missing end
DEEP = '{"a":' * 100_000 + "1" + "}" * 100_000


def pipe_at(path: Path) -> Path:
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    return path


def socket_at(path: Path) -> Path:
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(str(path))
    bound.close()
    return path


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("make", "words"), [(pipe_at, "it is a named pipe"), (socket_at, "it is a socket")])
def test_link_info_that_is_no_file_is_refused_at_once(host: Host, make: Callable[[Path], Path], words: str) -> None:
    path = make(host.folder / "odd")

    for command in ("once", "plan"):
        assert host.limiter(command, "--link-info", path) == NOT_DONE
        assert f"{path} cannot be read: {words}; name a plain file. Nothing was changed." in host.err
    assert host.thesis("-l", "-p", path) == NOT_DONE
    assert host.engine.passes == []


def test_files_of_ours_that_became_pipes_are_named(host: Host) -> None:
    host.limiter_state.mkdir(mode=0o700)
    pipe_at(host.limiter_state / "operator.json")
    assert host.thesis("-l") == NOT_DONE
    assert "operator.json cannot be read: it is a named pipe" in host.err
    for folder, name, command in ((host.run_dir, "health.json", "status"), (host.limiter_run, "state.json", "show")):
        folder.mkdir(exist_ok=True)
        pipe_at(folder / name)
        assert host.agent(command) == NOT_DONE
        assert "it is a named pipe" in host.err


# --- JSON -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (DEEP, "it is nested too deeply"),
        ('{"a": 1, "a": 2}', "a key occurs twice"),
        ("1" * 19, "a number has more than 18 digits"),
        ("0.5", "a number is not an integer"),
        ("{", "invalid JSON at character 1"),
        (b"\xff", "it is not UTF-8 at byte 0"),
    ],
)
def test_what_is_wrong_with_json_is_said(text: str | bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}$"):
        parse_json(text)


@pytest.mark.parametrize(
    ("name", "most", "read"),
    [
        (live.LOOKS_FILE, 64 * 1024, live.read_request),
        (series.FILE_NAME, 32 * 1024 * 1024, series.read_series),
        (state.FILE_NAME, 64 * 1024 * 1024, state.read_state),
        (trust.TRUST_FILE, 8 * 1024 * 1024, trust.load_trust),
        (operator_choice.FILE_NAME, 64 * 1024, operator_choice.load_choice),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_our_own_files_are_bounded_and_named_with_a_remedy(
    tmp_path: Path, name: str, most: int, read: Callable[[Path], object]
) -> None:
    assert not read(tmp_path) or read is operator_choice.load_choice
    path = tmp_path / name
    path.touch()
    os.truncate(path, most + 1)
    with pytest.raises(StoreError, match=rf"{name} cannot be used: it has more than {most} bytes\. [A-Z].*\.$"):
        read(tmp_path)
    path.write_bytes(b"[" * (most - 1 if most < 100_000 else 50_000))
    with pytest.raises(StoreError, match=f"{name} cannot be used: .*({NESTED})"):
        read(tmp_path)
