"""What people read keeps up with what is there: links, commands, and the pages that comments point to."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ap_agent.commands import agent_cli, limiter_cli
from ap_agent.common.outcome import OK

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
SOURCE_FOLDERS = ("ap_agent", "lab", "scionlab", "tests", "templates", "packaging", "requirements", ".ci")
SOURCE_SUFFIXES = {".py", ".html", ".toml", ".yml", ".conf", ".service", ".path", ".example", ".in", ""}

page = pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


def without_code(text: str) -> str:
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", lambda code: "x" * len(code.group()), text)


def anchors(text: str) -> set[str]:
    """The names that a code host gives to headings."""
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def sources() -> list[Path]:
    found = [path for path in ROOT.iterdir() if path.is_file() and path.suffix in SOURCE_SUFFIXES | {".md"}]
    for folder in SOURCE_FOLDERS:
        found += [path for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix in SOURCE_SUFFIXES]
    return [path for path in found if "__pycache__" not in path.parts and path != Path(__file__).resolve()]


@page
def test_every_relative_link_leads_somewhere(path: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(path.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        there = (path.parent / name).resolve() if name else path
        if not there.exists() or (anchor and anchor not in anchors(there.read_text(encoding="utf-8"))):
            broken.append(target)
    assert broken == []


def test_every_page_is_in_the_index() -> None:
    docs = ROOT / "docs"
    index = (docs / "README.md").read_text(encoding="utf-8")
    front_page = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = [str(path.relative_to(docs)) for path in docs.glob("**/*.md")]
    assert "adr/0029-two-processes.md" in pages
    found = [page for page in pages if f"]({page})" in index or f"](docs/{page})" in front_page]
    assert sorted(set(pages) - set(found)) == []


def test_every_alert_is_in_the_administrators_guide() -> None:
    rules = (ROOT / "packaging/prometheus/rules.yml").read_text(encoding="utf-8")
    guide = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    alerts = re.findall(r"alert: (\w+)", rules)
    assert "ScionlabPartDown" in alerts
    assert [alert for alert in alerts if f"`{alert}`" not in guide] == []


def test_every_command_of_dev_that_is_mentioned_exists() -> None:
    offered = set(re.findall(r"^    ([a-z]+)\) [a-z_]+ \"\$@\" ;;", (ROOT / "dev").read_text(), flags=re.MULTILINE))
    offered |= set(re.findall(r"^    ([a-z]+)\) [a-z]+ ;;", (ROOT / "dev").read_text(), flags=re.MULTILINE))
    assert {"demo", "run", "test", "lint", "lock"} <= offered

    mentioned: dict[str, str] = {}
    for path in [*PAGES, *sources()]:
        for word in re.findall(r"\./dev ([a-z]+)", path.read_text(encoding="utf-8", errors="replace")):
            mentioned.setdefault(word, str(path.relative_to(ROOT)))
    assert {word: where for word, where in mentioned.items() if word not in offered} == {}


@pytest.mark.parametrize(
    ("program", "main", "known"),
    [("agent", agent_cli.main, {"run", "enrol"}), ("limiter", limiter_cli.main, {"run", "plan", "reset"})],
)
def test_every_command_of_a_program_that_is_mentioned_exists(
    capsys: pytest.CaptureFixture[str], program: str, main: Callable[[list[str]], int], known: set[str]
) -> None:
    mentioned: set[str] = set()
    for path in {*PAGES, *sources()} - {ROOT / "CHANGELOG.md"}:  # which tells of former versions
        text = path.read_text(encoding="utf-8", errors="replace")
        mentioned |= set(re.findall(rf"(?:sudo |>|`)scionlab-bw-{program} ([a-z][a-z-]*)", text))
    assert known <= mentioned
    for command in sorted(mentioned):
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == OK, command
        capsys.readouterr()


def test_every_page_and_section_that_a_comment_points_to_exists() -> None:
    sections = set(re.findall(r"^## ([0-9])\. ", (ROOT / "docs/domain.md").read_text(), flags=re.MULTILINE))
    decisions = {path.name[:4] for path in (ROOT / "docs/adr").glob("*.md")}
    dead = []
    for path in sources():
        text = path.read_text(encoding="utf-8", errors="replace")
        where = path.relative_to(ROOT)
        dead += [f"{where}: {name}" for name in re.findall(r"\bdocs/[a-z_-]+\.md", text) if not (ROOT / name).exists()]
        dead += [f"{where}: ADR {one}" for one in re.findall(r"docs/adr/([0-9]{4})", text) if one not in decisions]
        dead += [
            f"{where}: DOMAIN {one}" for one in re.findall(r"DOMAIN section ([0-9]+)", text) if one not in sections
        ]
        dead += [
            f"{where}: {one}" for one in re.findall(r"\b(?:DESIGN|STYLE|KERNEL) (?:section )?[0-9]", text)
        ]  # not here
    assert dead == []
