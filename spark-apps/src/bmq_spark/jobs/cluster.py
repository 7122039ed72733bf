"""What a job asks of the cluster beside its records: ids and partitions of topics, which of them have gaps, where logs
begin and end, and its group's offsets.

Each question has a bounded wait, in which it is asked again where a broker is just going; then it is JobStopped, with
the address in it.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
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
from bmq_spark.patience import WAIT_S
from bmq_spark.source.failures import PASSING, PAUSE_S

_UNREACHABLE: Final = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)
_AGAIN: Final = PASSING | {*_UNREACHABLE}
_UNKNOWN: Final = frozenset((KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID))
"""Passes by itself only where the topic was there a moment ago."""
TRY_S: Final = 8.0
"""What one client is given to answer. librdkafka asks a group's coordinator where it was before its broker ended, and
that client never hears of it again: another one, made then, does."""
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

    def __init__(self, options: JobOptions, *, client: Callable[[str, str], AdminClient] | None = None) -> None:
        """`client` makes one, by addresses and client id."""
        self._servers = options.bootstrap_servers
        self._lane = options.lane
        self._wait_s = WAIT_S
        self._client = client or _client
        self._id = options.client_id
        self._clients: dict[str, AdminClient] = {}
        """By client id, which says in which lane they are."""

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Raises JobStopped where there is no such topic, or no answer."""
        found = {}
        for name, described in self._ask(
            lambda admin, wait_s: admin.describe_topics(TopicCollection(list(names)), request_timeout=wait_s),
            lambda name: f"topic {name}",
        ).items():
            found[name] = Topic(
                id=str(described.topic_id), partitions=tuple(sorted(partition.id for partition in described.partitions))
            )
        return found

    def parted(self, names: Collection[str]) -> frozenset[str]:
        """Those whose batches may have offsets without a record, as they are parted by a header (`bmq.lane.header`).
        Raises JobStopped.

        In a lane the base is asked, too: its topic says what is parted, and a lane's own that is older says nothing.
        """
        found = self._with_lane_header(self._id, names)
        if self._lane:
            found |= self._with_lane_header(CLIENT_ID, names, unless=(*_UNTOLD, KafkaError.UNKNOWN_TOPIC_OR_PART))
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
            lambda admin, wait_s: admin.alter_consumer_group_offsets(request, request_timeout=wait_s),
            lambda _: f"group {group}",
            whose=f" of the coordinator of group {group}",
        ).values():
            for committed in answer.topic_partitions:
                if committed.error is not None:
                    raise JobStopped(f"group {group}: {committed.topic}/{committed.partition}: {committed.error.str()}")

    def _offsets(self, topics: Mapping[str, Topic], spec: Any) -> dict[str, dict[int, int]]:
        asked = {
            TopicPartition(name, partition): spec for name, topic in topics.items() for partition in topic.partitions
        }
        found: dict[str, dict[int, int]] = {name: {} for name in topics}
        for where, answer in self._ask(
            lambda admin, wait_s: admin.list_offsets(asked, request_timeout=wait_s),
            lambda where: f"topic {where.topic}",
            again=_AGAIN,
        ).items():
            found[where.topic][where.partition] = answer.offset
        return found

    def _with_lane_header(
        self, client_id: str, names: Collection[str], *, unless: Collection[int] = _UNTOLD
    ) -> frozenset[str]:
        asked = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
        found = set()
        for topic, told in self._ask(
            lambda admin, wait_s: admin.describe_configs(asked, request_timeout=wait_s),
            lambda topic: f"topic {topic.name}",
            client_id=client_id,
            unless=unless,
        ).items():
            configs = told or {}
            if LANE_HEADER in configs and configs[LANE_HEADER].value:
                found.add(topic.name)
        return frozenset(found)

    def _ask(
        self,
        question: Callable[[AdminClient, float], Mapping[Any, Any]],
        what: Callable[[Any], str],
        *,
        client_id: str | None = None,
        unless: Collection[int] = (),
        again: Collection[int] = _AGAIN - _UNKNOWN,
        whose: str = "",
    ) -> dict[Any, Any]:
        """The answers by what each is of, None where its error is one of `unless`. `question` is given how long it may
        wait. Asked again in the whole time where an error is one of `again`, and by another client where one heard
        nothing. Raises JobStopped, which says `whose` answer did not come.
        """
        client_id = client_id or self._id
        until = time.monotonic() + self._wait_s
        while True:
            asked: Any = None
            found = {}
            try:
                wait_s = max(1.0, min(TRY_S, until - time.monotonic()))
                for asked, answer in question(self._admin(client_id), wait_s).items():
                    found[asked] = _result(answer, wait_s + 5, unless)
                return found
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError._TIMED_OUT:
                    del self._clients[client_id]
                if code not in again or time.monotonic() + PAUSE_S > until:
                    raise self._stopped(
                        error, "" if asked is None else what(asked), passing=code in again, whose=whose
                    ) from error
            except TimeoutError as error:
                del self._clients[client_id]
                if time.monotonic() + PAUSE_S > until:
                    raise JobStopped(self._no_answer(whose)) from error
            time.sleep(PAUSE_S)

    def _admin(self, client_id: str) -> AdminClient:
        if client_id not in self._clients:
            self._clients[client_id] = self._client(self._servers, client_id)
        return self._clients[client_id]

    def _stopped(self, error: KafkaException, what: str, *, passing: bool, whose: str) -> JobStopped:
        reason = error.args[0]
        if reason.code() in _UNREACHABLE:
            return JobStopped(self._no_answer(whose))
        if reason.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return JobStopped(
                f"{what}: the cluster at {self._servers} has no such topic: create it, or name another by --topic"
            )
        where = f"{what or 'the cluster'} at {self._servers}: {reason.str()}"
        return JobStopped(f"{where}: so for {self._wait_s:g} s: look at the brokers" if passing else where)

    def _no_answer(self, whose: str) -> str:
        return (
            f"brokers {self._servers}: no answer{whose} within {self._wait_s:g} s: start them, or name others by "
            "--bootstrap-servers"
        )


def _result(answer: Any, wait_s: float, unless: Collection[int]) -> Any:
    try:
        return answer.result(timeout=wait_s)
    except KafkaException as error:
        if error.args[0].code() in unless:
            return None
        raise


def _client(servers: str, client_id: str) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": servers,
            "client.id": client_id,
            "log_level": 0,
            "socket.timeout.ms": int(TRY_S * 1000),
        }
    )
