"""The configuration of both processes: one frozen value, from agent.toml and the environment, checked at start.

Every key is a field of `Settings`, with its validators. An unknown key or an invalid value is a `SettingsError` with
key, value and remedy. The environment (`SCIONLAB_BW_<KEY>`) takes precedence over the file.

The host's secret is in no `repr`, no message and no log line.
"""

from __future__ import annotations

import difflib
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from ap_agent.common.credentials import check_host_id, check_secret, check_url, credentials_path, read_credentials
from ap_agent.common.errors import SettingsError
from ap_agent.common.files import read_toml
from ap_agent.common.keys import TrustedKey
from ap_agent.common.setting_kinds import (
    a_bandwidth,
    a_boolean,
    an_absolute_path,
    an_address_to_listen_on,
    an_interval_or_never,
    interface_names,
    networks,
    one_of,
    parse_boolean,
    parse_number,
    parse_whole,
    pinned_keys,
    seconds_between,
    whole_between,
)
from bandwidth_config import INITIAL_DEFAULT_BANDWIDTH_KBIT

DEFAULT_CONFIG = Path("/etc/scionlab-bw/agent.toml")
ENVIRONMENT_PREFIX = "SCIONLAB_BW_"
_MAX_CONFIG_BYTES = 1024 * 1024
_MIB = 1024 * 1024


@dataclass(frozen=True)
class Key:
    """One configuration key. `check` converts the TOML value to the setting; `parse` converts text to a TOML value.
    Both raise `ValueError` with the remedy as its text."""

    wanted: str
    check: Callable[[Any], Any]
    parse: Callable[[str], Any] = str


def _seconds(low: float, high: float) -> Key:
    return Key("seconds", seconds_between(low, high), parse_number)


_Folder = Annotated[Path, Key("a folder", an_absolute_path)]
_File = Annotated[Path | None, Key("a file", an_absolute_path)]
_Switch = Annotated[bool, Key("true or false", a_boolean, parse_boolean)]
_Networks = Key("a list of networks", networks, lambda text: [one.strip() for one in text.split(",") if one])
_Names = Key("a list of interfaces", interface_names, lambda text: [one.strip() for one in text.split(",") if one])


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The operator's settings; packaging/agent.toml.example describes each key. Intervals are seconds."""

    url: Annotated[str | None, Key("the URL of the Coordination Service", check_url)] = None
    host_id: Annotated[str | None, Key("the id of this host", check_host_id)] = None
    host_secret: Annotated[str | None, Key("the secret of this host", check_secret)] = field(default=None, repr=False)
    service_keys: Annotated[
        tuple[TrustedKey, ...], Key("a list of public keys", pinned_keys, lambda text: text.split(","))
    ] = ()
    credentials_file: _File = None
    allow_unsigned: _Switch = False
    ca_file: Annotated[Path | None, Key("a PEM file with the certificates to trust", an_absolute_path)] = None
    allow_plain_http: _Switch = False
    state_dir: _Folder = Path("/var/lib/scionlab-bw-agent")
    run_dir: _Folder = Path("/run/scionlab-bw-agent")
    limiter_state_dir: _Folder = Path("/var/lib/scionlab-bw-limiter")
    limiter_run_dir: _Folder = Path("/run/scionlab-bw-limiter")
    maps_dir: _Folder = Path("/sys/fs/bpf/scionlab-bw")
    uplinks_file: _Folder = Path("/etc/scionlab-bw/uplinks.toml")
    routes_dir: _Folder = Path("/var/lib/scionlab-bw-routes")
    interfaces: Annotated[tuple[str, ...], _Names] = ()
    protect: Annotated[tuple[IPv4Network | IPv6Network, ...], _Networks] = ()
    unmatched: Annotated[
        Literal["unlimited", "default"], Key('"unlimited" or "default"', one_of("unlimited", "default"))
    ] = "unlimited"
    default_bandwidth_kbit: Annotated[int, Key("kbit/s", a_bandwidth, parse_whole)] = INITIAL_DEFAULT_BANDWIDTH_KBIT
    observe_only: _Switch = False
    link_tests: _Switch = False
    poll_interval_s: Annotated[float, _seconds(0.1, 86_400)] = 10.0
    long_poll_s: Annotated[int, Key("seconds", whole_between(0, 60), parse_whole)] = 50
    backoff_max_s: Annotated[float, _seconds(1, 86_400)] = 300.0
    connect_timeout_s: Annotated[float, _seconds(0.1, 300)] = 5.0
    read_timeout_s: Annotated[float, _seconds(0.1, 300)] = 10.0
    fetch_deadline_s: Annotated[float, _seconds(0.1, 3_600)] = 60.0
    max_bundle_bytes: Annotated[int, Key("bytes", whole_between(1024, 256 * _MIB), parse_whole)] = 8 * _MIB
    receipt_interval_s: Annotated[float, _seconds(1, 86_400)] = 60.0
    usage_interval_s: Annotated[float, Key("seconds", an_interval_or_never(1, 30), parse_number)] = 10.0
    metrics_listen: Annotated[tuple[str, int] | None, Key("an address and a port", an_address_to_listen_on)] = None
    allow_remote_metrics: _Switch = False
    metrics_file: _File = None
    audit_interval_s: Annotated[float, _seconds(0.1, 86_400)] = 60.0
    start_wait_s: Annotated[float, _seconds(0, 300)] = 10.0
    confirm_config: _Switch = False
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Key("a level", one_of("debug", "info", "warning", "error"))
    ] = "info"
    # Path of the configuration file, whether or not it exists; not a setting itself.
    config_dir: Path = field(default=DEFAULT_CONFIG.parent, compare=False)

    def check_unchanged(self, fresh: Settings, *names: str) -> None:
        """Raises `SettingsError` if one of these differs, which only a restart can change."""
        for name in names:
            if getattr(fresh, name) != getattr(self, name):
                raise SettingsError(f"{name} cannot change while the program runs; restart it.", key=name)

    @property
    def unmatched_kbit(self) -> int | None:
        """Limit shared by all unmatched traffic in each direction; None: no limit."""
        return self.default_bandwidth_kbit if self.unmatched == "default" else None

    @property
    def state_valid_s(self) -> float:
        """How long a state of the limiter counts as current: three of its intervals (10 s without usage), and 30 s."""
        return 3 * (self.usage_interval_s or 10.0) + 30.0


