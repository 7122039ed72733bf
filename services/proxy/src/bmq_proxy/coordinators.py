"""Requests about groups, sent to the owner of the partition of `__consumer_offsets` that a group lives in.

Makes that topic when it is first needed. What is asked about several groups is split by partition; the handlers merge.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from bmq.config.cluster_config import resolve_cluster
from bmq.errors import BmqError, ControllerUnavailable, NotOwner, NotReady, TopicExists
from bmq.fairness.fair_room import FairRoom
from bmq.metadata.image import Topic
from bmq.naming.group_partition import partition_of_group
from bmq.naming.names import CONSUMER_OFFSETS
from bmq.roles.controller import Controller, Metadata, NewTopic
from bmq.roles.owner import SAID, Caller, Owner
from bmq.values import TopicPartition
from bmq_proxy.calls import Call
from bmq_proxy.images import image_with
from bmq_proxy.patience import Patience

_CONFIGS = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": str(64 << 20)}
OFFSETS_PARTITIONS_KEY = "offsets.topic.num.partitions"
_SHOWN_WITHIN_S = 10.0
CALLS_AT_ONCE = 16
HELD_MAX = 9_500
"""Requests that wait for others of their groups, by this proxy: somewhat less than a connection to a broker carries…"""
HELD_TIMES = 4
"""…of which those of one address are at most so many times what they leave to others: a group that is larger than that
would never be complete."""
IDS_PER_TURN = 2_000
"""Groups whose partition is found in one turn of the loop, a ms or two."""
_ID_CHARS = 20
"""As many characters of a group's id count as one group more: the id costs as much more as it has more of them."""


class GroupCalls(Protocol):
    """What handlers ask of groups' coordinators."""

    async def call(self, group_id: str, api_key: int, request: Any, call: Call) -> Any:
        """The answer of the group's coordinator. Raises as Owner.group_call, and NotOwner, ControllerUnavailable."""

    async def call_all(
        self, api_key: int, request: Any, call: Call, *, only: Callable[[TopicPartition], bool] = ...
    ) -> list[Any]:
        """The answers of the coordinators of all partitions, or of those for which `only` says so; none where no group
        has ever been. Raises as `call`.
        """

    async def call_each(
        self, group_ids: Iterable[str], api_key: int, request_for: Callable[[list[str]], Any], call: Call
    ) -> list[tuple[list[str], Any]]:
        """The answers about the groups, by one call for those that live together: (the groups, the answer or the
        BmqError), in no particular order.
        """

    async def offsets_topic(self, call: Call) -> Topic:
        """`__consumer_offsets`, made now if it does not exist. Raises ControllerUnavailable, NotReady, RequestError."""

    def partition_of(self, group_id: str, topic: Topic) -> int:
        """In which partition of `topic` the group lives."""


