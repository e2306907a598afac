"""The dashboard and the alerts that are shipped, and the metrics that they name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

PACKAGING = Path(__file__).resolve().parents[1] / "packaging"
RULES_FILE = PACKAGING / "prometheus/rules.yml"
RULES = yaml.safe_load(RULES_FILE.read_text(encoding="utf-8"))
DASHBOARD: dict[str, Any] = json.loads((PACKAGING / "grafana/scionlab-bandwidth.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def named_metrics() -> set[str]:
    """Of all expressions; those of a histogram by its own name."""
    expressions = [target["expr"] for panel in PANELS for target in panel["targets"]]
    expressions += [rule["expr"] for group in RULES["groups"] for rule in group["rules"]]
    found = re.findall(r"\bscionlab_[a-z_]+", " ".join(expressions))
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in found}
