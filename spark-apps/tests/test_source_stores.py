"""Stores that refuse, or are not what they should be: what the source says of them."""

from pathlib import Path

import pytest
from conftest import Buckets
from stored_cluster import StoredCluster, batch_of

from bmq.runtime.bucket import ensure_bucket
from bmq.runtime.store_url import parse_store_url
from bmq.values import TopicPartition
from bmq_spark.errors import BmqError
from bmq_spark.source.batch import BatchReader
from bmq_spark.source.options import parse_options


def offsets(url: str) -> list[int]:
    made = BatchReader(parse_options({"store": url, "topic": "orders"}))
    return [row["offset"] for task in made.partitions() for batch in made.read(task) for row in batch.to_pylist()]


def test_a_bucket_is_read_like_a_folder(minio: Buckets, tmp_path: Path) -> None:
    url = minio.store_url("source-stores")
    ensure_bucket(parse_store_url(url))
    cluster = StoredCluster(tmp_path, store=url)
    topic_id = cluster.topic("orders", partitions=2)
    runs = {
        TopicPartition(topic_id, number): [batch_of(0, 5, codec=codec) for codec in (number + 3,)]
        for number in range(2)
    }
    for tp, entry in cluster.shared(runs).items():
        cluster.name(tp, entry)
    assert offsets(url) == [0, 1, 2, 3, 4] * 2


def test_a_bucket_that_is_not_there_is_named(minio: Buckets) -> None:
    with pytest.raises(BmqError, match=r"source-nothing.*HTTP 404 NoSuchBucket.*make it first, or check the URL"):
        offsets(minio.store_url("source-nothing"))


def test_a_bucket_that_refuses_is_named(minio: Buckets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    with pytest.raises(BmqError, match=r"source-refusing.*HTTP 403 SignatureDoesNotMatch.*check AWS_ACCESS_KEY_ID"):
        offsets(minio.store_url("source-refusing"))


def test_metadata_of_a_newer_bmq_is_refused_by_name(tmp_path: Path) -> None:
    cluster = StoredCluster(tmp_path / "data")
    cluster.topic("orders")
    path = next((tmp_path / "data" / "meta" / "log").iterdir())
    entry = path.read_bytes()
    path.unlink()
    path.write_bytes(entry[:4] + b"\x00\x63" + entry[6:])
    with pytest.raises(BmqError, match=r"format version 99.* upgrade it"):
        offsets(cluster.url)


def test_a_segment_index_of_a_newer_bmq_is_refused_with_its_place(tmp_path: Path) -> None:
    cluster = StoredCluster(tmp_path / "data")
    tp = TopicPartition(cluster.topic("orders"), 0)
    entry = cluster.segment(tp, *(batch_of(at, 2_000) for at in range(0, 60_000, 2_000)))
    cluster.name(tp, entry)
    whole = cluster.path(entry.key).read_bytes()
    cluster.path(entry.key).unlink()
    at = entry.index_position + 4
    cluster.path(entry.key).write_bytes(whole[:at] + b"\x00\x63" + whole[at + 2 :])
    made = BatchReader(
        parse_options({"store": cluster.url, "topic": "orders", "startingOffsets": '{"orders":{"0":9}}'})
    )
    with pytest.raises(BmqError, match=rf"topic orders, partition 0, offset 0, object {entry.key}.*format version 99"):
        [list(made.read(task)) for task in made.partitions()]
