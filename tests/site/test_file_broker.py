"""Without Redis messages are files: whoever takes one finds it whole (scionlab.celery)."""

from __future__ import annotations

from pathlib import Path
from queue import Empty

import pytest
from kombu import Connection

from scionlab import celery


def test_message_can_be_taken_only_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kombu made the file, and then what is in it; a worker that looked in between ended."""
    queue = tmp_path / "queue"
    queue.mkdir()
    options = {"data_folder_in": str(queue), "data_folder_out": str(queue), "control_folder": str(tmp_path / "control")}
    replace, looked = Path.replace, []

    def look(self: Path, target: Path) -> Path:
        looked.append(_taken(channel))
        return replace(self, target)

    with Connection("filesystem://localhost", transport_options=options) as connection:
        channel = connection.channel()
        assert isinstance(channel, celery._WholeFiles)
        monkeypatch.setattr(Path, "replace", look)
        channel._put("scionlab", {"body": _Looks(channel)})

        assert looked == [None]
        assert _taken(channel) == {"body": "nothing there yet"}
        assert _taken(channel) is None
    assert list(queue.iterdir()) == []


class _Looks:
    """A part of a message that looks for messages while it is written."""

    def __init__(self, channel: object) -> None:
        self.channel = channel

    def __json__(self) -> str:
        return "nothing there yet" if _taken(self.channel) is None else "taken before it was written"


def _taken(channel: object) -> object:
    try:
        return channel._get("scionlab")  # type: ignore[attr-defined]
    except Empty:
        return None
