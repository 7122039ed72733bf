"""What the image holds twice, because looking for it would cost too much: computed here from scratch, kept up by the
fold.
"""

from collections.abc import Mapping

from bmq.metadata.image import Lane, Topic, Turn, stream_of
from bmq.metadata.records import Whose
from bmq.naming.lanes import BASE, lane_of
from bmq.naming.names import collision_key, may_collide
from bmq.values import NO_NODE, NodeId, StreamId, TopicId, TopicPartition


def count_owners(topics: Mapping[TopicId, Topic]) -> dict[NodeId, int]:
    """`Image.owned_counts` from scratch."""
    counts: dict[NodeId, int] = {}
    for topic in topics.values():
        for meta in topic.partitions:
            counts[meta.node_id] = counts.get(meta.node_id, 0) + 1
    return counts


def count_lane_partitions(topics: Mapping[TopicId, Topic]) -> dict[str, int]:
    """`Image.lane_partitions` from scratch."""
    counts: dict[str, int] = {}
    for topic in topics.values():
        if (lane := lane_of(topic.name)) != BASE:
            counts[lane] = counts.get(lane, 0) + len(topic.partitions)
    return counts


def count_ranges(topics: Mapping[TopicId, Topic]) -> dict[StreamId, int]:
    """`Image.range_counts` from scratch."""
    counts: dict[StreamId, int] = {}
    for topic in topics.values():
        for meta in topic.partitions:
            for found in meta.ranges:
                stream = stream_of(found)
                counts[stream] = counts.get(stream, 0) + 1
    return counts


def find_moving(topics: Mapping[TopicId, Topic]) -> dict[TopicPartition, NodeId]:
    """`Image.moving` from scratch."""
    return {
        TopicPartition(topic.topic_id, index): meta.moving_to
        for topic in topics.values()
        for index, meta in enumerate(topic.partitions)
        if meta.moving_to != NO_NODE
    }


def find_colliding(topics: Mapping[TopicId, Topic]) -> dict[str, str]:
    """`Image.colliding` from scratch."""
    return {collision_key(topic.name): topic.name for topic in topics.values() if may_collide(topic.name)}


def find_turn_ids(turns: Mapping[TopicPartition, Turn]) -> dict[int, TopicPartition]:
    """`Image.turn_ids` from scratch."""
    return {turn.producer_id: tp for tp, turn in turns.items() if turn.whose is not Whose.LANE}


def measure_configs(
    topics: Mapping[TopicId, Topic], configs: Mapping[tuple[str, str], Mapping[str, str]], lanes: Mapping[str, Lane]
) -> int:
    """`Image.config_bytes` from scratch."""
    return (
        sum(config_size(topic.configs) for topic in topics.values())
        + sum(config_size(one) for one in configs.values())
        + sum(lane_size(lane) for lane in lanes.values())
    )


def config_size(configs: Mapping[str, str]) -> int:
    """The bytes of one resource's keys and values."""
    return sum(_size(name) + _size(value) for name, value in configs.items())


def lane_size(lane: Lane | None) -> int:
    """The bytes of the patterns of a lane, None of none: there may be a thousand lanes, and their names are short."""
    return 0 if lane is None else sum(_size(pattern) for pattern in (*lane.reads_base, *lane.has_read_base))


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
