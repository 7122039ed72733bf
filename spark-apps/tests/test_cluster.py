"""Questions to a cluster of which a broker is just going: what passes by itself ends no job."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo

from bmq_spark.errors import JobStopped
from bmq_spark.jobs.cluster import Cluster, Topic
from bmq_spark.jobs.parquet import parse
from bmq_spark.source import tail
from bmq_spark.source.slices import SourceTopic
from bmq_spark.source.tail import Brokers

ORDERS = {"orders": Topic(id="id", partitions=(0, 1))}
PASSING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError._TRANSPORT,
)


class Going(AdminClient):
    """Of a cluster that says so often that the second partition is not where it was asked, then where it ends."""

    def __init__(self, code: int, times: int) -> None:
        self._error = KafkaException(KafkaError(code))
        self.times = times

    def list_offsets(self, asked: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Future[Any]]:
        self.times -= 1
        return {where: _told(lambda where=where: self._end(where)) for where in asked}

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        self.times -= 1
        return {"orders": _told(self._raised)}

    def _end(self, where: TopicPartition) -> ListOffsetsResultInfo:
        if where.partition == 1 and self.times >= 0:
            self._raised()
        return ListOffsetsResultInfo(7 + where.partition, 0, -1)

    def _raised(self) -> None:
        raise self._error


def _told(answer: Callable[[], Any]) -> Future[Any]:
    told = Future[Any]()
    try:
        told.set_result(answer())
    except KafkaException as error:
        told.set_exception(error)
    return told


def cluster(admin: Going) -> Cluster:
    asked = Cluster(parse(["--topic", "orders", "--output", "/t", "--bootstrap-servers", "127.0.0.1:1"]))
    asked._admin = admin
    return asked


@pytest.mark.parametrize("code", PASSING)
def test_where_logs_begin_and_end_is_asked_again_while_a_partition_changes_its_broker(code: int) -> None:
    ends = {"orders": {0: 7, 1: 8}}
    assert cluster(Going(code, times=2)).ends(ORDERS) == ends
    assert cluster(Going(code, times=1)).starts(ORDERS) == ends


def test_what_does_not_pass_within_the_wait_stops_the_job_in_one_line() -> None:
    asked = cluster(Going(KafkaError.NOT_LEADER_FOR_PARTITION, times=1000))
    asked._wait_s = 0.5
    with pytest.raises(JobStopped, match=r"topic orders at 127\.0\.0\.1:1: .*Not leader for partition: .* 0\.5 s"):
        asked.ends(ORDERS)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "has no such topic: create it"),
    ],
)
def test_what_does_not_pass_is_asked_for_once(code: int, says: str) -> None:
    admin = Going(code, times=1)
    with pytest.raises(JobStopped, match=says):
        cluster(admin).topics(["orders"])
    assert admin.times == 0


class GoingConsumer:
    """As Going, for the source that fetches by itself."""

    refusals = 0

    def __init__(self, settings: Any) -> None:
        pass

    def get_watermark_offsets(self, where: TopicPartition, **_: Any) -> tuple[int, int]:
        self._refuse()
        return 0, 7

    def offsets_for_times(self, asked: list[TopicPartition], **_: Any) -> list[TopicPartition]:
        self._refuse()
        return [TopicPartition("orders", 0, 5)]

    def _refuse(self) -> None:
        if GoingConsumer.refusals > 0:
            GoingConsumer.refusals -= 1
            raise KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))

    def close(self) -> None:
        pass


def test_the_source_asks_again_where_a_partition_ends_while_it_changes_its_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tail, "Consumer", GoingConsumer)
    brokers = Brokers(settings={"bootstrap.servers": "127.0.0.1:1"})
    topic = SourceTopic(name="orders", lane="", topic_id=None, partition_count=1)  # type: ignore[arg-type]
    GoingConsumer.refusals = 2
    assert brokers.ends([(topic, 0)]) == {("orders", 0): 7}
    GoingConsumer.refusals = 2
    assert brokers.offset_at("orders", 0, 1) == 5
