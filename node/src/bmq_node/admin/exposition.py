"""Which metrics a process tells: its own roles' and no others, what it is, and its limits.

The modules of all roles are loaded in every process, and a metric without labels shows as 0 from the moment that it is
made: a proxy would say that nobody leads, and that its clock is not to be trusted.
"""

import importlib.metadata
from collections.abc import Collection, Iterable, Mapping
from types import ModuleType
from typing import Final, Protocol

from prometheus_client import REGISTRY, Gauge, disable_created_metrics
from prometheus_client.core import Metric
from prometheus_client.metrics import MetricWrapperBase

import bmq.clocks.clock_guard
import bmq_broker.metrics
import bmq_controller.metrics
import bmq_proxy.metrics
from bmq_node.configuration.values import Role

_OF_ROLES: Final[tuple[tuple[Role, ModuleType], ...]] = (
    (Role.CONTROLLER, bmq_controller.metrics),
    (Role.BROKER, bmq_broker.metrics),
    (Role.BROKER, bmq.clocks.clock_guard),
    (Role.PROXY, bmq_proxy.metrics),
)

BUILD_INFO: Final = Gauge("bmq_build_info", "1, with the version that this process runs.", ["version"])
NODE_ROLE: Final = Gauge("bmq_node_role", "1 for each role of this process.", ["role"])
LIMIT: Final = Gauge("bmq_limit", "Limits of this process, by the key of bmq server that sets them.", ["key"])


class Lags(Protocol):
    """Metrics of a broker's consumer groups."""

    async def refresh(self) -> None:
        """Asks for what `collect` tells from then on."""

    def collect(self) -> Iterable[Metric]:
        """The metrics as the last `refresh` found them; for prometheus_client."""


def expose(roles: Collection[Role], *, limits: Mapping[str, int]) -> None:
    """To be called once, as a process starts. `limits` are by the keys of `bmq server` that set them."""
    disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter and histogram, which nobody asks for
    for role, module in _OF_ROLES:
        if role not in roles:
            for metric in vars(module).values():
                if isinstance(metric, MetricWrapperBase):
                    REGISTRY.unregister(metric)
    BUILD_INFO.labels(importlib.metadata.version("bmq-cli")).set(1)
    for role in roles:
        NODE_ROLE.labels(str(role)).set(1)
    for key, value in limits.items():
        LIMIT.labels(key).set(value)
