"""The dashboards and alerts as the chart carries them."""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml
from compat_server import ROOT

FOLDER = ROOT / "charts/bmq/files/dashboards"
RULES = ROOT / "charts/bmq/files/rules"
OF_THE_OPERATOR = "bmq-operator"
"""The uid of the dashboard, and the name of the rules' file, that take the operator's metrics."""

OF_SPARK = "bmq-spark"
"""The same of Spark's metrics."""
TRIED_ELSEWHERE = (OF_THE_OPERATOR, OF_SPARK)
"""With a real operator and with real Spark, in tests/e2e."""

_METRIC = re.compile(r"\b(?:bmq_[a-z_]+|process_[a-z_]+|metrics_[A-Za-z_]+|up)\b")


class Query(NamedTuple):
    panel: str
    expression: str


def dashboards() -> dict[str, dict[str, Any]]:
    """Every dashboard, by uid."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def queries(dashboard: dict[str, Any]) -> Iterator[Query]:
    """Every query of its panels."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield Query(f"{dashboard['title']}: {panel['title']}", target["expr"])


def alerts() -> dict[str, list[dict[str, Any]]]:
    """Every alert, by the file that it is in."""
    files = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(RULES.glob("*.yaml"))}
    return {name: [rule for group in file["groups"] for rule in group["rules"]] for name, file in files.items()}


def metrics_in(expression: str) -> set[str]:
    """The metrics that an expression takes."""
    without_labels = re.sub(r"\{[^}]*\}|\b(?:by|on|ignoring|group_left)\s*\([^)]*\)", "", expression)
    return set(_METRIC.findall(without_labels))
