"""Where the configuration lets the agent write: checked at the start, so that nothing of somebody else is overwritten.

The state directory's own rule is in `store`, which asks it again before each write.
"""

from __future__ import annotations

from pathlib import Path

from ap_agent.agent.health import health_path
from ap_agent.agent.store import Store
from ap_agent.common.errors import SettingsError, StoreError
from ap_agent.common.files import read_plain
from ap_agent.common.settings import Settings

_HEAD_BYTES = 64 * 1024


def check_places(settings: Settings) -> None:
    """Raises `SettingsError` with the key and the remedy for a folder or file that is not the agent's."""
    try:
        Store(settings.state_dir).check_place()
    except StoreError as exc:
        raise SettingsError(exc.message, key="state_dir") from exc
    except OSError as exc:
        raise SettingsError(
            f"state_dir = {settings.state_dir} cannot be used: {exc.strerror}.", key="state_dir"
        ) from exc
    _refuse_foreign(health_path(settings.run_dir), "run_dir", b'"agent_version"', "Choose another run_dir")
    path = settings.metrics_file
    if path is None:
        return
    if path == health_path(settings.run_dir) or path.is_relative_to(settings.state_dir):
        raise SettingsError(
            f"metrics_file = {path} is a place that the agent needs for something else. Name another file.",
            key="metrics_file",
        )
    remedy = "Name a file of its own, for example /run/scionlab-bw-agent/metrics.prom"
    _refuse_foreign(path, "metrics_file", b"scionlab_bw_agent_", remedy)


def _refuse_foreign(path: Path, key: str, mark: bytes, remedy: str) -> None:
    """The agent replaces this file: it must not be there, or hold `mark`."""
    if path.is_symlink():
        raise SettingsError(f"{key}: {path} is a symbolic link, which the agent would replace. {remedy}.", key=key)
    try:
        data = read_plain(path, _HEAD_BYTES)[0]
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as exc:
        raise SettingsError(f"{key}: {path} cannot be used: {exc.strerror}. {remedy}.", key=key) from exc
    if data and mark not in data:
        raise SettingsError(
            f"{key}: {path} was not written by the agent, and would be overwritten. {remedy}, or delete that file if "
            "nobody needs it.",
            key=key,
        )