class Coordinators:
    """Finds coordinators and talks to them."""

    def __init__(
        self,
        owner_for: Callable[[TopicPartition], Owner],
        controller: Controller,
        metadata: Metadata,
        patience: Patience,
        *,
        offsets_topic_partitions: int,
    ) -> None:
        self._owner_for = owner_for
        self._controller = controller
        self._metadata = metadata
        self.patience = patience
        self._default_partitions = offsets_topic_partitions
        self._creating = asyncio.Lock()
        self._held = FairRoom(HELD_MAX, times=HELD_TIMES)

    async def call(self, group_id: str, api_key: int, request: Any, call: Call) -> Any:
        """The answer of the group's coordinator. Raises what Owner.group_call raises, NotOwner,
        ControllerUnavailable.
        """
        topic = await self.offsets_topic(call)
        return await self._ask(topic, partition_of_group(group_id, len(topic.partitions)), api_key, request, call)

    async def call_all(
        self, api_key: int, request: Any, call: Call, *, only: Callable[[TopicPartition], bool] = lambda _: True
    ) -> list[Any]:
        """The answers of the coordinators of all partitions, or of some only; none where no group has ever been. Raises
        as `call`.
        """
        topic = self._metadata.image.topic(CONSUMER_OFFSETS)
        if topic is None:
            return []
        return await self._ask_each(
            [(index, request) for index in range(len(topic.partitions)) if only(TopicPartition(topic.topic_id, index))],
            topic,
            api_key,
            call,
        )

    async def call_each(
        self, group_ids: Iterable[str], api_key: int, request_for: Callable[[list[str]], Any], call: Call
    ) -> list[tuple[list[str], Any]]:
        """One call per partition that any of the groups lives in: (its groups, the answer or the BmqError), in no
        particular order. Where nobody knows in which they live, all have that error.
        """
        try:
            topic = await self.offsets_topic(call)
        except BmqError as error:
            return [(list(dict.fromkeys(group_ids)), error)]
        shares: dict[int, list[str]] = {}
        done = 0
        for group_id in dict.fromkeys(group_ids):
            shares.setdefault(partition_of_group(group_id, len(topic.partitions)), []).append(group_id)
            done += 1 + len(group_id) // _ID_CHARS
            if done >= IDS_PER_TURN:
                done = 0
                await asyncio.sleep(0)
        at_once = asyncio.Semaphore(CALLS_AT_ONCE)

        async def ask(partition: int, groups: list[str]) -> tuple[list[str], Any]:
            async with at_once:
                try:
                    return groups, await self._ask(topic, partition, api_key, request_for(groups), call)
                except BmqError as error:
                    return groups, error

        return list(await asyncio.gather(*(ask(partition, groups) for partition, groups in shares.items())))

    async def offsets_topic(self, call: Call) -> Topic:
        """`__consumer_offsets`, made now where it does not exist. Raises ControllerUnavailable, NotReady,
        RequestError.
        """
        topic = self._metadata.image.topic(CONSUMER_OFFSETS)
        return topic if topic is not None else await self.patience.answered(call, self._made)

    async def _made(self) -> Topic:
        async with self._creating:
            topic = self._metadata.image.topic(CONSUMER_OFFSETS)
            return topic if topic is not None else await self._create()

    def partition_of(self, group_id: str, topic: Topic) -> int:
        """In which partition of `topic` the group lives."""
        return partition_of_group(group_id, len(topic.partitions))

    async def _create(self) -> Topic:
        configured = self._metadata.image.configs.get(("broker", ""), {})
        partitions = (
            resolve_cluster(configured).offsets_topic_partitions
            if OFFSETS_PARTITIONS_KEY in configured
            else self._default_partitions
        )
        [result] = await self._controller.create_topics(
            [NewTopic(name=CONSUMER_OFFSETS, partitions=partitions, configs=_CONFIGS)]
        )
        if result.error is not None and not isinstance(result.error, TopicExists):
            raise result.error
        topic = await image_with(self._metadata, lambda image: image.topic(CONSUMER_OFFSETS), _SHOWN_WITHIN_S)
        if topic is None:
            raise ControllerUnavailable(
                f"{CONSUMER_OFFSETS} was created and does not show up; this node's metadata is behind"
            )
        return topic

    async def _ask_each(self, asked: list[tuple[int, Any]], topic: Topic, api_key: int, call: Call) -> list[Any]:
        at_once = asyncio.Semaphore(CALLS_AT_ONCE)

        async def ask(partition: int, request: Any) -> Any:
            async with at_once:
                return await self._ask(topic, partition, api_key, request, call)

        return list(await asyncio.gather(*(ask(partition, request) for partition, request in asked)))

    async def _ask(self, topic: Topic, partition: int, api_key: int, request: Any, call: Call) -> Any:
        if topic.topic_id not in self._metadata.image.topics:
            raise NotOwner(f"{CONSUMER_OFFSETS} was deleted")
        owner = self._owner_for(TopicPartition(topic.topic_id, partition))
        caller = Caller(
            client_id=call.client_id, client_host=call.client_host, api_version=call.version, taken=call.lease.give_back
        )
        if api_key in SAID:  # its group says how long it is waited for
            return await self._held_call(owner, partition, api_key, request, caller)
        return await self.patience.answered(call, lambda: owner.group_call(partition, api_key, request, caller))

    async def _held_call(self, owner: Owner, partition: int, api_key: int, request: Any, caller: Caller) -> Any:
        address = caller.client_host
        if not self._held.has(1, address=address):
            raise NotReady(f"too many clients at {address.lstrip('/')} wait here for others of their groups")
        with self._held.holding(1, address=address):
            return await owner.group_call(partition, api_key, request, caller)
