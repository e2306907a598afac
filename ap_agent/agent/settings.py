"""Settings of the agent: its enrolment, and rules over several keys that concern the network."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ap_agent.common.credentials import credentials_path
from ap_agent.common.errors import SettingsError
from ap_agent.common.settings import Settings, settings_without_enrolment, with_credentials


def load_settings(
    path: Path | None, environment: Mapping[str, str], overrides: Mapping[str, Any] | None = None
) -> Settings:
    """The settings in force: defaults, then `path`, then `overrides` (stored by `-b`), then the environment. The
    enrolment comes from its own file (`credentials`), unless set by hand. With `path` None the default file is read if
    it exists; a given path must exist. Raises `SettingsError`."""
    settings = settings_without_enrolment(path, environment, overrides)
    file = credentials_path(settings.credentials_file, environment)
    if file is not None:
        settings = with_credentials(settings, file)
    _check_together(settings)
    return settings


def _check_together(settings: Settings) -> None:
    _check_metrics(settings)
    if settings.allow_unsigned and settings.service_keys:
        raise SettingsError(
            "allow_unsigned = true, but keys of the service are pinned. Remove allow_unsigned.",
            key="allow_unsigned",
        )
    if settings.url is None:
        return
    for name in ("host_id", "host_secret"):
        if getattr(settings, name) is None:
            raise SettingsError(
                f"url is set, but {name} is missing; copy it from the host's page in the admin.", key=name
            )
    check_transport(settings.url, allow_plain_http=settings.allow_plain_http, ca_file=settings.ca_file)


def _check_metrics(settings: Settings) -> None:
    """Metrics reveal attached user ASes and their traffic, so they must not be public by accident."""
    if settings.metrics_listen is None or settings.allow_remote_metrics:
        return
    address, _ = settings.metrics_listen
    if not ipaddress.ip_address(address).is_loopback:
        raise SettingsError(
            f"metrics_listen has the address {address}, which exposes the attached ASes and their traffic to "
            "other machines. Listen on 127.0.0.1, or set allow_remote_metrics = true if a firewall stands in front.",
            key="metrics_listen",
        )


def check_transport(url: str, *, allow_plain_http: bool, ca_file: Path | None) -> None:
    """Secrets must be encrypted in transit. Raises `SettingsError`."""
    parts = urlsplit(url)
    if parts.scheme == "http" and not allow_plain_http and not _is_loopback(parts.hostname or ""):
        raise SettingsError(
            f"url = {url} would send the host secret unencrypted to another machine. Use https, or in a lab set "
            "allow_plain_http = true.",
            key="url",
        )
    if ca_file is not None and not ca_file.is_file():
        raise SettingsError(
            f"ca_file = {ca_file} is not a file; name a PEM file with the certificates to trust.", key="ca_file"
        )


def _is_loopback(hostname: str) -> bool:
    if hostname == "localhost":
        return True
    try:
        return ipaddress.ip_address(hostname).is_loopback
    except ValueError:
        return False
