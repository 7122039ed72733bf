"""A real Prometheus that scrapes what it is told to, with the labels that the chart's PodMonitor would give."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml
from compat_server import ROOT, tool, tools_folder
from free_ports import free_port
from tests.waiting import until

RELABELINGS = ROOT / "charts/bmq/files/podmonitor-relabelings.yaml"
DATABUS_RELABELINGS = ROOT / "charts/bmq/files/podmonitor-databus-relabelings.yaml"
SPARK_RELABELINGS = ROOT / "charts/bmq/files/podmonitor-spark-relabelings.yaml"


def command(name: str) -> str:
    """`prometheus` or `promtool`, installed where it is missing."""
    tool("get", "prometheus")
    own = tools_folder() / name
    return str(own) if own.exists() else name


@dataclass(frozen=True, kw_only=True)
class Target:
    """A pod, as Kubernetes would describe it."""

    address: str
    pod: str
    cluster: str = "demo"
    component: str = ""
    lane: str = ""
    namespace: str = "team"
    application: str = ""
    """Of Spark."""
    path: str = "/metrics"

    def static_config(self) -> dict[str, Any]:
        described = {
            "__meta_kubernetes_pod_name": self.pod,
            "__meta_kubernetes_pod_label_bmq_io_cluster": self.cluster,
            "__meta_kubernetes_pod_label_app_kubernetes_io_component": self.component,
            "__meta_kubernetes_pod_label_bmq_io_lane": self.lane,
            "__meta_kubernetes_pod_label_bmq_io_tables_of": self.cluster,
            "__meta_kubernetes_pod_label_sparkoperator_k8s_io_app_name": self.application,
        }
        # The operator of Prometheus gives these two by itself.
        return {
            "targets": [self.address],
            "labels": {"namespace": self.namespace, "pod": self.pod, "__metrics_path__": self.path, **described},
        }


class Prometheus:
    """Scrapes once a second. `others`: targets by the file of relabelings that another PodMonitor has."""

    def __init__(
        self,
        folder: Path,
        targets: Sequence[Target],
        *,
        rules: Sequence[Path] = (),
        others: Mapping[Path, Sequence[Target]] | None = None,
    ) -> None:
        scrapes = [_scrape(file, some) for file, some in {RELABELINGS: targets, **(others or {})}.items()]
        configuration = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "scrape_configs": scrapes,
        }
        configuration["rule_files"] = [str(one) for one in rules]
        file = folder / "prometheus.yaml"
        file.write_text(yaml.safe_dump(configuration))
        self.url = f"http://127.0.0.1:{free_port()}"
        self._log = folder / "prometheus.log"
        arguments = [
            f"--config.file={file}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
        ]
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [command("prometheus"), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(os.environ),
                cwd=folder,
            )
        until(
            self._is_ready,
            "Prometheus to be ready",
            unless=lambda: self._process.poll() is not None,
            shows=self._log.read_text,
        )

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an instant query. Raises AssertionError for one that Prometheus refuses."""
        found: list[dict[str, Any]] = self._get("/api/v1/query", query=expression)["result"]
        return found

    def query_range(self, expression: str, *, seconds: int) -> list[dict[str, Any]]:
        """The series of a query over the last seconds, a point each."""
        now_s = self._now_s()
        found: list[dict[str, Any]] = self._get(
            "/api/v1/query_range", query=expression, start=now_s - seconds, end=now_s, step=1
        )["result"]
        return found

    def names(self) -> set[str]:
        """Every metric that was scraped."""
        return set(self._get("/api/v1/label/__name__/values"))

    def firing(self) -> set[str]:
        """The alerts that fire, as Prometheus evaluates its rules by itself."""
        return {one["labels"]["alertname"] for one in self._get("/api/v1/alerts")["alerts"] if one["state"] == "firing"}

    def annotations(self, alert: str) -> dict[str, str]:
        """What a firing alert says, filled in."""
        return next(
            dict(one["annotations"])
            for one in self._get("/api/v1/alerts")["alerts"]
            if one["labels"]["alertname"] == alert
        )

    def label_values(self, label: str, series: str) -> list[str]:
        """As Grafana asks for a variable's choices."""
        found: list[str] = self._get(f"/api/v1/label/{label}/values", **{"match[]": series})
        return found

    def until_scraped(self, count: int, *, timeout_s: float = 30) -> None:
        """Waits until so many targets answer."""
        until(
            lambda: self.query("up"),
            f"{count} targets to answer",
            timeout_s,
            holds=lambda found: sum(one["value"][1] == "1" for one in found) >= count,
        )

    def until_data(
        self,
        wanted: Mapping[str, str],
        timeout_s: float,
        *,
        is_data: Callable[[list[dict[str, Any]]], bool] = bool,
    ) -> None:
        """Waits until each of these queries, with the names of their panels, has series that are data."""
        left = dict(wanted)

        def without_data() -> dict[str, str]:
            for expression in list(left):
                if is_data(self.query(expression)):
                    del left[expression]
            return left

        until(without_data, "every query to have data", timeout_s, holds=lambda found: not found, every_s=0.5)

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _now_s(self) -> float:
        result: Any = self._get("/api/v1/query", query="time()")["result"]
        return float(result[1])

    def _get(self, path: str, **parameters: Any) -> Any:
        try:
            with urlopen(f"{self.url}{path}?{urlencode(parameters)}", timeout=30) as answer:
                return json.load(answer)["data"]
        except HTTPError as error:
            raise AssertionError(f"{path} {parameters}: {error.read().decode()}") from error

    def _is_ready(self) -> bool:
        try:
            with urlopen(f"{self.url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def _scrape(relabelings: Path, targets: Sequence[Target]) -> dict[str, Any]:
    names = {"sourceLabels": "source_labels", "targetLabel": "target_label", "replacement": "replacement"}
    relabeled = [{names[key]: value for key, value in one.items()} for one in yaml.safe_load(relabelings.read_text())]
    configs = [one.static_config() for one in targets]
    return {"job_name": relabelings.stem, "honor_labels": True, "static_configs": configs, "relabel_configs": relabeled}


def filled_in(expression: str, variables: Mapping[str, str]) -> str:
    """A dashboard's query as Grafana sends it."""
    for name, value in sorted(variables.items(), key=lambda item: -len(item[0])):
        expression = expression.replace(f"${name}", value)
    assert "$" not in expression, expression
    return expression
