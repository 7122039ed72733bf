"""The names of confluent-kafka's admin module that the commands use: it exports them without saying so, and leaves some
of them untyped.
"""

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConsumerGroupDescription,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    TopicDescription,
)

__all__ = [
    "AlterConfigOpType",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConsumerGroupDescription",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "TopicDescription",
    "at_or_after",
    "earliest",
    "latest",
]


def earliest() -> OffsetSpec:
    """The log start."""
    spec: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    return spec


def latest() -> OffsetSpec:
    """The high watermark."""
    spec: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    return spec


def at_or_after(timestamp_ms: int) -> OffsetSpec:
    """The first record with this timestamp or a later one."""
    spec: OffsetSpec = OffsetSpec.for_timestamp(timestamp_ms)
    return spec
