"""The dashboard, the alerts and the scrape configuration fit together; `test_metrics.py` and `test_agent_metrics.py`
compare what they name with what is exported."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from scionlab.site.figures import STAGES
from tests.monitoring_files import RULES, RULES_FILE

ROOT = Path(__file__).resolve().parents[2]


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
