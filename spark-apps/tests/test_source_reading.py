"""What is planned and read of a store's folder, without Spark and without a broker."""

import datetime
import struct
from pathlib import Path
from typing import Any

import crc32c
import pyarrow as pa
import pytest
from pyspark.sql.datasource import GreaterThanOrEqual
from stored_cluster import StoredCluster, batch_of

from bmq.storage.manifest import Manifest
from bmq.values import TopicPartition
from bmq_spark.errors import BmqError, ConfigurationError
from bmq_spark.source import reading
from bmq_spark.source.batch import BatchReader
from bmq_spark.source.options import parse_options
from bmq_spark.source.slices import Narrowing

TIME_MS = 1_700_000_000_000


@pytest.fixture
def cluster(tmp_path: Path) -> StoredCluster:
    return StoredCluster(tmp_path / "data")


def reader(cluster: StoredCluster, narrowing: Narrowing | None = None, **options: Any) -> BatchReader:
    made = BatchReader(
        parse_options(
            {"store": cluster.url, "topic": "orders", "minPartitions": "2"} | {k: str(v) for k, v in options.items()}
        )
    )
    made._narrowing = narrowing or Narrowing()
    return made


def offsets(cluster: StoredCluster, narrowing: Narrowing | None = None, **options: Any) -> list[int]:
    return [row["offset"] for row in rows(cluster, narrowing, **options)]


def rows(cluster: StoredCluster, narrowing: Narrowing | None = None, **options: Any) -> list[dict[str, Any]]:
    made = reader(cluster, narrowing, **options)
    found: list[pa.RecordBatch] = [batch for task in made.partitions() for batch in made.read(task)]
    return [row for batch in found for row in batch.to_pylist()]


def stored(cluster: StoredCluster, *, segments: int = 3, records: int = 10) -> TopicPartition:
    """A topic with so many segments of two batches each, of one partition."""
    tp = TopicPartition(cluster.topic("orders"), 0)
    for at in range(0, segments * records, records):
        half = records // 2
        batches = (
            batch_of(at, half, timestamp_ms=TIME_MS + at),
            batch_of(at + half, half, codec=4, timestamp_ms=TIME_MS + at + half),
        )
        cluster.name(tp, cluster.segment(tp, *batches))
    return tp


def test_every_record_in_segments_is_read_once(cluster: StoredCluster) -> None:
    stored(cluster)
    found = rows(cluster)
    assert [(row["offset"], row["key"], row["value"]) for row in found] == [
        (n, b"k%d" % n, b"v%d" % n) for n in range(30)
    ]
    assert {(row["topic"], row["partition"], row["lane"]) for row in found} == {("orders", 0, "")}


def test_entries_on_manifest_pages_are_read_too(cluster: StoredCluster) -> None:
    tp = TopicPartition(cluster.topic("orders"), 0)
    cluster.name(tp, *(cluster.segment(tp, batch_of(at, 1)) for at in range(1_030)))
    assert len(cluster.manifests[tp].pages) == 1
    assert offsets(cluster) == list(range(1_030))
    assert offsets(cluster, startingOffsets='{"orders":{"0":1000}}') == list(range(1_000, 1_030))


def test_runs_of_several_partitions_in_one_object_are_told_apart(cluster: StoredCluster) -> None:
    topic_id = cluster.topic("orders", partitions=3)
    runs = {TopicPartition(topic_id, number): [batch_of(0, number + 1)] for number in range(3)}
    for tp, entry in cluster.shared(runs).items():
        cluster.name(tp, entry)
    found = [(row["partition"], row["offset"]) for row in rows(cluster)]
    assert found == [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]


def test_nothing_below_the_log_start_is_read(cluster: StoredCluster) -> None:
    tp = stored(cluster)
    cluster.write(tp, cluster.manifests[tp].raise_log_start(13))
    assert offsets(cluster) == list(range(13, 30))


def test_an_offset_that_retention_deleted_is_an_error_unless_that_is_wanted(cluster: StoredCluster) -> None:
    tp = stored(cluster)
    cluster.write(tp, cluster.manifests[tp].raise_log_start(13))
    with pytest.raises(BmqError, match=r"topic orders, partition 0, offsets 5 to 12 are gone.*failOnDataLoss=false"):
        offsets(cluster, startingOffsets='{"orders":{"0":5}}')
    assert offsets(cluster, startingOffsets='{"orders":{"0":5}}', failOnDataLoss="false") == list(range(13, 30))


