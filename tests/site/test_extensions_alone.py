"""Each extension runs as the only one, and the core without any: on an empty database, in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
ALONE = ["", "scion_config", "usage", "linktests", "paths", "importer"]
ALL = "scion_config,usage,linktests,paths,importer"

pytestmark = pytest.mark.xdist_group("extensions_alone")  # one process makes each installation once


@cache
def shown(extensions: str) -> dict[str, Any]:
    """What `tests.extensions_alone` writes."""
    with TemporaryDirectory() as folder:
        env = {name: value for name, value in os.environ.items() if name not in {"DATABASE_URL", "REDIS_URL"}}
        env |= {"DJANGO_SETTINGS_MODULE": "scionlab.settings.test", "SCIONLAB_EXTENSIONS": extensions}
        env |= {"SCIONLAB_VAR": folder}
        command = [sys.executable, "-m", "tests.extensions_alone", f"{folder}/shown.json"]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        found: dict[str, Any] = json.loads(Path(folder, "shown.json").read_text())
    return found


def text_at(extensions: str, begin: str, end: str) -> str:
    texts: dict[str, str] = shown(extensions)["texts"]
    return next(text for path, text in texts.items() if path.startswith(begin) and path.endswith(end))


@pytest.mark.parametrize("extensions", [*ALONE, ALL])
def test_the_site_migrates_and_serves_each_page_without_a_dead_link(extensions: str) -> None:
    statuses = shown(extensions)["statuses"]
    assert {path: status for path, status in statuses.items() if status != 200} == {}
    assert {"/", "/login/", "/ases/", "/cockpit/"} <= statuses.keys()
    assert any("/links/" in path for path in statuses)
    assert len(statuses) >= 25


@pytest.mark.parametrize(
    ("extensions", "has_pages"),
    [("", set()), ("usage", {"/cockpit/traffic/"}), ("paths", {"/paths/"}), (ALL, {"/cockpit/traffic/", "/paths/"})],
)
def test_pages_of_an_extension_are_there_with_it_alone(extensions: str, has_pages: set[str]) -> None:
    assert shown(extensions)["statuses"].keys() & {"/cockpit/traffic/", "/paths/"} == has_pages


@pytest.mark.parametrize("extensions", ["linktests", ALL])
def test_what_an_extension_shows_can_be_reached_from_a_page(extensions: str) -> None:
    links = {one for text in shown(extensions)["texts"].values() for one in re.findall(r'href="([^"]*)"', text)}
    for end in ("/why/", "/joint-test/", "/watch/"):
        assert any(link.endswith(end) for link in links), end


@pytest.mark.parametrize(("extensions", "has"), [("paths", False), (ALL, True)])
def test_the_api_has_no_field_of_what_is_not_measured(extensions: str, has: bool) -> None:
    line = json.loads(text_at(extensions, "/api/v1/ases/", "/paths/"))["links"][0]
    assert ("used" in line, "last_test" in line) == (has, has)