_HINTS = get_type_hints(Settings, include_extras=True)
KEYS: Mapping[str, Key] = {name: hint.__metadata__[0] for name, hint in _HINTS.items() if hasattr(hint, "__metadata__")}


# --- reading --------------------------------------------------------------------------------------------------------


def settings_of_limiter(
    path: Path | None, environment: Mapping[str, str], overrides: Mapping[str, Any] | None = None
) -> tuple[Settings, SettingsError | None]:
    """The limiter's settings: trusted keys, no secret. If the enrolment is unusable: the settings without it, and the
    reason; the limits of its last document do not depend on it. Raises `SettingsError`."""
    settings = settings_without_enrolment(path, environment, overrides)
    try:
        file = credentials_path(settings.credentials_file, environment)
        return (with_credentials(settings, file) if file is not None else settings), None
    except SettingsError as exc:
        return settings, exc


def settings_without_enrolment(
    path: Path | None, environment: Mapping[str, str], overrides: Mapping[str, Any] | None = None
) -> Settings:
    """Settings without secrets, and without rules over several keys: for `enrol`."""
    values = _read_file(path)
    values.update(overrides or {})
    values.update(_read_environment(environment))
    folder = (path if path is not None else DEFAULT_CONFIG).absolute().parent
    return Settings(**values, config_dir=folder)


def set_by_hand(settings: Settings) -> list[str]:
    """Keys of an enrolment that are set in the configuration itself."""
    names = ("url", "host_id", "host_secret", "service_keys")
    return [name for name in names if getattr(settings, name)]


def _read_file(path: Path | None) -> dict[str, Any]:
    file = path if path is not None else DEFAULT_CONFIG
    try:
        document, _, found = read_toml(file, _MAX_CONFIG_BYTES)
    except FileNotFoundError:
        if path is None:
            return {}
        raise SettingsError(f"The configuration file {file} does not exist; give another with --config.") from None
    except OSError as exc:
        raise SettingsError(f"The configuration file {file} cannot be read: {exc.strerror}.") from exc
    except ValueError as exc:
        raise SettingsError(f"The configuration file {file} {exc}.") from exc
    values = {name: _setting(name, value, f"{file}") for name, value in document.items()}
    mode = stat.S_IMODE(found.st_mode)
    if "host_secret" in values and mode & 0o007:
        raise SettingsError(
            f"{file} contains host_secret and all users can read it (mode {mode:04o}); run `chmod o-rwx {file}`.",
            key="host_secret",
        )
    return values


def _read_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    values = {}
    for variable in sorted(environment):
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        name, where = variable.removeprefix(ENVIRONMENT_PREFIX).lower(), f"the environment variable {variable}"
        values[name] = _setting(name, environment[variable], where, is_text=True)
    return values


def _setting(name: str, value: Any, where: str, *, is_text: bool = False) -> Any:
    """The setting of a TOML value, or of text. Raises `SettingsError`."""
    if name not in KEYS:
        close = difflib.get_close_matches(name, KEYS, n=1)
        meant = f' Did you mean "{close[0]}"?' if close else f" The keys are: {', '.join(KEYS)}."
        raise SettingsError(f'{where}: unknown key "{name}".{meant}', key=name)
    key = KEYS[name]
    try:
        value = key.parse(value) if is_text else value
        return key.check(value)
    except ValueError as exc:
        shown = "(not shown)" if name == "host_secret" or (name == "url" and "@" in str(value)) else repr(value)
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        text = f"{where}: {name} = {shown} is not {key.wanted}: {str(exc).rstrip('.')}."
        raise SettingsError(text, key=name) from None


# --- rules over several keys ----------------------------------------------------------------------------------------


def with_credentials(settings: Settings, file: Path) -> Settings:
    by_hand = set_by_hand(settings)
    if by_hand:
        raise SettingsError(
            f"This host is enrolled ({file}), and {', '.join(by_hand)} {'is' if len(by_hand) == 1 else 'are'} set in "
            "the configuration too; which is ambiguous. Remove one of them.",
            key=by_hand[0],
        )
    found = read_credentials(file)
    return replace(
        settings, url=found.url, host_id=found.host_id, host_secret=found.host_secret, service_keys=found.keys
    )