def test_offsets_and_times_bound_what_is_read(cluster: StoredCluster) -> None:
    stored(cluster)
    assert offsets(cluster, startingOffsets='{"orders":{"0":7}}', endingOffsets='{"orders":{"0":12}}') == list(
        range(7, 12)
    )
    assert offsets(cluster, startingTimestamp=TIME_MS + 7, endingTimestamp=TIME_MS + 21) == list(range(7, 21))
    assert offsets(cluster, startingTimestamp=TIME_MS + 99) == []
    assert offsets(cluster, startingOffsets="latest") == []


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_offsets_of_what_the_query_does_not_read_are_refused(cluster: StoredCluster, option: str) -> None:
    stored(cluster)
    cluster.topic("others")
    with pytest.raises(BmqError, match=f"option {option}: topic order is not among those that are read: orders"):
        offsets(cluster, **{option: '{"order":{"0":7}}'})
    for narrowing in (None, Narrowing(topics=frozenset(("others",)))):
        with pytest.raises(BmqError, match=f"option {option}: topic orders has no partition 1: it has 0 to 0"):
            offsets(cluster, narrowing, topic="orders,others", **{option: '{"orders":{"1":7}}'})


def test_filters_pass_over_segments(cluster: StoredCluster) -> None:
    stored(cluster)
    chosen = reader(cluster, Narrowing(from_offset=12, below_offset=19)).partitions()
    assert [len(piece.segments) for task in chosen for piece in task.value] == [1]
    assert offsets(cluster, Narrowing(from_offset=12, below_offset=19)) == list(range(12, 19))
    assert offsets(cluster, Narrowing(partitions=frozenset([1]))) == []
    newest = reader(cluster, Narrowing(min_timestamp_ms=TIME_MS + 20)).partitions()
    assert [entry.base_offset for task in newest for piece in task.value for entry in piece.segments] == [20]


def test_a_filter_of_time_believes_no_producer_unless_told_to(cluster: StoredCluster) -> None:
    tp = TopicPartition(cluster.topic("orders"), 0)
    lies = bytearray(batch_of(0, 3, timestamp_ms=TIME_MS + 10))
    struct.pack_into(">q", lies, 35, TIME_MS)  # the largest time
    struct.pack_into(">I", lies, 17, crc32c.crc32c(bytes(lies[21:])))
    cluster.name(tp, cluster.segment(tp, bytes(lies)))
    since = GreaterThanOrEqual(("timestamp",), datetime.datetime.fromtimestamp((TIME_MS + 5) / 1000, datetime.UTC))
    for options, expected in (({}, [0, 1, 2]), ({"trustBatchTimes": "true"}, [])):
        made = reader(cluster, **options)
        assert list(made.pushFilters([since])) == [since]
        assert [
            row["offset"] for task in made.partitions() for found in made.read(task) for row in found.to_pylist()
        ] == expected


