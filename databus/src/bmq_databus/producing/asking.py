"""What a sidecar asks its cluster, beside what it writes. Nothing is made by that."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from bmq_databus.errors import NothingKnown

LOOK_WITHIN_S: Final = 5.0


class Asking:
    """One cluster, which is connected to once somebody asks."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """`settings` are librdkafka's."""
        self._settings = settings
        self._admin: AdminClient | None = None
        self._id = ""

    async def cluster_id(self) -> str:
        """As Kafka clients know it. Raises NothingKnown."""
        if not self._id:
            asked = self._client().describe_cluster(request_timeout=LOOK_WITHIN_S)
            try:
                described = await asyncio.wrap_future(asked)
            except KafkaException as error:
                raise _unknown("which cluster it is", error.args[0]) from error
            self._id = described.cluster_id or ""
        return self._id

    async def look(self, names: Sequence[str]) -> Mapping[str, str | NothingKnown]:
        """Why there is no such topic that could be written, by name; empty: there is. NothingKnown: it is not known."""
        asked = self._client().describe_topics(TopicCollection(list(names)), request_timeout=LOOK_WITHIN_S)
        described = await asyncio.gather(*map(asyncio.wrap_future, asked.values()), return_exceptions=True)
        return {name: _why_not(one) for name, one in zip(asked, described, strict=True)}

    def _client(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(dict(self._settings))
        return self._admin


def _why_not(described: Any) -> str | NothingKnown:
    if not isinstance(described, BaseException):
        return "it is the cluster's own" if described.is_internal else ""
    if not isinstance(described, KafkaException):
        raise described
    error: KafkaError = described.args[0]
    match error.code():
        case KafkaError.UNKNOWN_TOPIC_OR_PART | KafkaError.TOPIC_EXCEPTION:
            return "the cluster has none"
        case KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return "the cluster does not let the sidecar see it"
    return _unknown("whether there is such a topic", error)


def _unknown(what: str, error: KafkaError) -> NothingKnown:
    return NothingKnown(
        f"{what} is not known, as the cluster does not say ({error.str()}): see that it runs and that this machine "
        "reaches it, then send it again"
    )
