"""A setting that is missing or malformed stops the start; the error names the variable, the value and the remedy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from scionlab.settings import env

ROOT = Path(__file__).resolve().parents[2]
PRODUCTION = {
    "DJANGO_SETTINGS_MODULE": "scionlab.settings.prod",
    "SECRET_KEY": "not-a-secret-but-long-enough-to-pass-the-deployment-check-of-django-0123456789",
    "SIGNING_SECRET": "not-a-secret-but-long-enough-to-encrypt-keys-with",
    "TRUSTED_PROXIES": "1",
    "DATABASE_URL": "postgres://lab@localhost/lab",
    "REDIS_URL": "redis://localhost",
    "ALLOWED_HOSTS": "lab.example.org",
    "SITE_URL": "https://lab.example.org",
}


def test_a_variable_without_default_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANTED", raising=False)
    with pytest.raises(ImproperlyConfigured, match="The environment variable WANTED is not set"):
        env.text("WANTED")


@pytest.mark.parametrize("written", ["", "x", "-1", "1.5", "1e3", "٣", "70000", "9" * 40])
def test_a_number_out_of_form_or_bounds_is_refused(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv("PORT", written)
    with pytest.raises(ImproperlyConfigured) as refused:
        env.integer("PORT", 25, low=1, high=65_535)
    assert str(refused.value) == f'PORT is "{written}". Set it to a whole number from 1 to 65535.'


def test_numbers_and_truth_values_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "587")
    monkeypatch.setenv("ON", "True")
    monkeypatch.setenv("OFF", "0")
    assert env.integer("PORT", 25) == 587
    assert env.integer("UNSET_PORT", 25) == 25
    assert (env.boolean("ON", False), env.boolean("OFF", True), env.boolean("UNSET_FLAG", True)) == (True, False, True)


def test_a_word_is_no_truth_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAG", "maybe")
    with pytest.raises(ImproperlyConfigured, match=re.escape('FLAG is "maybe". Set it to 1 or 0.')):
        env.boolean("FLAG", False)


@pytest.mark.parametrize(
    ("url", "names"),
    [
        ("mysql://lab@localhost/lab", 'its scheme is "mysql"'),
        ("postgres://lab@localhost", "postgres://user:password@host:5432/name"),
        ("postgres://lab@localhost:port/lab", "a port that is no number"),
    ],
)
def test_a_database_of_another_form_is_refused_without_showing_it(
    monkeypatch: pytest.MonkeyPatch, url: str, names: str
) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    with pytest.raises(ImproperlyConfigured) as refused:
        env.database("DATABASE_URL", "unused")
    assert names in str(refused.value)
    assert "lab@" not in str(refused.value)  # a database address holds a password


def test_a_database_on_a_socket_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://postgres:p%40ss@/lab?host=%2Frun%2Fpg")
    found = env.database("DATABASE_URL", "unused")
    assert (found["NAME"], found["USER"], found["PASSWORD"], found["HOST"]) == ("lab", "postgres", "p@ss", "/run/pg")


@pytest.mark.parametrize("missing", sorted(set(PRODUCTION) - {"DJANGO_SETTINGS_MODULE"}))
def test_production_does_not_start_without(missing: str, tmp_path: Path) -> None:
    environment = {name: value for name, value in PRODUCTION.items() if name != missing}
    done = _start(environment, tmp_path)
    assert done.returncode != 0
    assert f"The environment variable {missing} is not set" in done.stderr


@pytest.mark.parametrize("empty", sorted(set(PRODUCTION) - {"DJANGO_SETTINGS_MODULE"}))
def test_production_does_not_start_with_an_empty_one(empty: str, tmp_path: Path) -> None:
    done = _start({**PRODUCTION, empty: ""}, tmp_path)
    assert done.returncode != 0
    assert re.search(rf'The environment variable {empty} is not set|{empty} is ""', done.stderr)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SITE_URL", "lab.example.org"),
        ("SITE_URL", "https://lab.example.org/'; reboot"),
        ("SITE_URL", "ftp://lab.example.org"),
        ("REDIS_URL", "localhost:6379"),
        ("REDIS_URL", "http://localhost"),
        ("API_THROTTLE_ANON", "60"),
        ("API_THROTTLE_USER", "many/min"),
        ("API_THROTTLE_TOKEN", "10/fortnight"),
        ("LOG_LEVEL", "loud"),
        ("SWEEP_INTERVAL_S", "0"),
        ("TRUSTED_PROXIES", "yes"),
        ("UNDERLAY_GLOBAL_ONLY", "2"),
        ("LOGIN_FAILURES", "0"),
        ("LOGIN_LOCK_S", "never"),
        ("SESSION_AGE_S", "1"),
        ("ALLOWED_HOSTS", "lab.example.org,*"),
        ("CACHE_URL", "http://localhost"),
    ],
)
def test_a_malformed_value_stops_the_start_and_is_named(name: str, value: str, tmp_path: Path) -> None:
    done = _start({**PRODUCTION, name: value}, tmp_path)
    assert done.returncode != 0
    assert re.search(rf"ImproperlyConfigured: {name} is ", done.stderr)


def test_production_starts_with_every_secret_in_a_file(tmp_path: Path) -> None:
    files = {
        "SECRET_KEY": PRODUCTION["SECRET_KEY"],
        "SIGNING_SECRET": PRODUCTION["SIGNING_SECRET"],
        "SIGNING_SECRET_FALLBACKS": "",
        "POSTGRES_PASSWORD": "p:a/s%s",
        "EMAIL_PASSWORD": "quite-secret",
        "METRICS_TOKEN": "x" * 32,
    }
    environment = {name: value for name, value in PRODUCTION.items() if name not in files}
    for name, content in files.items():
        (tmp_path / name).write_text(f"{content}\n")
        environment[f"{name}_FILE"] = str(tmp_path / name)
    show = (
        "from django.conf import settings as s; print([s.SECRET_KEY, s.SIGNING_SECRET, s.SIGNING_SECRET_FALLBACKS, "
        "s.DATABASES['default']['PASSWORD'], s.EMAIL_HOST_PASSWORD, s.METRICS_TOKEN])"
    )
    done = _start({**environment, "DATABASE_URL": "postgres://lab@localhost/lab"}, tmp_path, show)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == repr(
        [files["SECRET_KEY"], files["SIGNING_SECRET"], [], "p:a/s%s", "quite-secret", "x" * 32]
    )


def test_a_secret_in_a_file_and_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("one")
    monkeypatch.setenv("KEY", "another")
    monkeypatch.setenv("KEY_FILE", str(tmp_path / "key"))
    with pytest.raises(ImproperlyConfigured, match=re.escape("Both KEY and KEY_FILE are set. Unset one of them.")):
        env.text("KEY")


def test_a_file_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KEY_FILE", str(tmp_path / "key"))
    with pytest.raises(ImproperlyConfigured) as refused:
        env.text("KEY")
    assert str(refused.value) == (
        f'KEY_FILE is "{tmp_path}/key", which cannot be read: No such file or directory. Correct it.'
    )
    (tmp_path / "key").write_bytes(b"\xff")
    with pytest.raises(ImproperlyConfigured, match="it is not UTF-8 text"):
        env.text("KEY")


@pytest.mark.parametrize("name", ["SECRET_KEY", "SIGNING_SECRET"])
def test_a_short_secret_stops_the_start_and_is_not_shown(name: str, tmp_path: Path) -> None:
    done = _start({**PRODUCTION, name: "seventeen letters"}, tmp_path)
    assert done.returncode != 0
    assert f"ImproperlyConfigured: {name} has 17 characters." in done.stderr
    assert "seventeen letters" not in done.stderr


def test_keys_are_not_encrypted_with_the_secret_of_cookies(tmp_path: Path) -> None:
    done = _start({**PRODUCTION, "SIGNING_SECRET": PRODUCTION["SECRET_KEY"]}, tmp_path)
    assert done.returncode != 0
    assert "ImproperlyConfigured: SIGNING_SECRET is the same as another secret" in done.stderr
    assert PRODUCTION["SECRET_KEY"] not in done.stderr


def test_production_starts_with_all_of_them(tmp_path: Path) -> None:
    done = _start(PRODUCTION, tmp_path)
    assert done.returncode == 0, done.stderr


def _start(environment: dict[str, str], var: Path, then: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"import django; django.setup(); {then}"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "SCIONLAB_VAR": str(var), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
