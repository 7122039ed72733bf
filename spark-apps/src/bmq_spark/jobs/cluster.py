"""What a job asks of the cluster beside its records: ids and partitions of topics, which of them have gaps, where logs
begin and end, and its group's offsets.

Each question has a bounded wait, after which it is JobStopped with the address in it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec

from bmq.config.topic_config import LANE_HEADER
from bmq_spark.batches.places import Places, each
from bmq_spark.errors import JobStopped
from bmq_spark.options import CLIENT_ID, JobOptions

WAIT_S: Final = 30
_UNREACHABLE: Final = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)
_UNTOLD: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError._UNSUPPORTED_FEATURE,
)
"""Clusters of others may not tell a job the configuration of what it reads; they have no lanes either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic as the cluster has it now."""

    id: str
    """The id of this incarnation: a topic that is deleted and made again has another."""
    partitions: tuple[int, ...]


class Cluster:
    """The cluster at one address, as clients of one lane see it."""

    def __init__(self, options: JobOptions) -> None:
        self._servers = options.bootstrap_servers
        self._lane = options.lane
        self._wait_s = WAIT_S
        self._admin = _client(options.bootstrap_servers, options.client_id)

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Raises JobStopped where there is no such topic, or no answer."""
        found = {}
        for name, answer in self._ask(
            lambda: self._admin.describe_topics(TopicCollection(list(names)), request_timeout=self._wait_s)
        ).items():
            described = self._result(answer, f"topic {name}")
            found[name] = Topic(
                id=str(described.topic_id), partitions=tuple(sorted(partition.id for partition in described.partitions))
            )
        return found

    def parted(self, names: Collection[str]) -> frozenset[str]:
        """Those whose batches may have offsets without a record, as they are parted by a header (`bmq.lane.header`).
        Raises JobStopped.

        In a lane the base is asked, too: its topic says what is parted, and a lane's own that is older says nothing.
        """
        found = self._with_lane_header(self._admin, names)
        if self._lane:
            base = _client(self._servers, CLIENT_ID)
            found |= self._with_lane_header(base, names, unless=(*_UNTOLD, KafkaError.UNKNOWN_TOPIC_OR_PART))
        return found

    def starts(self, topics: Mapping[str, Topic]) -> dict[str, dict[int, int]]:
        """Where the logs begin: what is below is gone."""
        return self._offsets(topics, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def ends(self, topics: Mapping[str, Topic]) -> dict[str, dict[int, int]]:
        """Where the logs end."""
        return self._offsets(topics, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def commit(self, group: str, places: Places) -> None:
        """Commits the places as the group's offsets. Raises JobStopped."""
        offsets = [TopicPartition(topic, partition, offset) for topic, partition, offset in each(places)]
        request = [ConsumerGroupTopicPartitions(group, offsets)]
        for answer in self._ask(
            lambda: self._admin.alter_consumer_group_offsets(request, request_timeout=self._wait_s)
        ).values():
            for committed in self._result(answer, f"group {group}").topic_partitions:
                if committed.error is not None:
                    raise JobStopped(f"group {group}: {committed.topic}/{committed.partition}: {committed.error.str()}")

    def _offsets(self, topics: Mapping[str, Topic], spec: Any) -> dict[str, dict[int, int]]:
        asked = {
            TopicPartition(name, partition): spec for name, topic in topics.items() for partition in topic.partitions
        }
        found: dict[str, dict[int, int]] = {name: {} for name in topics}
        for where, answer in self._ask(lambda: self._admin.list_offsets(asked, request_timeout=self._wait_s)).items():
            found[where.topic][where.partition] = self._result(answer, f"topic {where.topic}").offset
        return found

    def _with_lane_header(
        self, admin: AdminClient, names: Collection[str], *, unless: Collection[int] = _UNTOLD
    ) -> frozenset[str]:
        asked = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
        found = set()
        for topic, answer in self._ask(lambda: admin.describe_configs(asked, request_timeout=self._wait_s)).items():
            configs = self._result(answer, f"topic {topic.name}", unless=unless) or {}
            if LANE_HEADER in configs and configs[LANE_HEADER].value:
                found.add(topic.name)
        return frozenset(found)

    def _ask(self, question: Any) -> dict[Any, Any]:
        try:
            answers: dict[Any, Any] = question()
        except KafkaException as error:
            raise self._stopped(error, "") from error
        return answers

    def _result(self, answer: Any, what: str, *, unless: Collection[int] = ()) -> Any:
        """None where the error is one of `unless`."""
        try:
            return answer.result(timeout=self._wait_s + 5)
        except KafkaException as error:
            if error.args[0].code() in unless:
                return None
            raise self._stopped(error, what) from error
        except TimeoutError as error:
            raise JobStopped(self._no_answer()) from error

    def _stopped(self, error: KafkaException, what: str) -> JobStopped:
        reason = error.args[0]
        if reason.code() in _UNREACHABLE:
            return JobStopped(self._no_answer())
        if reason.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return JobStopped(
                f"{what}: the cluster at {self._servers} has no such topic: create it, or name another by --topic"
            )
        return JobStopped(f"{what or 'the cluster'} at {self._servers}: {reason.str()}")

    def _no_answer(self) -> str:
        return (
            f"brokers {self._servers}: no answer within {self._wait_s:g} s: start them, or name others by "
            "--bootstrap-servers"
        )


def _client(servers: str, client_id: str) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": servers,
            "client.id": client_id,
            "log_level": 0,
            "socket.timeout.ms": WAIT_S * 1000,
        }
    )
