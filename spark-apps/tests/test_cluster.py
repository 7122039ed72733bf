"""Questions to a cluster of which a broker is just going: what passes by itself ends no job."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from compat_server import Bmq
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, NewTopic

from bmq_spark.errors import JobStopped
from bmq_spark.jobs.cluster import Cluster, Topic
from bmq_spark.jobs.parquet import parse
from bmq_spark.patience import WAIT_S
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


def cluster(*admins: AdminClient) -> Cluster:
    """The clients that it makes are these, one after the other."""
    made = iter(admins)
    options = parse(["--topic", "orders", "--output", "/t", "--bootstrap-servers", "127.0.0.1:1"])
    return Cluster(options, client=lambda servers, client_id: next(made))


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


class Deaf(AdminClient):
    """Waits for a coordinator that is gone, and hears of no other."""

    def __init__(self) -> None:
        self.asked_s: list[float] = []

    def alter_consumer_group_offsets(self, asked: Any, *, request_timeout: float, **_: Any) -> dict[str, Future[Any]]:
        self.asked_s.append(request_timeout)
        return {"parquet-orders": _told(self._late)}

    def _late(self) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


class Hearing(AdminClient):
    """Takes what a group commits."""

    def __init__(self) -> None:
        self.taken: list[ConsumerGroupTopicPartitions] = []

    def alter_consumer_group_offsets(self, asked: Any, **_: Any) -> dict[str, Future[Any]]:
        self.taken += asked
        return {"parquet-orders": _told(lambda: asked[0])}


def test_a_client_that_hears_nothing_gives_way_to_a_new_one_within_the_wait() -> None:
    deaf, hearing = Deaf(), Hearing()
    asked = cluster(deaf, hearing)
    for end in (5, 6):
        asked.commit("parquet-orders", {"orders": {0: end}})
    assert [each.topic_partitions[0].offset for each in hearing.taken] == [5, 6]
    assert len(deaf.asked_s) == 1 and deaf.asked_s[0] <= WAIT_S / 3


def test_a_coordinator_that_gives_no_answer_is_named_and_a_new_client_asks_the_next_time() -> None:
    hearing = Hearing()
    asked = cluster(Deaf(), Deaf(), hearing)
    asked._wait_s = 0.3
    with pytest.raises(
        JobStopped, match=r"brokers 127\.0\.0\.1:1: no answer of the coordinator of group parquet-orders"
    ):
        asked.commit("parquet-orders", {"orders": {0: 5}})
    asked.commit("parquet-orders", {"orders": {0: 6}})
    assert [each.topic_partitions[0].offset for each in hearing.taken] == [6]


@pytest.mark.verify
def test_a_group_is_told_of_its_progress_again_once_its_broker_is_back(tmp_path: Path) -> None:
    broker = Bmq(["--data", str(tmp_path / "data")], log=tmp_path / "bmq.log")
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.servers})
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(timeout=30)
        producer = Producer({"bootstrap.servers": broker.servers})
        for _ in range(10):
            producer.produce("orders", b"x")
        assert producer.flush(30) == 0
        asked = Cluster(parse(["--topic", "orders", "--output", "/t", "--bootstrap-servers", broker.servers]))
        asked.commit("parquet-orders", {"orders": {0: 1}})
        broker.kill9()
        asked._wait_s = 2
        with pytest.raises(JobStopped, match="of the coordinator of group parquet-orders within 2 s"):
            asked.commit("parquet-orders", {"orders": {0: 2}})
        broker.start()
        asked._wait_s = WAIT_S
        asked.commit("parquet-orders", {"orders": {0: 3}})
    finally:
        broker.stop()


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
