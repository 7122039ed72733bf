"""Writes docs/metrics.md from the metrics themselves: `python -m tools.metrics_page >docs/metrics.md`."""

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Final, NamedTuple

from prometheus_client.metrics import MetricWrapperBase

import bmq.clocks.clock_guard
import bmq.runtime.loop
import bmq.runtime.metered_store
import bmq_broker.lag
import bmq_broker.metrics
import bmq_cli.probe.prober
import bmq_controller.metrics
import bmq_databus.metrics
import bmq_node.admin.connections
import bmq_node.admin.exposition
import bmq_operator.metrics
import bmq_proxy.metrics

_INTRODUCTION: Final = """\
# Metrics

<!-- Written by `python -m tools.metrics_page >docs/metrics.md`: change the metrics, not this page. -->

What is told at `/metrics`; how to scrape it, dashboards and alerts are in [monitoring.md](monitoring.md). A process tells the metrics of its own
roles alone. Times are in seconds, sizes in bytes. Histograms have `_bucket`, `_sum` and `_count`. Besides these there are `process_*` and `python_*`.
"""


class Metric(NamedTuple):
    name: str
    kind: str
    labels: tuple[str, ...]
    about: str


SECTIONS: Final[tuple[tuple[str, tuple[ModuleType, ...]], ...]] = (
    (
        "Every node",
        (bmq_node.admin.exposition, bmq_node.admin.connections, bmq.runtime.loop, bmq.runtime.metered_store),
    ),
    ("Controllers", (bmq_controller.metrics,)),
    ("Brokers", (bmq_broker.metrics, bmq.clocks.clock_guard, bmq_broker.lag)),
    ("Proxies", (bmq_proxy.metrics,)),
    ("The probe", (bmq_cli.probe.prober,)),
    ("The operator", (bmq_operator.metrics,)),
    ("Databus", (bmq_databus.metrics,)),
)


def metrics_of(module: ModuleType) -> Iterator[Metric]:
    """In the order in which they are defined."""
    for value in vars(module).values():
        if isinstance(value, MetricWrapperBase):
            yield _metric(value)
    for name, about, labels in getattr(module, "METRICS", ()):
        yield Metric(name, "gauge", tuple(labels), about)


def _metric(metric: Any) -> Metric:
    [family] = metric.describe()
    name = f"{family.name}_total" if family.type == "counter" else family.name
    return Metric(name, family.type, tuple(metric._labelnames), family.documentation)


def page() -> str:
    """The page."""
    parts = [_INTRODUCTION]
    for title, modules in SECTIONS:
        rows = [
            f"| `{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels)} | {one.about} |"
            for module in modules
            for one in metrics_of(module)
        ]
        parts.append(
            "\n".join([f"## {title}", "", "| metric | | labels | |", "| --- | --- | --- | --- |", *rows]) + "\n"
        )
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
