"""Grafana's JSON model of a dashboard, as far as these need it: panels flow from left to right, a row of panels under
each heading.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

SCHEMA_VERSION = 39
WIDTH = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

CLUSTER = 'namespace=~"$namespace",cluster=~"$cluster"'
NODE = f'{CLUSTER},instance=~"$instance"'


def led(metric: str, more: str = "") -> str:
    """What the controller that leads tells: one that led before goes on telling what it knew last."""
    return f"({metric}{{{CLUSTER}{more}}} and on (namespace, cluster, instance) bmq_controller_leading == 1)"


@dataclass(frozen=True, kw_only=True)
class Panel:
    """`queries` are (PromQL, legend). A `limit` query is drawn as a dashed line."""

    title: str
    about: str
    unit: str
    queries: Sequence[tuple[str, str]]
    kind: str = "timeseries"
    width: int = 12
    height: int = 8
    decimals: int | None = None
    stacked: bool = False
    red_from: float | None = None
    green_from: float | None = None
    """Below it the figure is red."""


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A choice at the top: by a query for label values, or (`text`) what somebody writes."""

    name: str
    label: str
    query: str = ""
    text: str = ""
    about: str = ""


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """`rows` are headings with their panels."""

    uid: str
    title: str
    about: str
    rows: Sequence[tuple[str, Sequence[Panel]]]
    variables: Sequence[Variable] = field(default_factory=tuple)

    def model(self) -> dict[str, Any]:
        """What Grafana loads."""
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.about,
            "tags": ["bmq"],
            "schemaVersion": SCHEMA_VERSION,
            "version": 1,
            "editable": True,
            "graphTooltip": 1,
            "refresh": "30s",
            "time": {"from": "now-1h", "to": "now"},
            "timezone": "",
            "annotations": {"list": []},
            "links": [
                {
                    "type": "dashboards",
                    "title": "bmq",
                    "tags": ["bmq"],
                    "asDropdown": True,
                    "includeVars": True,
                    "keepTime": True,
                    "targetBlank": False,
                    "icon": "external link",
                    "tooltip": "",
                    "url": "",
                }
            ],
            "templating": {"list": [_datasource(), *(_variable(one) for one in self.variables)]},
            "panels": _laid_out(self.rows),
        }


def cluster_variables(*, of: str = "bmq_build_info", instance: str = "bmq_build_info") -> list[Variable]:
    """namespace, cluster and instance, each within what was chosen before."""
    return [
        Variable(name="namespace", label="Namespace", query=f"label_values({of}, namespace)"),
        Variable(name="cluster", label="Cluster", query=f'label_values({of}{{namespace=~"$namespace"}}, cluster)'),
        Variable(name="instance", label="Instance", query=f"label_values({instance}{{{CLUSTER}}}, instance)"),
    ]


def quantiles(metric: str, selector: str, by: str = "") -> list[tuple[str, str]]:
    """Median and 99th percentile of a histogram."""
    labels = f"le, {by}" if by else "le"
    legend = f" {{{{{by}}}}}" if by else ""
    return [
        (
            f"histogram_quantile({q}, sum by ({labels}) (rate({metric}_bucket{{{selector}}}[$__rate_interval])))",
            f"{name}{legend}",
        )
        for q, name in ((0.5, "p50"), (0.99, "p99"))
    ]


def rate(metric: str, selector: str, *, by: str = "", legend: str = "") -> tuple[str, str]:
    """A counter per second."""
    summed = f"sum by ({by})" if by else "sum"
    return f"{summed} (rate({metric}{{{selector}}}[$__rate_interval]))", legend or f"{{{{{by}}}}}"


def _datasource() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "hide": 0,
        "multi": False,
        "includeAll": False,
        "current": {},
        "options": [],
        "regex": "",
    }


