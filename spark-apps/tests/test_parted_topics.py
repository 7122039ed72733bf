"""Tables of topics whose records name their lane by a header: batches have gaps there, and none of them is a loss."""

import itertools
import json
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from compat_server import Bmq
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource
from iceberg_catalogs import Opened
from parquet_jobs import arguments, rows, topic_of
from parted_topics import ENDS, LANE, NO_TEXT, OFFSETS, create, parted_topic
from pyspark.sql import SparkSession
from test_parquet_streams import make_lane
from tests.waiting import until

from bmq_spark import source
from bmq_spark.jobs import iceberg
from bmq_spark.jobs.cluster import Cluster
from bmq_spark.jobs.parquet import parse, run
from bmq_spark.locations import Location
from bmq_spark.source.batch import BatchReader
from bmq_spark.source.options import parse_options
from bmq_spark.table.checking import check

LANES = pytest.mark.parametrize("lane", ["", LANE], ids=["base", "lane"])
INTO_ICEBERG = {
    "bytes": ("", ["--format", "bytes"], OFFSETS[""]),
    "text": ("", ["--format", "string"], [2, 3, 7, 13, 14]),
    "upserts": (LANE, ["--format", "string", "--key-format", "string", "--upsert-key", "key"], [1, 5, 9, 11, 14]),
}
"""The lane, options of the job, and the offsets of the rows. Of each key upserts leave the last record that fits."""


@pytest.fixture(scope="module")
def placed(bmq: Bmq) -> Bmq:
    """It has LANE."""
    make_lane(bmq, name=LANE)
    return bmq


@pytest.fixture(scope="module")
def topic(placed: Bmq) -> str:
    return parted_topic(placed)


def store_of(bmq: Bmq) -> str:
    return (bmq.log.parent / "data").as_uri()


def cluster(servers: str, *more: str) -> Cluster:
    return Cluster(parse(["--topic", "t", "--output", "/t", "--bootstrap-servers", servers, *more]))


def test_the_base_says_which_topics_have_gaps_also_to_lanes_whose_own_is_older(placed: Bmq, topic: str) -> None:
    plain, older = topic_of(placed.servers), f"{topic}-older"
    create(placed, older, {}, client_id=f"lane={LANE}")
    asked = [topic, plain, older]
    assert cluster(placed.servers, "--lane", LANE).parted(asked) == {topic}
    create(placed, older, {"bmq.lane.header": "x-lane"})
    assert cluster(placed.servers, "--lane", LANE).parted(asked) == {topic, older}
    assert cluster(placed.servers).parted(asked) == {topic, older}


@pytest.mark.parametrize("code", [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._UNSUPPORTED_FEATURE])
def test_topics_whose_configuration_is_not_told_have_no_gaps(code: int) -> None:
    options = parse(["--topic", "t", "--output", "/t", "--bootstrap-servers", "127.0.0.1:1"])
    asked = Cluster(options, client=lambda servers, client_id: Silent(code))
    assert asked.parted(["orders"]) == frozenset()


class Silent(AdminClient):
    """Of a cluster that tells no configuration, and why."""

    def __init__(self, code: int) -> None:
        self._error = KafkaException(KafkaError(code))

    def describe_configs(self, resources: list[ConfigResource], **_: Any) -> dict[ConfigResource, Future[Any]]:
        answers = {resource: Future[Any]() for resource in resources}
        for answer in answers.values():
            answer.set_exception(self._error)
        return answers


@pytest.mark.timeout(600)
@LANES
def test_a_parquet_table_by_brokers_has_all_records_wherever_a_batch_ends(
    placed: Bmq, topic: str, spark: SparkSession, tmp_path: Path, lane: str
) -> None:
    """Of three offsets each, of which some have no record."""
    given = [*arguments(placed.servers, tmp_path / "t", topic), "--lane", lane]
    total = run(parse([*given, "--max-records-per-batch", "3"]), spark)
    assert (total.rows, total.batches) == (len(OFFSETS[lane]), -(-ENDS[lane] // 3))
    assert [offset for (offset,) in rows(tmp_path / "t", '"offset"')] == OFFSETS[lane]
    checked = check(Location.parse(str(tmp_path / "t")))
    assert (checked.findings, checked.rows) == ([], len(OFFSETS[lane]))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", INTO_ICEBERG)
def test_an_iceberg_table_by_brokers_has_all_records_and_dead_letters(
    placed: Bmq, topic: str, spark: SparkSession, sql: Opened, kind: str
) -> None:
    lane, more, offsets = INTO_ICEBERG[kind]
    letters = [] if kind == "bytes" else [NO_TEXT[lane]]
    name = sql.table(f"parted_{kind}")
    assert sql.catalog.warehouse and sql.catalog.uri
    given = ["--bootstrap-servers", placed.servers, "--topic", topic, "--lane", lane, "--once", "--table", str(name)]
    given += ["--catalog-type", "sql", "--catalog-uri", sql.catalog.uri, "--warehouse", sql.catalog.warehouse]
    options = iceberg.parse([*given, *more])
    assert isinstance(options, iceberg.IcebergOptions)
    assert iceberg.run(options, spark).dead_letters == len(letters)
    assert sql.load(name).scan().to_arrow().sort_by("offset").column("offset").to_pylist() == offsets
    if letters:
        assert sql.load(name.dead_letters).scan().to_arrow().column("offset").to_pylist() == letters


@LANES
@pytest.mark.parametrize("segment_ms", ["1", "604800000"], ids=["segments", "tail"])
def test_the_bucket_has_what_lies_between_any_two_offsets(placed: Bmq, lane: str, segment_ms: str) -> None:
    topic, end = parted_topic(placed, {"segment.ms": segment_ms}), ENDS[lane]
    options = {"store": store_of(placed), "topic": topic, "lane": lane}
    if segment_ms == "1":
        until(
            lambda: source.end_of(options)[topic]["partitions"] == {"0": end},
            f"segments to end at {end}",
            60,
            every_s=0.2,
        )
    else:
        options |= {"tail": "protocol", "kafka.bootstrap.servers": placed.servers}
    for start, below in itertools.combinations(range(end + 1), 2):
        if segment_ms == "1" or below - start in (1, 2) or (start, below) == (0, end):
            cut = {"startingOffsets": {topic: {"0": start}}, "endingOffsets": {topic: {"0": below}}}
            assert read(options | {option: json.dumps(places) for option, places in cut.items()}) == [
                offset for offset in OFFSETS[lane] if start <= offset < below
            ]


def read(options: dict[str, str]) -> list[int]:
    """The offsets that the source gives."""
    made = BatchReader(parse_options(options))
    return [row["offset"] for task in made.partitions() for found in made.read(task) for row in found.to_pylist()]
