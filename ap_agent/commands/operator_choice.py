"""Settings stored by the thesis' command line: `<limiter_state_dir>/operator.json`, mode 0600.

{"default_bandwidth_kbit": 5000, "link_info": "/etc/scion/link_info.json"}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ap_agent.common.errors import StoreError
from ap_agent.common.files import parse_json, read_own, write_atomically
from ap_agent.common.ownership import as_owner_of
from ap_agent.common.setting_kinds import a_bandwidth
from ap_agent.common.settings import Settings, settings_of_limiter

FILE_NAME = "operator.json"
_MAX_BYTES = 64 * 1024


@dataclass(frozen=True)
class OperatorChoice:
    """None: not stored."""

    default_bandwidth_kbit: int | None = None
    link_info: Path | None = None


def load_choice(folder: Path) -> OperatorChoice:
    """Raises `StoreError`, `NotPermittedError`."""
    remedy = "Delete it, and set -b and -p again if you used them."
    return read_own(folder / FILE_NAME, _MAX_BYTES, _choice, remedy) or OperatorChoice()


def save_choice(folder: Path, choice: OperatorChoice) -> None:
    """Raises `StoreError`."""
    document = {name: value for name, value in vars(choice).items() if value is not None}
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with as_owner_of(folder):
            write_atomically(
                folder / FILE_NAME, json.dumps(document, indent=1, default=str).encode() + b"\n", mode=0o600
            )
    except OSError as exc:
        raise StoreError(f"{folder / FILE_NAME} cannot be written: {exc.strerror}.") from exc


def limiter_settings(config: Path | None, environment: Mapping[str, str]) -> tuple[Settings, OperatorChoice]:
    """File, then what `-b` stored, then the environment; without an unusable enrolment. Raises `SettingsError`,
    `StoreError`, `NotPermittedError`."""
    settings, _ = settings_of_limiter(config, environment)
    choice = load_choice(settings.limiter_state_dir)
    if choice.default_bandwidth_kbit is not None:
        overrides = {"unmatched": "default", "default_bandwidth_kbit": choice.default_bandwidth_kbit}
        settings, _ = settings_of_limiter(config, environment, overrides)
    return settings, choice


def _choice(data: bytes) -> OperatorChoice:
    document = parse_json(data)
    if not isinstance(document, dict) or not set(document) <= set(OperatorChoice.__dataclass_fields__):
        raise ValueError("it holds something else than default_bandwidth_kbit and link_info")
    kbit, link_info = document.get("default_bandwidth_kbit"), document.get("link_info")
    return OperatorChoice(
        a_bandwidth(kbit) if kbit is not None else None, Path(str(link_info)) if link_info is not None else None
    )