def test_a_store_is_named_by_its_folder_too(cluster: StoredCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(cluster)
    folder = Path(cluster.url.removeprefix("file://"))
    monkeypatch.chdir(folder.parent)
    assert parse_options({"store": folder.name, "topic": "orders"}).store == cluster.url
    assert offsets(cluster, store=f"./{folder.name}") == list(range(30))


def test_segments_merged_while_they_are_read_are_found_again(cluster: StoredCluster) -> None:
    tp = stored(cluster)
    made = reader(cluster)
    tasks = made.partitions()
    old = cluster.manifests[tp].entries
    merged = cluster.segment(tp, *(batch_of(at, 10) for at in (0, 10, 20)))
    cluster.write(tp, cluster.manifests[tp].replace(old, merged))
    for entry in old:
        cluster.path(entry.key).unlink()
    assert [row["offset"] for task in tasks for batch in made.read(task) for row in batch.to_pylist()] == list(
        range(30)
    )


def test_retention_that_overtakes_the_reader_is_told(cluster: StoredCluster) -> None:
    tp = stored(cluster)
    made, lenient = reader(cluster), reader(cluster, failOnDataLoss="false")
    tasks = made.partitions()
    gone = cluster.manifests[tp].entries[:2]
    cluster.write(tp, cluster.manifests[tp].raise_log_start(20))
    for entry in gone:
        cluster.path(entry.key).unlink()
    with pytest.raises(BmqError, match="offsets 0 to 19 are gone: its log starts at 20"):
        [list(made.read(task)) for task in tasks]
    assert [row["offset"] for task in tasks for batch in lenient.read(task) for row in batch.to_pylist()] == list(
        range(20, 30)
    )


def test_a_segment_that_is_missing_though_it_is_named_is_told(cluster: StoredCluster) -> None:
    tp = stored(cluster)
    entry = cluster.manifests[tp].entries[1]
    cluster.path(entry.key).unlink()
    with pytest.raises(
        BmqError,
        match=rf"topic orders, partition 0, offset 10: the manifest names an object that is missing.*{entry.key}",
    ):
        offsets(cluster)


@pytest.mark.parametrize("damage", ["a flipped bit", "a cut end", "a foreign batch"])
def test_a_damaged_segment_is_named_with_its_place(cluster: StoredCluster, damage: str) -> None:
    tp = stored(cluster)
    entry = cluster.manifests[tp].entries[1]
    whole = cluster.path(entry.key).read_bytes()
    at = entry.position
    changed = {
        "a flipped bit": whole[: at + 80] + bytes([whole[at + 80] ^ 1]) + whole[at + 81 :],
        "a cut end": whole[: at + 90],
        "a foreign batch": whole[:at] + batch_of(3, 5) + whole[at + len(batch_of(3, 5)) :],
    }[damage]
    cluster.path(entry.key).unlink()
    cluster.path(entry.key).write_bytes(changed)
    with pytest.raises(
        BmqError, match=rf"topic orders, partition 0, offset 10, object {entry.key}, byte \d+: .*begin at offset 20"
    ):
        offsets(cluster)


def test_stores_and_topics_that_are_not_there_are_named(cluster: StoredCluster, tmp_path: Path) -> None:
    stored(cluster)
    with pytest.raises(BmqError, match=r"option topic=nothing: there is no such topic.*bmq topics list"):
        offsets(cluster, topic="nothing")
    with pytest.raises(BmqError, match="there is no such lane"):
        offsets(cluster, lane="dev")
    with pytest.raises(BmqError, match=r"option cluster_id=other: .* is that of the cluster"):
        offsets(cluster, cluster_id="other")
    with pytest.raises(ConfigurationError, match="there is no such folder"):
        offsets(cluster, store=f"file://{tmp_path}/nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BmqError, match="no cluster of bmq is there"):
        offsets(cluster, store=f"file://{tmp_path}/empty")


def test_a_topic_without_segments_is_empty(cluster: StoredCluster) -> None:
    tp = TopicPartition(cluster.topic("orders", partitions=2), 0)
    assert offsets(cluster) == []
    cluster.write(tp, Manifest())
    assert offsets(cluster) == []


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("get_bytes", [1, 7, 50, 61, 100, 333])
def test_batches_between_two_requests_are_read_whole(
    cluster: StoredCluster, monkeypatch: pytest.MonkeyPatch, get_bytes: int, codec: int
) -> None:
    tp = TopicPartition(cluster.topic("orders"), 0)
    cluster.name(tp, cluster.segment(tp, *(batch_of(at, 5, codec=codec) for at in range(0, 30, 5))))
    monkeypatch.setattr(reading, "GET_BYTES", get_bytes)
    assert offsets(cluster) == list(range(30))


@pytest.mark.parametrize("get_bytes", [1, 50, 100])
def test_a_batch_that_is_damaged_between_two_requests_is_named_with_its_place(
    cluster: StoredCluster, monkeypatch: pytest.MonkeyPatch, get_bytes: int
) -> None:
    tp = stored(cluster, segments=1)
    entry = cluster.manifests[tp].entries[0]
    whole = bytearray(cluster.path(entry.key).read_bytes())
    at = entry.position + len(batch_of(0, 5, timestamp_ms=TIME_MS))
    whole[at + 70] ^= 1
    cluster.path(entry.key).unlink()
    cluster.path(entry.key).write_bytes(whole)
    monkeypatch.setattr(reading, "GET_BYTES", get_bytes)
    with pytest.raises(BmqError, match=rf"topic orders, partition 0, offset 5, object {entry.key}, byte {at}: .*CRC"):
        offsets(cluster)
