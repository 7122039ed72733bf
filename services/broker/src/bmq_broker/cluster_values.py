"""What the cluster's configuration asks of a broker at the moment: what DescribeConfigs shows is what happens, also
when it was set meanwhile.

Topics' defaults are `bmq.metadata.topic_configs`; these are the keys that are no topic's.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import structlog

from bmq.config.cluster_config import CLUSTER_KEYS, without_contradictions
from bmq.errors import InvalidConfig
from bmq.metadata.topic_configs import CLUSTER_WIDE
from bmq.roles.controller import Metadata
from bmq_broker.coordinators.groups.settings import GroupSettings
from bmq_broker.settings import BrokerSettings

log = structlog.get_logger()

OF_BROKERS: Final[Mapping[str, tuple[str, int]]] = {
    "log.retention.check.interval.ms": ("retention_interval_ms", 1),
    "producer.id.expiration.ms": ("producer_expiry_ms", 1),
}
"""The field of BrokerSettings of a key, and what its value is multiplied with."""
OF_GROUPS: Final[Mapping[str, tuple[str, int]]] = {
    "group.initial.rebalance.delay.ms": ("initial_rebalance_delay_ms", 1),
    "group.max.session.timeout.ms": ("session_timeout_ms_max", 1),
    "group.max.size": ("group_size_max", 1),
    "group.min.session.timeout.ms": ("session_timeout_ms_min", 1),
    "offsets.retention.minutes": ("offsets_retention_ms", 60_000),
}
"""The same of GroupSettings."""


_NOTHING: Final[Mapping[str, str]] = {}


class ClusterValues:
    """The settings of one broker, with what the cluster's configuration says in place of what they begin with."""

    def __init__(
        self, metadata: Metadata, static: Mapping[str, str], *, settings: BrokerSettings, groups: GroupSettings
    ) -> None:
        """`static` is the configuration of the command line or file: the image's goes before it."""
        self._metadata = metadata
        self._static = static
        self._first = settings, groups
        self._seen: Mapping[str, str] | None = None
        self._now = self._first

    @property
    def broker(self) -> BrokerSettings:
        """As they are now. Of what can change, only fields in OF_BROKERS do."""
        return self._current()[0]

    @property
    def groups(self) -> GroupSettings:
        """As they are now."""
        return self._current()[1]

    def _current(self) -> tuple[BrokerSettings, GroupSettings]:
        dynamic = self._metadata.image.configs.get(CLUSTER_WIDE, _NOTHING)
        if dynamic is not self._seen:
            self._seen = dynamic
            configs = _consistent({**self._static, **dynamic}, self._static)
            settings, groups = self._first
            self._now = replace(settings, **_given(configs, OF_BROKERS)), replace(groups, **_given(configs, OF_GROUPS))
        return self._now


def _consistent(configs: Mapping[str, str], static: Mapping[str, str]) -> Mapping[str, str]:
    found = without_contradictions(configs, static)
    if found != configs:
        log.warning(
            "the cluster's configuration contradicts itself: what the nodes were started with holds; set minima "
            "that are no more than their maxima",
            keys=sorted(name for name in configs if found.get(name) != configs[name]),
        )
    return found


def _given(configs: Mapping[str, str], keys: Mapping[str, tuple[str, int]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, (field, factor) in keys.items():
        if name in configs:
            try:
                value = CLUSTER_KEYS[name].parse(configs[name])
            except InvalidConfig as error:  # a newer version has set what this one cannot read
                log.warning(
                    "a configuration cannot be read: the setting that it replaces goes on", key=name, error=str(error)
                )
            else:
                assert isinstance(value, int)
                found[field] = value * factor
    return found
