"""Produce in a lane whose topic nobody has written to yet: it is made once, what comes behind keeps its order, and the
base gets none.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from proxy_in_memory import Client, Running, batch, running_proxy
from tests.waiting import until_async

from bmq.config.limits import Limits
from bmq.errors import ControllerUnavailable
from bmq.metadata.image import Lane, PartitionMeta, Topic
from bmq.naming.lanes import overlay_id, overlay_name
from bmq.roles.controller import NewTopic, TopicResult
from bmq.values import LeaderEpoch, NodeId, TopicId, TopicPartition
from bmq.wire.batch_headers import split
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq.wire.records import iterate_records
from bmq_proxy.settings import ProxySettings


def add_overlay(proxy: Running, name: str, _: int, configs: Mapping[str, str] | None = None) -> Topic:
    """As the controller makes the lane's topics: as wide as the base's, under the id that was foretold."""
    image = proxy.metadata.image
    meta = PartitionMeta(node_id=NodeId(1), leader_epoch=LeaderEpoch(3))
    base = name.removeprefix("dev:")
    topic_id = TopicId(
        overlay_id(image.cluster_id, 1, base, image.next_leader_epoch(name), base_id=image.topic_ids.get(base))
    )
    topic = Topic(topic_id=topic_id, name=name, partitions=(meta,) * 3, configs=dict(configs or {}))
    proxy.metadata.change(topics={**image.topics, topic_id: topic}, topic_ids={**image.topic_ids, name: topic_id})
    return topic


class Gate:
    """Holds up what the controller is asked to create; `asked` is what it was."""

    def __init__(self, proxy: Running) -> None:
        self.open = asyncio.Event()
        self.asked: list[str] = []
        self._create = proxy.controller.create_topics
        proxy.controller.create_topics = self._held  # type: ignore[method-assign]

    async def _held(self, topics: Sequence[NewTopic], **more: Any) -> list[TopicResult]:
        named = [replace(topic, name=overlay_name(topic.lane, topic.name), lane="") for topic in topics]
        self.asked += [topic.name for topic in named]
        await self.open.wait()
        return await self._create(named, **more)


def in_lane(
    test: Callable[[Running, Client, Gate, Topic], Awaitable[None]], settings: ProxySettings | None = None
) -> None:
    """A client of the lane `dev`; the base has the topic `orders`, of three partitions."""

    async def main() -> None:
        async with running_proxy(settings) as proxy:
            proxy.metadata.change(lanes={"dev": Lane(name="dev", number=1, created_ms=0)})
            base = proxy.metadata.add_topic("orders", 3)
            proxy.metadata.add_topic = partial(add_overlay, proxy)  # type: ignore[method-assign]
            client = await proxy.connect()
            client.client_id = "lane=dev,app"
            await asyncio.wait_for(test(proxy, client, Gate(proxy), base), 20)

    asyncio.run(main())


def values(proxy: Running, topic: Topic, partition: int = 0) -> list[bytes]:
    found = []
    for _, _, data in proxy.owner.log(TopicPartition(topic.topic_id, partition)).batches:
        for header in split(data):
            found += [record.value or b"" for record in iterate_records(data, header)]
    return found


def codes(message: Message) -> list[int]:
    return [one.error_code for topic in message.responses for one in topic.partition_responses]


def test_what_comes_behind_the_first_write_keeps_its_order_and_none_of_it_reaches_the_base() -> None:
    async def test(proxy: Running, client: Client, gate: Gate, base: Topic) -> None:
        other = await proxy.connect()
        other.client_id = "lane=dev,other"
        sent = [client.send_produce("orders", {0: batch(b"%d" % number)}) for number in range(5)]
        other.send_produce("orders", {1: batch(b"other")})
        await until_async(lambda: bool(gate.asked), "the topic to be asked for")
        await asyncio.sleep(0.05)
        assert gate.asked == ["dev:orders"]
        gate.open.set()
        answers = [await client.receive() for _ in sent]
        assert [number for number, _ in answers] == sent
        assert [codes(message) for _, message in answers] == [[0]] * 5
        assert codes((await other.receive())[1]) == [0]
        made = proxy.metadata.image.topic("dev:orders")
        assert made is not None
        assert values(proxy, made) == [b"%d" % number for number in range(5)]
        assert values(proxy, made, 1) == [b"other"]
        assert not any(values(proxy, base, index) for index in range(3))
        assert gate.asked == ["dev:orders"]

    in_lane(test)


@pytest.mark.parametrize("behind", [False, True], ids=["alone", "behind a first write"])
def test_a_null_topic_id_is_no_topics(behind: bool) -> None:
    async def test(proxy: Running, client: Client, gate: Gate, base: Topic) -> None:
        if behind:
            client.send_produce("orders", {0: batch(b"first")})
            await until_async(lambda: bool(gate.asked), "the topic to be asked for")
        null = {"topic_id": UUID(int=0), "partition_data": [{"index": 0, "records": batch(b"lost")}]}
        client.send(0, 13, {"transactional_id": None, "acks": -1, "timeout_ms": 5_000, "topic_data": [null]})
        gate.open.set()
        if behind:
            assert codes((await client.receive())[1]) == [0]
        assert codes((await client.receive())[1]) == [ErrorCode.unknown_topic_id]

    in_lane(test)


@pytest.mark.parametrize("refused", ["the request", "the topic"])
def test_where_the_topic_cannot_be_made_nothing_is_taken_and_the_client_is_told_to_try_again(refused: str) -> None:
    async def test(proxy: Running, client: Client, gate: Gate, base: Topic) -> None:
        create = gate._create
        if refused == "the request":
            proxy.controller.error = ControllerUnavailable("none leads")
        else:

            async def refuse(topics: Sequence[NewTopic], **more: Any) -> list[TopicResult]:
                return [
                    TopicResult(name=topic.name, error=ControllerUnavailable("too many partitions")) for topic in topics
                ]

            gate._create = refuse
        gate.open.set()
        for number in range(2):
            client.send_produce("orders", {0: batch(b"%d" % number)})
        assert [codes((await client.receive())[1]) for _ in range(2)] == [[ErrorCode.unknown_topic_or_partition]] * 2
        assert not any(values(proxy, base, index) for index in range(3))
        proxy.controller.error, gate._create = None, create
        client.send_produce("orders", {0: batch(b"then")})
        assert codes((await client.receive())[1]) == [0]
        made = proxy.metadata.image.topic("dev:orders")
        assert made is not None
        assert values(proxy, made) == [b"then"]
        assert not values(proxy, base)

    in_lane(test)


def test_an_unreadable_request_behind_a_first_write_ends_the_connection_once_what_came_before_is_answered() -> None:
    async def test(proxy: Running, client: Client, gate: Gate, base: Topic) -> None:
        first = client.send_produce("orders", {0: batch(b"first")})
        client.send(0, 9, raw=b"\xff" * 40)
        await until_async(lambda: bool(gate.asked), "the topic to be asked for")
        gate.open.set()
        number, message = await client.receive()
        assert (number, codes(message)) == (first, [0])
        assert await client.closed()
        again = await proxy.connect()
        again.client_id = "lane=dev,app"
        again.send_produce("orders", {0: batch(b"again")})
        assert codes((await again.receive())[1]) == [0]
        made = proxy.metadata.image.topic("dev:orders")
        assert made is not None
        assert values(proxy, made) == [b"first", b"again"]
        assert not values(proxy, base)

    in_lane(test)


def test_what_waits_behind_a_request_of_more_partitions_than_one_turn_begins_is_not_sent_before_it() -> None:
    async def test(proxy: Running, client: Client, gate: Gate, base: Topic) -> None:
        gate.open.set()
        client.send_produce("orders", {index: batch(b"made") for index in (2, 1, 0)})
        assert codes((await client.receive())[1]) == [0, 0, 0]
        made = proxy.metadata.image.topic("dev:orders")
        assert made is not None
        wide = {index: batch(b"wide") for index in (1, 2, 0)}
        sent = [client.send_produce("orders", wide), client.send_produce("orders", {0: batch(b"narrow")})]
        answers = [await client.receive() for _ in sent]
        assert [(number, codes(message)) for number, message in answers] == [(sent[0], [0, 0, 0]), (sent[1], [0])]
        assert values(proxy, made) == [b"made", b"wide", b"narrow"]
        assert not values(proxy, base)

    in_lane(test, ProxySettings(limits=Limits(produce_turn_partitions=2)))


def test_a_client_that_leaves_while_its_topic_is_made_holds_nothing_up_and_its_batches_are_in_order() -> None:
    async def test(proxy: Running, client: Client, gate: Gate, base: Topic) -> None:
        for number in range(3):
            client.send_produce("orders", {0: batch(b"%d" % number)})
        await until_async(lambda: bool(gate.asked), "the topic to be asked for")
        client.close()
        await asyncio.sleep(0.05)
        gate.open.set()
        again = await proxy.connect()
        again.client_id = "lane=dev,app"
        again.send_produce("orders", {0: batch(b"again")})
        assert codes((await again.receive())[1]) == [0]
        made = proxy.metadata.image.topic("dev:orders")
        assert made is not None
        found = values(proxy, made)
        assert [value for value in found if value != b"again"] == [b"%d" % number for number in range(len(found) - 1)]
        assert not values(proxy, base)

    in_lane(test)


@pytest.mark.parametrize("waits_for", ["the controller", "the image"])
@pytest.mark.parametrize("grace_s", [0.0, 0.05])
def test_a_stop_while_a_topic_is_made_leaves_nothing_under_way_and_nothing_is_written_afterwards(
    waits_for: str, grace_s: float
) -> None:
    async def test(proxy: Running, client: Client, gate: Gate, base: Topic) -> None:
        before = asyncio.all_tasks()
        if waits_for == "the image":
            gate.open.set()
            proxy.metadata.add_topic = lambda *_: base  # type: ignore[method-assign]
        for _ in range(3):
            client.send_produce("orders", {0: batch(b"x")})
        commits = await proxy.connect()
        commits.client_id = "lane=dev,commits"
        one = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
        commits.send(
            8,
            5,
            {
                "group_id": "g",
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": [{"name": "orders", "partitions": [one]}],
            },
        )
        await until_async(
            lambda: len(gate.asked) == 1 and proxy.role.server.endpoint.in_flight == 4,
            "four requests, of which one asks",
        )
        for _ in range(10):
            await asyncio.sleep(0)
        assert any(task.get_name() == "make orders in lane dev" for task in asyncio.all_tasks())
        await proxy.role.stop(grace_s=grace_s)
        assert {task.get_name() for task in asyncio.all_tasks() - before} <= {"OffsetCommit"}, (
            "which is carried through, as everywhere"
        )
        gate.open.set()
        proxy.metadata.add_topic("dev:orders", 3)
        for _ in range(100):
            await asyncio.sleep(0)
        assert proxy.owner.appended == []
        assert await client.closed()

    in_lane(test)


def sent_to(client: Client, *names: str) -> None:
    data = [{"name": name, "partition_data": [{"index": 0, "records": batch(b"x")}]} for name in names]
    client.send(0, 9, {"transactional_id": None, "acks": -1, "timeout_ms": 1_000, "topic_data": data})


def have_more(proxy: Running, base: Topic) -> None:
    """The base gets two more topics that are as wide."""
    image = proxy.metadata.image
    made = [
        replace(base, topic_id=TopicId(overlay_id("base", 0, name, 0, base_id=None)), name=name)
        for name in ("more", "most")
    ]
    proxy.metadata.change(
        topics={**image.topics, **{topic.topic_id: topic for topic in made}},
        topic_ids={**image.topic_ids, **{topic.name: topic.topic_id for topic in made}},
    )


def test_what_first_writes_make_counts_for_their_address_as_what_is_created() -> None:
    """A few bytes would make as many partitions as the base has, in every lane."""

    async def test(proxy: Running, client: Client, gate: Gate, base: Topic) -> None:
        have_more(proxy, base)
        proxy.owner.on_group_call = lambda *_: {"throttle_time_ms": 0, "topics": []}
        gate.open.set()
        sent_to(client, "orders")
        assert codes((await client.receive())[1]) == [0]
        sent_to(client, "more")
        assert codes((await client.receive())[1]) == [ErrorCode.unknown_topic_or_partition]
        one = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
        client.send(
            8,
            5,
            {
                "group_id": "g",
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": [{"name": "most", "partitions": [one]}],
            },
        )
        await client.receive()
        assert [name for name in gate.asked if name.startswith("dev:")] == ["dev:orders"]
        sent_to(client, "orders")
        assert codes((await client.receive())[1]) == [0], "what is there is written to as ever"

    in_lane(test, ProxySettings(limits=Limits(create_partitions_burst=3, create_partitions_per_minute=1)))


def test_one_first_write_makes_no_more_than_one_creation_may_and_the_next_one_makes_the_others() -> None:
    async def test(proxy: Running, client: Client, gate: Gate, base: Topic) -> None:
        have_more(proxy, base)
        gate.open.set()
        unknown = ErrorCode.unknown_topic_or_partition
        sent_to(client, "orders", "more", "most")
        assert codes((await client.receive())[1]) == [0, 0, unknown]
        assert gate.asked == ["dev:orders", "dev:more"]
        sent_to(client, "orders", "more", "most")
        assert codes((await client.receive())[1]) == [0, 0, 0]

    in_lane(test, ProxySettings(limits=Limits(create_partitions_max=7)))


def test_first_writes_of_many_partitions_give_back_what_they_took_of_what_is_under_way() -> None:
    async def test(proxy: Running, client: Client, gate: Gate, base: Topic) -> None:
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        many = {index: batch(b"%d" % index) for index in range(40)}
        sent = [client.send_produce("orders", many) for _ in range(4)]
        await until_async(lambda: bool(gate.asked), "the topic to be asked for")
        gate.open.set()
        for number in sent:
            assert (await client.receive())[0] == number, "those that there is no room for begin when there is"
        client.send_produce("orders", many)
        assert codes((await client.receive())[1])[:3] == [0, 0, 0]
        assert not failures

    in_lane(test, ProxySettings(limits=Limits(produce_requests_max=22)))
