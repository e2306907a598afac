"""Where the configuration lets the agent write: checked at the start, so that nothing of somebody else is overwritten.

The state directory's own rule is in `store`, which asks it again before each write.
"""

from __future__ import annotations

from pathlib import Path

from ap_agent.agent.health import health_path
from ap_agent.agent.store import Store
from ap_agent.common.errors import SettingsError, StoreError
from ap_agent.common.files import parse_json, read_plain
from ap_agent.common.settings import Settings

_MAX_HEALTH_BYTES = 64 * 1024 * 1024
_METRICS_HEAD_BYTES = 64 * 1024


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
    _check_health_file(settings.run_dir)
    if settings.metrics_file is not None:
        _check_metrics_file(settings.metrics_file, settings)


def _check_health_file(run_dir: Path) -> None:
    path = health_path(run_dir)
    data = _content(path, "run_dir", "Choose another run_dir.", _MAX_HEALTH_BYTES)
    if not data:
        return
    try:
        document = parse_json(data, allows_fractions=True)
    except ValueError:
        document = None
    if not isinstance(document, dict) or "agent_version" not in document:
        raise SettingsError(
            f"run_dir = {run_dir} has a health.json that the agent did not write. Choose another run_dir, or delete "
            f"{path} if nobody needs it.",
            key="run_dir",
        )


def _check_metrics_file(path: Path, settings: Settings) -> None:
    if path == health_path(settings.run_dir) or path.is_relative_to(settings.state_dir):
        raise SettingsError(
            f"metrics_file = {path} is a place that the agent needs for something else. Name another file.",
            key="metrics_file",
        )
    remedy = "Name the file itself, for example /run/scionlab-bw-agent/metrics.prom."
    data = _content(path, "metrics_file", remedy, _METRICS_HEAD_BYTES)
    if data and b"scionlab_bw_agent_" not in data:
        raise SettingsError(
            f"metrics_file = {path} holds something else than metrics of the agent, and would be overwritten. Name "
            "another file, or delete that one if nobody needs it.",
            key="metrics_file",
        )


def _content(path: Path, key: str, remedy: str, max_bytes: int) -> bytes:
    """What is at a place that the agent replaces; empty where nothing is."""
    if path.is_symlink():
        raise SettingsError(f"{key}: {path} is a symbolic link, which the agent would replace. {remedy}", key=key)
    try:
        return read_plain(path, max_bytes)[0]
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError as exc:
        raise SettingsError(f"{key}: {path} cannot be used: {exc.strerror}. {remedy}", key=key) from exc
