"""Each configuration key: what is accepted, what is refused, and with which words."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ap_agent.agent.settings import load_settings
from ap_agent.common.errors import SettingsError
from ap_agent.common.settings import ENVIRONMENT_PREFIX, KEYS, Settings, settings_of_limiter

ROOT = Path(__file__).resolve().parents[2]
SECRET = "s3cret-of-the-host"
SERVICE = f'url = "https://service.example"\nhost_id = "4f1c"\nhost_secret = "{SECRET}"\n'


def load(tmp_path: Path, text: str, environment: dict[str, str] | None = None, **overrides: Any) -> Settings:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    path.chmod(0o640)
    return load_settings(path, environment or {}, overrides)


def test_environment_wins_over_stored_choice_and_that_over_the_file(tmp_path: Path) -> None:
    text = "default_bandwidth_kbit = 1000\n"

    assert load(tmp_path, text).default_bandwidth_kbit == 1000
    assert load(tmp_path, text, default_bandwidth_kbit=2000).default_bandwidth_kbit == 2000
    environment = {"SCIONLAB_BW_DEFAULT_BANDWIDTH_KBIT": "3000", "HOME": "/root"}
    assert load(tmp_path, text, environment, default_bandwidth_kbit=2000).default_bandwidth_kbit == 3000


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        ("INTERFACES", "eth0, tun0", ("eth0", "tun0")),
        ("CONFIRM_CONFIG", "true", True),
        ("POLL_INTERVAL_S", "0.5", 0.5),
        ("RUN_DIR", "/tmp/x", Path("/tmp/x")),  # noqa: S108  # only a name
    ],
)
def test_environment_is_read(variable: str, text: str, value: object) -> None:
    settings = load_settings(None, {ENVIRONMENT_PREFIX + variable: text})

    assert getattr(settings, variable.lower()) == value


# the line, the key that is named, a piece of the remedy
REFUSED = [
    ('uri = "https://x"', "uri", 'Did you mean "url"?'),
    ("url = 5", "url", "in quotes"),
    ('url = "www.example.org"', "url", "https://www.scionlab.org"),
    ('url = "https://[::1"', "url", "https://www.scionlab.org"),
    ('url = "https://host:pass@x"', "url", "host_id and host_secret"),
    ('url = "https://x/?a=b"', "url", "without ?"),
    ('url = "https://x"', "host_id", "copy it"),
    ('host_id = "a:b"', "host_id", "copy the host id"),
    ('host_secret = "two words"', "host_secret", "no spaces"),
    ('state_dir = "state"', "state_dir", "absolute"),
    ('allow_plain_http = "yes"', "allow_plain_http", "without quotes"),
    ('interfaces = "eth0"', "interfaces", "list"),
    ('protect = "192.0.2.0/24"', "protect", "list"),
    ('protect = ["192.0.2.1/24"]', "protect", "host bits"),
    ('interfaces = ["eth0; reboot"]', "interfaces", "not an interface name"),
    ('interfaces = ["eth0", "eth0"]', "interfaces", "twice"),
    ('unmatched = "drop"', "unmatched", '"unlimited" or "default"'),
    ("default_bandwidth_kbit = true", "default_bandwidth_kbit", "whole number"),
    ("default_bandwidth_kbit = 0", "default_bandwidth_kbit", "SSH"),
    ("default_bandwidth_kbit = 100_000_001", "default_bandwidth_kbit", "Choose at most"),
    ("poll_interval_s = 0", "poll_interval_s", "from 0.1 to 86400"),
    ("poll_interval_s = nan", "poll_interval_s", "from 0.1 to 86400"),
    ('read_timeout_s = "5"', "read_timeout_s", "number of seconds"),
    ("max_bundle_bytes = 1", "max_bundle_bytes", "from 1024"),
    ('log_level = "loud"', "log_level", '"debug"'),
]


@pytest.mark.parametrize(("line", "key", "remedy"), REFUSED)
def test_bad_line_is_refused_with_key_and_remedy(tmp_path: Path, line: str, key: str, remedy: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(tmp_path, line)

    assert refused.value.key == key
    assert key in refused.value.message
    assert remedy in refused.value.message
    assert refused.value.message.endswith((".", "?"))


# --- the limiter's own reading ----------------------------------------------------------------------------------------


def test_the_limiter_starts_without_a_usable_enrolment_and_says_why(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text('credentials_file = "/does/not/exist"\ninterfaces = ["eth0"]\n')

    settings, broken = settings_of_limiter(path, {})

    assert (settings.interfaces, settings.host_id) == (("eth0",), None)
    assert broken is not None
    assert broken.key == "credentials_file"


# --- the secret -----------------------------------------------------------------------------------------------------


def test_secret_is_in_no_representation(tmp_path: Path) -> None:
    settings = load(tmp_path, SERVICE)

    assert settings.host_secret == SECRET
    assert SECRET not in repr(settings)


@pytest.mark.parametrize(
    "text",
    [
        f'url = "https://host:{SECRET}@x"',
        f'host_secret = "{SECRET}',
        f'host_secret = "{SECRET}"\nhost_secret = "{SECRET}"',
        f'host_secret = "{SECRET} {SECRET}"',
    ],
)
def test_secret_is_in_no_message(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(tmp_path, text)

    assert SECRET not in str(refused.value)


def test_configuration_with_a_secret_must_not_be_public(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(SERVICE)
    path.chmod(0o644)

    with pytest.raises(SettingsError, match="chmod o-rwx"):
        load_settings(path, {})


# --- the way to the service -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["http://service.example", "http://192.0.2.1:8000", "http://localhost.evil.example"])
def test_plain_http_to_another_machine_must_be_allowed(tmp_path: Path, url: str) -> None:
    text = SERVICE.replace("https://service.example", url)

    with pytest.raises(SettingsError, match="allow_plain_http"):
        load(tmp_path, text)
    assert load(tmp_path, text + "allow_plain_http = true\n").url == url


# --- documentation --------------------------------------------------------------------------------------------------


def test_example_documents_every_key_with_its_default(tmp_path: Path) -> None:
    lines = (ROOT / "packaging" / "agent.toml.example").read_text().splitlines()
    shown = {match[1]: match[2] for line in lines if (match := re.fullmatch(r"#?([a-z_]+) = (.+)", line))}

    assert set(shown) == set(KEYS)
    for name, written in shown.items():
        default = getattr(Settings(), name)
        if default is None or name == "service_keys":
            continue  # an example stands there
        value = tomllib.loads(f"x = {written}")["x"]
        assert KEYS[name].check(value) == default, name


def test_example_is_accepted_as_it_is(tmp_path: Path) -> None:
    text = (ROOT / "packaging" / "agent.toml.example").read_text()
    by_hand = re.sub(r"^#(url|host_id|host_secret|service_keys) =", r"\1 =", text, flags=re.MULTILINE)

    assert load(tmp_path, text).url is None
    settings = load(tmp_path, by_hand)

    assert (settings.url, settings.host_secret) == ("https://www.scionlab.org", "fedcba9876543210fedcba9876543210")
    assert [one.key_id for one in settings.service_keys] == ["5b1e1fb7f0f793b1ce9564742cf88101"]
