"""A stream's reader as Spark calls it, without Spark: where it begins, how far it goes, and how it goes on after a
restart.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from stored_cluster import StoredCluster, batch_of

from bmq.config.topic_config import FIRST_OFFSET, READING_LANES_FIRST_OFFSET
from bmq.metadata.records import LaneDeclared, PartitionsAdded, TopicCreated, TopicDeleted
from bmq.naming.lanes import overlay_id
from bmq.storage.manifest import Manifest
from bmq.values import TopicId, TopicPartition
from bmq_spark.errors import BmqError
from bmq_spark.source import end_of, reached
from bmq_spark.source.options import parse_options
from bmq_spark.source.stream import StreamReader


@pytest.fixture
def cluster(tmp_path: Path) -> StoredCluster:
    return StoredCluster(tmp_path / "data")


class Query:
    """What Spark does of a query, and what it keeps of it in a checkpoint."""

    def __init__(self, cluster: StoredCluster, checkpoint: str | None = None, **options: Any) -> None:
        self.options = {"store": cluster.url, "topic": "orders"} | {name: str(value) for name, value in options.items()}
        self.reader = StreamReader(parse_options(self.options))
        self.at = json.loads(checkpoint) if checkpoint is not None else None
        if self.at is not None:
            assert self.reader.partitions(self.at, self.at) == []

    def batch(self) -> list[tuple[int, int]]:
        """(partition, offset) of the records of one trigger."""
        end = json.loads(json.dumps(self.reader.latestOffset()))
        start = self.at if self.at is not None else json.loads(json.dumps(self.reader.initialOffset()))
        if end == start:
            return []
        found = self.between(start, end)
        self.reader.commit(end)
        self.at = end
        return found

    def between(self, start: Any, end: Any) -> list[tuple[int, int]]:
        tasks = self.reader.partitions(start, end)
        rows = [row for task in tasks for batch in self.reader.read(task) for row in batch.to_pylist()]
        return [(row["partition"], row["offset"]) for row in rows]

    @property
    def checkpoint(self) -> str:
        return json.dumps(self.at)


def begun(cluster: StoredCluster, **options: Any) -> Query:
    """A query that Spark has told that it is at the beginning."""
    return Query(cluster, json.dumps(Query(cluster, **options).reader.initialOffset()), **options)


def stored(cluster: StoredCluster, *, count: int = 3, of: int = 10) -> TopicPartition:
    tp = TopicPartition(cluster.topic("orders"), 0)
    cluster.name(tp, *(cluster.segment(tp, batch_of(at, of)) for at in range(0, count * of, of)))
    return tp


def numbered(*offsets: int) -> list[tuple[int, int]]:
    return [(0, offset) for offset in range(*offsets)]


def test_each_trigger_reads_what_came_since(cluster: StoredCluster) -> None:
    tp = stored(cluster)
    query = Query(cluster)
    assert query.batch() == numbered(30)
    assert query.batch() == []
    cluster.name(tp, cluster.segment(tp, batch_of(30, 5)))
    assert query.batch() == numbered(30, 35)


def test_a_limited_trigger_goes_on_where_the_last_one_ended_also_after_a_restart(cluster: StoredCluster) -> None:
    stored(cluster)
    query = begun(cluster, maxRecordsPerTrigger=12)
    assert query.batch() == numbered(12)
    again = Query(cluster, query.checkpoint, maxRecordsPerTrigger=12)
    assert again.batch() == numbered(12, 24)
    assert again.batch() == numbered(24, 30)


def test_a_reader_that_was_not_told_its_place_answers_the_end(cluster: StoredCluster) -> None:
    """As with Trigger.AvailableNow after a restart: an offset that is near the beginning would lie before the
    checkpoint's.
    """
    stored(cluster)
    assert (
        end_of({"store": cluster.url, "topic": "orders"})
        == Query(cluster, maxRecordsPerTrigger=12).reader.latestOffset()
    )


def test_a_batch_that_runs_again_after_a_kill_has_the_same_records(cluster: StoredCluster) -> None:
    tp = stored(cluster)
    query = begun(cluster, maxBytesPerTrigger=200)
    start, end = query.at, json.loads(json.dumps(query.reader.latestOffset()))
    found = query.between(start, end)
    assert 0 < len(found) < 30
    merged = cluster.segment(tp, *(batch_of(at, 10) for at in (0, 10, 20)))
    cluster.write(tp, cluster.manifests[tp].replace(cluster.manifests[tp].entries, merged))
    again = Query(cluster, json.dumps(start), maxBytesPerTrigger=200)
    assert again.between(start, end) == found
    again.at = end
    assert again.batch()[0] == (0, len(found))


def test_a_stream_that_is_to_end_has_reached_its_end_when_all_that_was_there_is_read(cluster: StoredCluster) -> None:
    tp = stored(cluster)
    query = begun(cluster, maxRecordsPerTrigger=12)
    end = end_of(query.options)
    cluster.name(tp, cluster.segment(tp, batch_of(30, 50)))
    turns = 0
    while not reached(query.at, end):
        query.batch()
        turns += 1
    assert turns == 3
    bounded = Query(cluster, endingOffsets=json.dumps(end))
    assert bounded.batch() == numbered(30)
    assert bounded.batch() == []


def test_partitions_that_were_added_are_read_from_their_beginning(cluster: StoredCluster) -> None:
    tp = stored(cluster)
    query = Query(cluster, startingOffsets="latest")
    assert query.batch() == []
    query.at = json.loads(json.dumps(query.reader.initialOffset()))
    cluster.commit(PartitionsAdded(topic_id=tp.topic_id, partitions=2))
    second = TopicPartition(tp.topic_id, 1)
    cluster.name(second, cluster.segment(second, batch_of(0, 3)))
    assert query.batch() == [(1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"order":{"0":7}}', "topic order is not among those that are read: orders"),
        ('{"orders":{"1":7}}', "topic orders has no partition 1: it has 0 to 0"),
    ],
)
def test_offsets_of_what_a_stream_does_not_read_are_refused(cluster: StoredCluster, text: str, said: str) -> None:
    stored(cluster)
    for option in ("startingOffsets", "endingOffsets"):
        with pytest.raises(BmqError, match=f"option {option}: {said}"):
            Query(cluster, **{option: text}).reader.initialOffset()
        with pytest.raises(BmqError, match=f"option {option}: {said}"):
            end_of(Query(cluster, **{option: text}).options)


def test_offsets_of_a_topic_that_a_lane_has_not_written_to_are_no_fault(cluster: StoredCluster) -> None:
    stored(cluster)
    cluster.commit(LaneDeclared(name="dev", number=1, created_ms=0))
    assert Query(cluster, lane="dev", startingOffsets='{"orders":{"0":7}}').batch() == []


def test_a_topic_made_again_stops_the_stream(cluster: StoredCluster) -> None:
    tp = stored(cluster)
    query = Query(cluster)
    query.batch()
    cluster.commit(
        TopicDeleted(topic_id=tp.topic_id, name="orders", last_leader_epoch=0),
        TopicCreated(topic_id=cluster.rng.uuid(), name="orders", partitions=1, leader_epoch=1),
    )
    with pytest.raises(BmqError, match="topic orders: it was deleted and made again"):
        query.batch()
    with pytest.raises(BmqError, match="topic orders: it was deleted and made again"):
        Query(cluster, query.checkpoint).batch()


def test_retention_that_overtook_a_stopped_stream_is_told(cluster: StoredCluster) -> None:
    tp = stored(cluster)
    query = begun(cluster, maxRecordsPerTrigger=5)
    query.batch()
    cluster.write(tp, cluster.manifests[tp].raise_log_start(20))
    with pytest.raises(BmqError, match="topic orders, partition 0, offsets 5 to 9 are gone"):
        query.batch()
    assert Query(cluster, query.checkpoint, failOnDataLoss="false").batch() == numbered(20, 30)


def test_a_checkpoint_that_is_ahead_of_the_store_is_told(cluster: StoredCluster) -> None:
    stored(cluster)
    query = Query(cluster)
    query.batch()
    ahead = query.at | {"orders": query.at["orders"] | {"partitions": {"0": 99}}}
    with pytest.raises(BmqError, match=r"the checkpoint goes to 99, .* ends at 30"):
        query.reader.partitions(query.at, ahead)


def test_a_lanes_topic_is_its_own_or_the_bases_where_it_may_read_that(cluster: StoredCluster) -> None:
    tp = stored(cluster)
    cluster.commit(
        LaneDeclared(name="dev", number=1, created_ms=0),
        LaneDeclared(name="reader", number=2, created_ms=0, reads_base=("ord*",)),
    )
    assert Query(cluster, lane="dev").batch() == []
    assert Query(cluster, lane="reader").batch() == numbered(30)
    query = Query(cluster, lane="dev")
    assert query.batch() == []
    own = TopicPartition(TopicId(overlay_id("cluster", 1, "orders", 0)), 0)
    cluster.commit(TopicCreated(topic_id=own.topic_id, name="dev:orders", partitions=1, leader_epoch=0))
    cluster.name(own, cluster.segment(own, batch_of(0, 2)))
    tasks = query.reader.partitions(query.reader.initialOffset(), query.reader.latestOffset())
    rows = [row for task in tasks for batch in query.reader.read(task) for row in batch.to_pylist()]
    assert [(row["topic"], row["lane"], row["offset"]) for row in rows] == [("orders", "dev", 0), ("orders", "dev", 1)]
    assert tp != own


def test_a_partition_that_was_added_and_whose_first_records_were_deleted_is_no_loss(cluster: StoredCluster) -> None:
    tp = stored(cluster)
    query = begun(cluster)
    query.batch()
    cluster.commit(PartitionsAdded(topic_id=tp.topic_id, partitions=2))
    second = TopicPartition(tp.topic_id, 1)
    cluster.name(second, cluster.segment(second, batch_of(0, 3)), cluster.segment(second, batch_of(3, 3)))
    cluster.write(second, cluster.manifests[second].raise_log_start(3))
    assert query.batch() == [(1, 3), (1, 4), (1, 5)]
    assert Query(cluster, query.checkpoint).batch() == []


@pytest.mark.parametrize("begun_empty", [True, False])
def test_a_lanes_topic_that_begins_high_is_read_from_its_beginning(tmp_path: Path, begun_empty: bool) -> None:
    cluster = StoredCluster(tmp_path / "data")
    cluster.topic("orders")
    cluster.commit(
        LaneDeclared(name="dev", number=1, created_ms=0, reads_base=("ord*",), reads_base_bytes_per_s=1_000_000)
    )
    tp = TopicPartition(TopicId(cluster.rng.uuid()), 0)
    first = READING_LANES_FIRST_OFFSET
    cluster.commit(
        TopicCreated(
            topic_id=tp.topic_id, name="dev:orders", partitions=1, leader_epoch=5, configs={FIRST_OFFSET: str(first)}
        )
    )
    query = Query(cluster, lane="dev", startingOffsets="earliest")
    if begun_empty:
        assert query.batch() == []
        assert query.reader.initialOffset() == query.reader.latestOffset()
    cluster.manifests[tp] = Manifest.beginning_at(first)
    cluster.name(tp, cluster.segment(tp, batch_of(first, 10)))
    assert query.batch() == [(0, first + number) for number in range(10)]