def _variable(one: Variable) -> dict[str, Any]:
    if not one.query:
        current = {"text": one.text, "value": one.text, "selected": True}
        return {
            "name": one.name,
            "label": one.label,
            "description": one.about,
            "type": "textbox",
            "query": one.text,
            "current": current,
            "options": [current],
            "hide": 0,
        }
    return {
        "name": one.name,
        "label": one.label,
        "description": one.about,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": one.query,
        "query": {"query": one.query, "refId": one.name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"], "selected": True},
        "options": [],
        "regex": "",
        "hide": 0,
    }


def _laid_out(rows: Sequence[tuple[str, Sequence[Panel]]]) -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    y = 0
    for heading, members in rows:
        place = {"x": 0, "y": y, "w": WIDTH, "h": 1}
        panels.append(
            {"id": len(panels) + 1, "type": "row", "title": heading, "collapsed": False, "gridPos": place, "panels": []}
        )
        y += 1
        x = height = 0
        for panel in members:
            if x + panel.width > WIDTH:
                x, y, height = 0, y + height, 0
            place = {"x": x, "y": y, "w": panel.width, "h": panel.height}
            panels.append(_panel(panel, number=len(panels) + 1, place=place))
            x += panel.width
            height = max(height, panel.height)
        y += height
    return panels


def _panel(panel: Panel, *, number: int, place: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "color": {"mode": "palette-classic"}, "mappings": []}
    if panel.decimals is not None:
        defaults["decimals"] = panel.decimals
    defaults["thresholds"] = {"mode": "absolute", "steps": _steps(panel)}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": DATASOURCE,
        "gridPos": place,
        "targets": [
            _target(panel, index, expression, legend) for index, (expression, legend) in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": defaults | _look(panel), "overrides": _overrides(panel)},
        "options": _options(panel),
    }


def _target(panel: Panel, index: int, expression: str, legend: str) -> dict[str, Any]:
    is_instant = panel.kind != "timeseries"
    return {
        "refId": chr(ord("A") + index),
        "datasource": DATASOURCE,
        "expr": expression,
        "legendFormat": legend,
        "instant": is_instant,
        "range": not is_instant,
        "format": "table" if panel.kind == "table" else "time_series",
    }


def _steps(panel: Panel) -> list[dict[str, Any]]:
    if panel.red_from is not None:
        return [{"color": "green", "value": None}, {"color": "red", "value": panel.red_from}]
    if panel.green_from is not None:
        return [{"color": "red", "value": None}, {"color": "green", "value": panel.green_from}]
    return [{"color": "green", "value": None}]


def _look(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {"color": {"mode": "thresholds"}}
    if panel.kind != "timeseries":
        return {}
    stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
    look = {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 20 if panel.stacked else 0,
        "showPoints": "never",
        "spanNulls": False,
    }
    return {"min": 0, "custom": look | {"stacking": stacking}}


def _overrides(panel: Panel) -> list[dict[str, Any]]:
    dashed = [
        {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 8]}},
        {"id": "color", "value": {"mode": "fixed", "fixedColor": "red"}},
    ]
    if panel.kind != "timeseries" or not any(legend.startswith("limit") for _, legend in panel.queries):
        return []
    return [{"matcher": {"id": "byRegexp", "options": "/^limit/"}, "properties": dashed}]


def _options(panel: Panel) -> dict[str, Any]:
    match panel.kind:
        case "stat":
            reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
            return {
                "reduceOptions": reduce,
                "colorMode": "value",
                "graphMode": "none",
                "textMode": "auto",
                "justifyMode": "auto",
                "orientation": "auto",
            }
        case "table":
            return {
                "showHeader": True,
                "cellHeight": "sm",
                "footer": {"show": False, "reducer": ["sum"], "countRows": False, "fields": ""},
            }
        case _:
            legend = {
                "displayMode": "table",
                "placement": "right" if panel.width >= WIDTH else "bottom",
                "showLegend": True,
                "calcs": ["lastNotNull", "max"],
            }
            return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
