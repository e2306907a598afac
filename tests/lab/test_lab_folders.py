"""Folders of a running program, and what `./dev run` says when it cannot serve."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import serve
from lab.folders import TemporaryFolder, claim, remove_abandoned

ROOT = Path(__file__).resolve().parents[2]
HOLDER = "from lab.folders import TemporaryFolder; f = TemporaryFolder('x'); print(f.path, flush=True); input()"


@pytest.fixture(autouse=True)
def _own_tmp_and_signals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = signal.getsignal(signal.SIGTERM)  # `./dev run` takes it
    yield
    signal.signal(signal.SIGTERM, before)


def test_a_folder_has_one_owner_at_a_time(tmp_path: Path) -> None:
    first = claim(tmp_path)
    assert first is not None
    assert claim(tmp_path) is None
    first.close()
    again = claim(tmp_path)
    assert again is not None
    again.close()


def test_a_killed_program_s_folder_is_removed_and_a_living_one_s_is_not(tmp_path: Path) -> None:
    code = f"import tempfile; tempfile.tempdir = {str(tmp_path)!r}; {HOLDER}"
    holder = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    folder = Path(holder.stdout.readline().strip())
    assert folder.is_dir()
    assert remove_abandoned("x") == []

    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    holder.stdin.close()

    assert remove_abandoned("x") == [folder]
    assert not folder.exists()


def test_a_folder_goes_with_its_program_unless_it_is_kept() -> None:
    gone, kept = TemporaryFolder("x"), TemporaryFolder("x")
    kept.keep()
    gone.close()
    kept.close()
    assert not gone.path.exists()
    assert kept.path.is_dir()
    assert remove_abandoned("x") == []


@pytest.mark.parametrize("bind", ["8013", "127.0.0.1:http", "127.0.0.1:99999"])
def test_run_refuses_a_malformed_address(bind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert serve.main(["--bind", bind, "--var", str(tmp_path / "var")]) == 1
    assert f"--bind {bind} is not ADDRESS:PORT" in capsys.readouterr().err


def test_run_names_a_port_that_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        assert serve.main(["--bind", bind, "--var", str(tmp_path / "var")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"./dev run: cannot serve on {bind}: Address already in use. Choose another with --bind ADDRESS:PORT.\n"
    )


def test_run_names_a_folder_that_it_cannot_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert serve.main(["--var", str(tmp_path / "file")]) == 1
    assert f"the state cannot be kept in {tmp_path / 'file'}: " in capsys.readouterr().err

    (tmp_path / "var").mkdir()
    other = claim(tmp_path / "var")
    assert other is not None
    with other:
        assert serve.main(["--var", str(tmp_path / "var")]) == 1
    assert "another ./dev run is using" in capsys.readouterr().err
