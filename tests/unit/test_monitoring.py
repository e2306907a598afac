"""The dashboard, the alerts and the scrape configuration name only what the service and the agent export."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from scionlab.site.figures import STAGES

ROOT = Path(__file__).resolve().parents[2]
RULES_FILE = ROOT / "packaging/prometheus/rules.yml"
RULES = yaml.safe_load(RULES_FILE.read_text(encoding="utf-8"))
DASHBOARD: dict[str, Any] = json.loads((ROOT / "packaging/grafana/scionlab-bandwidth.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def exported() -> set[str]:
    """What the two pages of documentation list; other tests compare these with what is really exported."""
    text = "".join((ROOT / f"docs/{name}.md").read_text(encoding="utf-8") for name in ("operations", "agent"))
    return set(re.findall(r"`(scionlab_[a-z_]+)[`{]", text))


def named(expression: str) -> set[str]:
    """The metrics of an expression; those of a histogram by its own name."""
    found = re.findall(r"\bscionlab_[a-z_]+", expression)
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in found}


def test_every_metric_of_the_dashboard_is_exported() -> None:
    wanted = set().union(*(named(target["expr"]) for panel in PANELS for target in panel["targets"]))
    assert len(wanted) > 30
    assert wanted - exported() == set()


def test_every_metric_of_the_alerts_is_exported() -> None:
    rules = [rule for group in RULES["groups"] for rule in group["rules"]]
    assert len(rules) >= 10
    assert set().union(*(named(rule["expr"]) for rule in rules)) - exported() == set()
    assert all(rule["annotations"]["summary"] and rule["labels"]["severity"] for rule in rules)
    assert len({rule["alert"] for rule in rules}) == len(rules)


def test_panels_have_a_place_of_their_own_and_a_title() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_expressions_are_balanced_and_of_the_chosen_data_source(panel: dict[str, Any]) -> None:
    assert panel["datasource"]["uid"] == "${datasource}"
    for target in panel["targets"]:
        for opening, closing in ("()", "{}", "[]"):
            assert target["expr"].count(opening) == target["expr"].count(closing)


def test_the_scrape_configuration_asks_where_the_parts_answer() -> None:
    text = (ROOT / "packaging/prometheus/scrape.yml").read_text(encoding="utf-8")
    jobs = {job["job_name"]: job for job in yaml.safe_load(text)["scrape_configs"]}
    assert (jobs["scionlab-service"]["metrics_path"], jobs["scionlab-service"]["scheme"]) == ("/metrics", "https")
    example = (ROOT / "packaging/agent.toml.example").read_text(encoding="utf-8")
    address = re.search(r'^#metrics_listen = "([^"]+)"', example, flags=re.MULTILINE)
    assert address is not None
    assert jobs["scionlab-agent"]["static_configs"] == [{"targets": [address[1]]}]


def test_every_alert_fires_and_stays_quiet_as_its_test_says() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool: apt-get install prometheus")
    for command in (["check", "rules", "rules.yml"], ["test", "rules", "rules.test.yml"]):
        done = subprocess.run(
            [promtool, *command], cwd=RULES_FILE.parent, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_shown_to_fire_and_to_stay_quiet() -> None:
    tests = yaml.safe_load((RULES_FILE.parent / "rules.test.yml").read_text(encoding="utf-8"))["tests"]
    shown = {(one["alertname"], bool(one["exp_alerts"])) for test in tests for one in test["alert_rule_test"]}
    alerts = {rule["alert"] for group in RULES["groups"] for rule in group["rules"]}
    assert shown == {(alert, fires) for alert in alerts for fires in (True, False)}


def test_alerts_ask_for_stages_that_there_are() -> None:
    asked = {
        stage
        for group in RULES["groups"]
        for rule in group["rules"]
        for stage in re.findall(r'scionlab_links\{stage="(\w+)"\}', rule["expr"])
    }
    assert asked == {"failed"}
    assert asked <= set(STAGES)
