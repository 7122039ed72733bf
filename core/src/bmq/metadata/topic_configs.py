"""What the configurations in the image come to, topic by topic: worked out once for each change, when a partition needs
it.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import structlog

from bmq.config.topic_config import TopicConfig, pinned, resolve
from bmq.errors import BmqError
from bmq.fairness.log_limit import RateLimited
from bmq.metadata.image import Image
from bmq.metadata.shared_map import differences
from bmq.naming.lanes import lane_of
from bmq.naming.names import is_internal
from bmq.values import TopicId

log = structlog.get_logger()

LOG_INTERVAL_S: Final = 10.0
CLUSTER_WIDE: Final = ("broker", "")
"""Where the image keeps configurations of the whole cluster."""


def _defaults_changed(old: Image, new: Image) -> bool:
    """Whether topics that did not change themselves may come to something else: by the cluster's configuration, or what
    a lane's topics may keep.
    """
    if old.configs.get(CLUSTER_WIDE) != new.configs.get(CLUSTER_WIDE):
        return True
    return old.lanes is not new.lanes and any(
        lane.name in old.lanes and old.lanes[lane.name].quota.partition_bytes != lane.quota.partition_bytes
        for lane in new.lanes.values()
    )


class TopicConfigs:
    """What each topic's configuration comes to, as one broker incarnation has worked it out."""

    def __init__(self, cluster_configs: Mapping[str, str]) -> None:
        """`cluster_configs` are those of the command line or file: the image's come before them."""
        self._cluster_configs = cluster_configs
        self._resolved: dict[TopicId, TopicConfig] = {}
        self._limit = RateLimited(interval_s=LOG_INTERVAL_S)

    def image_changed(self, old: Image, new: Image) -> bool:
        """Forgets what is to be worked out anew; whether that is all of them."""
        if _defaults_changed(old, new):
            self._resolved = {}
            return True
        if old.topics is new.topics:
            return False
        found = differences(old.topics, new.topics)
        for topic_id in (*(topic_id for topic_id, _, _ in found.changed), *(topic_id for topic_id, _ in found.gone)):
            self._resolved.pop(topic_id, None)
        return False

    def known(self, topic_id: TopicId) -> TopicConfig | None:
        """What it comes to as far as that was worked out, for the image of the last change."""
        return self._resolved.get(topic_id)

    def of(self, image: Image, topic_id: TopicId) -> TopicConfig:
        """What the configuration of a topic in the image comes to. Raises InvalidConfig where this version cannot read
        a value.
        """
        config = self._resolved.get(topic_id)
        if config is None:
            topic = image.topics[topic_id]
            defaults = {**self._cluster_configs, **image.configs.get(CLUSTER_WIDE, {})}
            config = resolve(pinned(topic.name, topic.configs), defaults, holds_state=is_internal(topic.name))
            lane = image.lanes.get(lane_of(topic.name))
            if lane is not None and lane.quota.partition_bytes:
                config = _within(config, lane.quota.partition_bytes)
            self._resolved[topic_id] = config
        return config

    def after_a_change(self, image: Image, topic_id: TopicId, known: TopicConfig) -> TopicConfig:
        """As `of`; what is known so far where a newer version has set what this one cannot read."""
        try:
            return self.of(image, topic_id)
        except BmqError as error:
            if (left_out := self._limit.due(topic_id, now=asyncio.get_running_loop().time())) is not None:
                name = image.topics[topic_id].name
                log.warning(
                    "a configuration cannot be read: the last one goes on",
                    topic=name,
                    error=str(error),
                    left_out=left_out,
                )
            return known


def _within(config: TopicConfig, partition_bytes: int) -> TopicConfig:
    """Where a partition keeps so many bytes at most: half in segments that are full, and half in the one that is
    not.
    """
    half = partition_bytes // 2
    kept = half if config.retention_bytes < 0 else min(half, config.retention_bytes)
    return replace(config, retention_bytes=kept, segment_bytes=min(half, config.segment_bytes))
