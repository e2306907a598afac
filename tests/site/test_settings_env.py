"""A setting that is missing or malformed stops the start; the error names the variable, the value and the remedy."""

from __future__ import annotations

import json
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


@pytest.mark.parametrize("written", ["", "1.5", "٣", "0", "65536"])
def test_a_number_out_of_form_or_bounds_is_refused(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv("PORT", written)
    with pytest.raises(ImproperlyConfigured) as refused:
        env.integer("PORT", 25, low=1, high=65_535)
    assert str(refused.value) == f'PORT is "{written}". Set it to a whole number from 1 to 65535.'


def test_numbers_and_truth_values_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, written in (("LOWEST", "1"), ("HIGHEST", "65535"), ("ON", "True"), ("OFF", "0"), ("FLAG", "maybe")):
        monkeypatch.setenv(name, written)
    numbers = [env.integer(name, 25, low=1, high=65_535) for name in ("LOWEST", "HIGHEST", "UNSET_PORT")]
    assert numbers == [1, 65_535, 25]
    assert (env.boolean("ON", False), env.boolean("OFF", True), env.boolean("UNSET_FLAG", True)) == (True, False, True)
    with pytest.raises(ImproperlyConfigured, match=re.escape('FLAG is "maybe". Set it to 1 or 0.')):
        env.boolean("FLAG", False)


@pytest.mark.parametrize(
    ("url", "names"),
    [
        ("mysql://lab@localhost/lab", 'its scheme is "mysql"'),
        ("postgres://lab@localhost", "postgres://user:password@host:5432/name"),
        ("postgres://lab@localhost:port/lab", "a port that is not a number"),
        ("postgres://lab@db1,db2:65536/lab", "a port that is not a number"),
        ("postgres://lab@db1,[2001:db8::1/lab", "an IPv6 address without brackets"),
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


@pytest.mark.parametrize(
    ("place", "host", "port", "attributes"),
    [
        ("db:5433", "db", "5433", "any"),
        ("db1:5433,[2001:db8::1]:5434", "db1,2001:db8::1", "5433,5434", "read-write"),
        ("[2001:db8::1]", "2001:db8::1", "", "any"),
        ("db1,db2:5434", "db1,db2", "5432,5434", "read-write"),
    ],
)
def test_of_several_databases_the_one_that_accepts_writes_is_used(
    monkeypatch: pytest.MonkeyPatch, place: str, host: str, port: str, attributes: str
) -> None:
    monkeypatch.setenv("DATABASE_URL", f"postgres://lab:secret@{place}/lab")
    found = env.database("DATABASE_URL", "unused")
    assert (found["USER"], found["PASSWORD"], found["HOST"], found["PORT"]) == ("lab", "secret", host, port)
    options = found["OPTIONS"]
    assert isinstance(options, dict)
    assert options["target_session_attrs"] == attributes


REQUIRED = sorted(set(PRODUCTION) - {"DJANGO_SETTINGS_MODULE"})
MALFORMED = [
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
]
# Environment by what is wrong with it; the error's first words.
WRONG: dict[str, tuple[dict[str, str], str]] = {
    **{
        f"without {name}": (
            {other: value for other, value in PRODUCTION.items() if other != name},
            f"The environment variable {name} is not set",
        )
        for name in REQUIRED
    },
    **{f"an empty {name}": ({**PRODUCTION, name: ""}, rf'.* {name} is not set|{name} is ""') for name in REQUIRED},
    **{f"{name}={value}": ({**PRODUCTION, name: value}, f"{name} is ") for name, value in MALFORMED},
    **{
        f"a short {name}": ({**PRODUCTION, name: "seventeen letters"}, rf"{name} has 17 characters\.")
        for name in ("SECRET_KEY", "SIGNING_SECRET")
    },
    "keys encrypted with the secret of cookies": (
        {**PRODUCTION, "SIGNING_SECRET": PRODUCTION["SECRET_KEY"]},
        "SIGNING_SECRET is the same as another secret",
    ),
}
# One process reads the settings under each environment: what Django does first at every start.
READ_EACH = """
import importlib, json, os, sys
from django.core.exceptions import ImproperlyConfigured
said = []
for environment in json.load(sys.stdin):
    os.environ.clear()
    os.environ.update(environment)
    for name in [one for one in sys.modules if one.startswith("scionlab")]:
        del sys.modules[name]
    try:
        importlib.import_module(os.environ["DJANGO_SETTINGS_MODULE"])
    except ImproperlyConfigured as exc:
        said.append(str(exc))
    else:
        said.append("")
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The error under each environment of `WRONG`, "" under that of production."""
    environments = {"production": PRODUCTION, **{what: environment for what, (environment, _) in WRONG.items()}}
    more = {"PATH": os.environ["PATH"], "SCIONLAB_VAR": str(tmp_path_factory.mktemp("var"))}
    asked = json.dumps([{**more, **one} for one in environments.values()])
    done = subprocess.run(
        [sys.executable, "-c", READ_EACH], cwd=ROOT, input=asked, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(environments, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("what", WRONG)
def test_a_missing_or_malformed_value_is_named_and_no_secret_shown(what: str, said: dict[str, str]) -> None:
    assert said["production"] == ""
    assert re.match(WRONG[what][1], said[what]), said[what]
    assert "seventeen letters" not in said[what]
    assert PRODUCTION["SECRET_KEY"] not in said[what]


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
    done = subprocess.run(
        [sys.executable, "-c", f"import django; django.setup(); {show}"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "SCIONLAB_VAR": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
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
