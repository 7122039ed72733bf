"""The dashboards' JSON models, as Grafana would load them."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compat_server import ROOT
from dashboard_files import FOLDER, dashboards
from tools.metrics_page import page

DASHBOARDS = dashboards()
every_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=DASHBOARDS.keys())
WIDTH = 24


def panels(dashboard: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from (panel for panel in dashboard["panels"] if panel["type"] != "row")


def test_the_files_are_what_the_generator_writes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "tools.dashboards", str(tmp_path)], cwd=ROOT, check=True)
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    there = {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert written == there, "run: make generated"


def test_the_page_of_metrics_is_what_the_metrics_say() -> None:
    assert (ROOT / "docs/metrics.md").read_text() == page(), "run: make generated"


def test_every_metric_is_on_the_page_whatever_module_it_is_in() -> None:
    told = {name.removesuffix("_total") for name in re.findall(r"^\| `(\w+)`", page(), re.MULTILINE)}
    made = set()
    for path in (*ROOT.glob("*/src"), *ROOT.glob("services/*/src")):
        for file in path.rglob("*.py"):
            made |= set(re.findall(r"\b(?:Counter|Gauge|Histogram|Summary)\(\s*\"(\w+)\"", file.read_text()))
    assert len(made) > 40
    assert {name.removesuffix("_total") for name in made} - told == set(), "name its module in tools/metrics_page.py"


@every_dashboard
def test_a_dashboard_has_a_uid_of_its_own_and_grafanas_newer_schema(dashboard: dict[str, Any]) -> None:
    assert re.fullmatch(r"bmq-[a-z]+", dashboard["uid"])
    assert DASHBOARDS[dashboard["uid"]] is dashboard
    assert "id" not in dashboard
    assert dashboard["schemaVersion"] >= 39
    assert dashboard["description"]
    assert dashboard["tags"] == ["bmq"]
    assert len({other["title"] for other in DASHBOARDS.values()}) == len(DASHBOARDS)


@every_dashboard
def test_every_panel_says_what_it_shows_and_in_which_unit(dashboard: dict[str, Any]) -> None:
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    titles = [panel["title"] for panel in panels(dashboard)]
    assert len(set(titles)) == len(titles), titles
    for panel in panels(dashboard):
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]
        assert panel["targets"], panel["title"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        for target in panel["targets"]:
            assert target["datasource"] == panel["datasource"], panel["title"]
            if len(panel["targets"]) > 1:
                assert target["legendFormat"], panel["title"]


@every_dashboard
def test_panels_lie_within_the_grid_and_none_on_another(dashboard: dict[str, Any]) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= WIDTH, panel["title"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, (panel["title"], taken[x, y])
                taken[x, y] = panel["title"]


@every_dashboard
def test_every_query_keeps_to_the_variables_that_are_chosen(dashboard: dict[str, Any]) -> None:
    variables = {one["name"]: one for one in dashboard["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert len(variables) == len(dashboard["templating"]["list"])
    used = set()
    for panel in panels(dashboard):
        for target in panel["targets"]:
            names = set(re.findall(r"\$([a-z_]+)", target["expr"])) - {"__rate_interval"}
            assert names <= set(variables), (panel["title"], names)
            assert 'namespace=~"$namespace"' in target["expr"], panel["title"]
            used |= names
    for name in set(variables) - {"datasource"}:
        assert f"${name}" in json.dumps(dashboard["panels"]) or f"${name}" in json.dumps(dashboard["templating"]), name
        if variables[name]["type"] == "query":
            assert (variables[name]["includeAll"], variables[name]["multi"], variables[name]["allValue"]) == (
                True,
                True,
                ".*",
            )
            assert variables[name]["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert used, dashboard["uid"]
