"""Answers that say much of many topics though little was asked: in pages, in turns, and so much at a time."""

import asyncio
import gc
from collections import Counter
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from proxy_in_memory import Client, Running, running_proxy
from tests.waiting import until_async

from bmq.config.limits import limits_of
from bmq.metadata.image import Lane, PartitionMeta, Topic
from bmq.metadata.shared_map import SharedMap
from bmq.naming.lanes import matches
from bmq.values import TopicId
from bmq.wire.apis import ApiKey
from bmq_proxy import ordered_names
from bmq_proxy.bulk import TURN_ELEMENTS
from bmq_proxy.handlers import k19_create_topics
from bmq_proxy.handlers import k75_describe_topic_partitions as k75
from bmq_proxy.lanes import by_lane, views
from bmq_proxy.ordered_names import LOOKED_AT_PER_TURN
from bmq_proxy.settings import ProxySettings

TOPICS = 300


async def pages(client: Client, topics: list[str], limit: int) -> list[tuple[str, int]]:
    """Names and partitions that all pages tell, in order."""
    told: list[tuple[str, int]] = []
    cursor: Any = None
    while True:
        asked = {"topics": [{"name": name} for name in topics], "response_partition_limit": limit, "cursor": cursor}
        answer = await client.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, asked)
        page = [(topic.name, one.partition_index) for topic in answer.topics for one in topic.partitions]
        assert len(page) <= limit
        told += page
        if answer.next_cursor is None:
            return told
        cursor = answer.next_cursor


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100, 2_000])
@pytest.mark.parametrize("names", [[], ["b", "a", "none", "c", "a"]], ids=["all", "named"])
def test_pages_tell_each_partition_once_and_in_order(limit: int, names: list[str]) -> None:
    async def main() -> None:
        async with running_proxy() as proxy:
            counts = {"c": 1, "a": 3, "d": 5, "b": 2}
            for name, count in counts.items():
                proxy.metadata.add_topic(name, count)
            client = await proxy.connect()
            wanted = [
                (name, index) for name in sorted(counts) if not names or name in names for index in range(counts[name])
            ]
            assert await pages(client, names, limit) == wanted

    asyncio.run(main())


async def lane_over(proxy: Running, *, reads: tuple[str, ...] = (), count: int = 3_000) -> Client:
    """A client of the lane `dev`, which has `own` and `t00007` of its own and lies over so many topics of the base."""
    names = {f"t{number:05}": 1 for number in range(count)} | {"__consumer_offsets": 2, "dev:own": 2, "dev:t00007": 3}
    topics = [
        Topic(topic_id=TopicId(UUID(int=number)), name=name, partitions=(PartitionMeta(),) * partitions)
        for number, (name, partitions) in enumerate(names.items(), 1)
    ]
    lane = Lane(name="dev", number=1, created_ms=0, reads_base=reads, reads_base_bytes_per_s=4_096)
    proxy.metadata.change(
        lanes=SharedMap({"dev": lane}),
        topics=SharedMap({topic.topic_id: topic for topic in topics}),
        topic_ids=SharedMap({topic.name: topic.topic_id for topic in topics}),
    )
    client = await proxy.connect()
    client.client_id = "lane=dev"
    return client


@pytest.mark.parametrize("limit", [1, 2, 7, 100, 2_000])
@pytest.mark.parametrize("reads", [(), ("*",), ("t0000*", "t00017"), ("none*",)])
@pytest.mark.parametrize("kept", [0, 500_000])
def test_pages_in_a_lane_tell_its_own_and_what_it_reads_once_and_in_order(
    limit: int, reads: tuple[str, ...], kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_lane, "NAMES_KEPT_MAX", kept)
    monkeypatch.setattr(ordered_names, "LOOKED_AT_PER_TURN", 3)

    async def main() -> None:
        async with running_proxy() as proxy:
            client = await lane_over(proxy, reads=reads, count=30)
            read = [f"t{number:05}" for number in range(30) if matches(f"t{number:05}", reads)]
            counts = dict.fromkeys(read, 1) | {"own": 2, "t00007": 3}
            wanted = [(name, index) for name in sorted(counts) for index in range(counts[name])]
            assert await pages(client, [], limit) == wanted

    asyncio.run(main())


@pytest.mark.parametrize("reads", [("*",), ("t00*",), ("t01*", "t007*")])
def test_a_page_in_a_lane_costs_what_it_shows_and_no_look_at_all_topics(
    reads: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, is_internal = 0, views.is_internal

    def counted(name: str) -> bool:
        nonlocal looked
        looked += 1
        return is_internal(name)

    async def main() -> None:
        nonlocal looked
        async with running_proxy() as proxy:
            client = await lane_over(proxy, reads=reads)
            assert len(await pages(client, [], 2_000)) > 100
            monkeypatch.setattr(views, "is_internal", counted)
            for after in ("", "t00701"):
                looked = 0
                cursor = {"topic_name": after, "partition_index": 0} if after else None
                asked = {"topics": [], "response_partition_limit": 1, "cursor": cursor}
                answer = await client.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, asked)
                assert len(answer.topics) == 1 and answer.next_cursor is not None
                assert looked < 20

    asyncio.run(main())


def test_names_that_a_lane_does_not_read_are_passed_over_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no room to remember which it reads."""
    turn, looked, covers = 0, Counter[int](), views.matches

    def counted(name: str, globs: tuple[str, ...]) -> bool:
        looked[turn] += 1
        return covers(name, globs)

    monkeypatch.setattr(by_lane, "NAMES_KEPT_MAX", 0)
    monkeypatch.setattr(views, "matches", counted)
    monkeypatch.setattr(by_lane, "matches", counted)

    async def main() -> None:
        nonlocal turn
        async with running_proxy() as proxy:
            client = await lane_over(proxy, reads=("none*",))
            asking = asyncio.ensure_future(pages(client, [], 2_000))
            while not asking.done():
                turn += 1
                await asyncio.sleep(0)
            assert await asking == [("own", 0), ("own", 1), ("t00007", 0), ("t00007", 1), ("t00007", 2)]
            assert sum(looked.values()) >= 2_999
            assert max(looked.values()) <= LOOKED_AT_PER_TURN + 10

    asyncio.run(main())


@pytest.mark.parametrize(
    ("api", "version", "body"),
    [(ApiKey.METADATA, 9, {"topics": None}), (ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})],
)
def test_what_a_lane_sees_of_the_base_is_listed_in_turns(
    api: int, version: int, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, looked, is_internal = 0, Counter[int](), views.is_internal

    def counted(name: str) -> bool:
        looked[turn] += 1
        return is_internal(name)

    async def main() -> None:
        nonlocal turn
        async with running_proxy() as proxy:
            client = await lane_over(proxy, reads=("*",))
            if api == ApiKey.METADATA:  # which counts what each image has once
                await client.ask(api, version, body)
                body["include_topic_authorized_operations"] = True
            monkeypatch.setattr(views, "is_internal", counted)
            asking = asyncio.ensure_future(client.ask(api, version, body))
            while not asking.done():
                turn += 1
                await asyncio.sleep(0)
            assert sum(looked.values()) >= 3_000
            assert max(looked.values()) <= 2 * TURN_ELEMENTS + 10  # found, and found again by its id

    asyncio.run(main())


def test_a_page_is_of_the_topics_that_there_are_once_there_is_room_for_it() -> None:
    async def main() -> None:
        async with running_proxy(ProxySettings(limits=limits_of({"wide_answer_elements": 10_000}))) as proxy:
            calls = list[Any]()
            begin = proxy.role.server.endpoint._begin
            proxy.role.server.endpoint._begin = lambda call, body: (calls.append(call), begin(call, body))[1]  # type: ignore[method-assign]
            client = await lane_over(proxy, reads=("*",), count=400)
            assert len(await pages(client, [], 2_000)) == 404
            admitted = await proxy.role.proxy.bulk._building.enter(calls[-1], 10_000)
            asking = asyncio.ensure_future(pages(client, [], 2_000))
            assert await waits(asking)
            await lane_over(proxy, reads=("*",), count=300)
            admitted.keep(0)
            assert len(await asking) == 304

    asyncio.run(main())


def test_names_of_all_topics_are_looked_through_by_one_request_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turn, looked = 0, list[int]()
    names = k75.listed_page

    def noted(*arguments: Any, **options: Any) -> Any:
        looked.append(turn)
        return names(*arguments, **options)

    monkeypatch.setattr(k75, "listed_page", noted)

    async def main() -> None:
        nonlocal turn
        async with running_proxy() as proxy:
            for number in range(TOPICS):
                proxy.metadata.add_topic(f"topic-{number:03}", 1)
            clients = [await proxy.connect() for _ in range(30)]
            for client in clients:
                client.send(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [], "response_partition_limit": 2_000})
            while len(looked) < len(clients):
                turn += 1
                await asyncio.sleep(0)
            assert max(looked.count(one) for one in looked) == 1
            for client in clients:
                assert len((await client.receive())[1].topics) == TOPICS

    asyncio.run(main())


async def waits(asking: "asyncio.Future[Any]") -> bool:
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(asking), 0.3)
    return not asking.done()


def test_what_is_said_of_many_created_topics_waits_for_room_and_what_is_said_of_few_does_not() -> None:
    async def create(proxy: Running, prefix: str, count: int) -> list[int]:
        client = await proxy.connect()
        topics = [
            {"name": f"{prefix}-{number}", "num_partitions": 1, "replication_factor": 1} for number in range(count)
        ]
        answer = await client.ask(
            ApiKey.CREATE_TOPICS, 7, {"topics": topics, "validate_only": True, "timeout_ms": 5_000}
        )
        assert all(len(topic.configs) > 20 for topic in answer.topics)
        return [topic.error_code for topic in answer.topics]

    async def main() -> None:
        async with running_proxy(ProxySettings(limits=limits_of({"answer_memory_bytes": 4 << 20}))) as proxy:
            calls = list[Any]()
            begin = proxy.role.server.endpoint._begin
            proxy.role.server.endpoint._begin = lambda call, body: (calls.append(call), begin(call, body))[1]  # type: ignore[method-assign]
            assert await create(proxy, "few", 3) == [0] * 3
            call = calls[-1]
            admitted = await proxy.role.proxy.bulk._collecting.enter(call, 4 << 20)
            many = asyncio.ensure_future(create(proxy, "many", 100))
            assert await waits(many)
            assert await create(proxy, "some", 20) == [0] * 20
            admitted.keep(0)
            assert await many == [0] * 100

    asyncio.run(main())


def test_no_answer_about_configurations_is_longer_than_half_of_the_memory_for_answers() -> None:
    memory_bytes = 256 << 10

    async def main() -> None:
        async with running_proxy(ProxySettings(limits=limits_of({"answer_memory_bytes": memory_bytes}))) as proxy:
            names = [proxy.metadata.add_topic(f"topic-{number:03}", 1).name for number in range(100)]
            asked = [{"resource_type": 2, "resource_name": name, "configuration_keys": None} for name in names]
            client = await proxy.connect()
            body = {"resources": asked, "include_synonyms": True, "include_documentation": True}
            client.send(ApiKey.DESCRIBE_CONFIGS, 4, body)
            frame = await client.receive_frame()
            assert memory_bytes // 4 < len(frame) < memory_bytes // 2 + 100 * 200
            told = (await client.ask(ApiKey.DESCRIBE_CONFIGS, 4, body)).results
            codes = [one.error_code for one in told]
            whole = codes.count(0)
            assert 5 < whole < 100 and codes == [0] * whole + [44] * (100 - whole)
            assert "describe fewer at a time" in told[-1].error_message

    asyncio.run(main())


def test_a_request_that_waits_to_be_begun_is_given_up_with_its_client() -> None:
    async def main() -> None:
        async with running_proxy(ProxySettings(limits=limits_of({"wide_request_elements": 1_000}))) as proxy:
            calls, endpoint, bulk = list[Any](), proxy.role.server.endpoint, proxy.role.proxy.bulk
            begin = endpoint._begin
            endpoint._begin = lambda call, body: (calls.append(call), begin(call, body))[1]  # type: ignore[method-assign]
            topics = [{"name": f"t{number}", "num_partitions": 1, "replication_factor": 1} for number in range(100)]
            client = await proxy.connect()
            await client.ask(ApiKey.CREATE_TOPICS, 7, {"topics": topics[:1], "timeout_ms": 5_000})
            taken = bulk._narrow.left, await bulk._elements.enter(calls[-1], 1_000)
            bulk._narrow.take(taken[0], address="/somebody else")
            client.send(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout_ms": 5_000})
            await until_async(lambda: bool(bulk._elements._waiting), "the request to wait")
            client.close()
            await until_async(lambda: not endpoint.in_flight, "it to be given up")
            assert not bulk._elements._waiting
            assert {topic.name for topic in proxy.metadata.image.topics.values()} == {"t0"}
            bulk._narrow.give_back(taken[0], address="/somebody else")
            taken[1].keep(0)

    asyncio.run(main())


@pytest.mark.parametrize("validate_only", [True, False])
def test_a_client_that_has_gone_ends_what_changes_nothing_and_is_told_nothing_of_what_does(
    validate_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with running_proxy() as proxy:
            reached, go_on, over = asyncio.Event(), asyncio.Event(), list[str]()
            create, described = proxy.controller.create_topics, k19_create_topics._described

            async def held(*arguments: Any, **options: Any) -> Any:
                reached.set()
                try:
                    await go_on.wait()
                except asyncio.CancelledError:
                    over.append("given up")
                    raise
                over.append("created")
                return await create(*arguments, **options)

            def told(*arguments: Any) -> Any:
                over.append("told")
                return described(*arguments)

            monkeypatch.setattr(proxy.controller, "create_topics", held)
            monkeypatch.setattr(k19_create_topics, "_described", told)
            client = await proxy.connect()
            topics = [{"name": f"t{number}", "num_partitions": 1, "replication_factor": 1} for number in range(100)]
            asked = {"topics": topics, "validate_only": validate_only, "timeout_ms": 5_000}
            client.send(ApiKey.CREATE_TOPICS, 7, asked)
            await reached.wait()
            client.close()
            await until_async(lambda: len(proxy.role.server.endpoint.connections) == 0, "the end of the connection")
            await asyncio.sleep(0)
            go_on.set()
            await until_async(lambda: not proxy.role.server.endpoint.in_flight, "the end of the request")
            assert over == (["given up"] if validate_only else ["created"])

    asyncio.run(main())


def test_that_topics_are_made_is_said_of_few_at_once_and_of_many_to_nobody_who_has_gone() -> None:
    async def main() -> None:
        async with running_proxy(ProxySettings(limits=limits_of({"answer_memory_bytes": 4 << 20}))) as proxy:
            bulk, endpoint = proxy.role.proxy.bulk, proxy.role.server.endpoint
            bulk.answers.hold("/127.0.0.1", 4 << 20)  # what another connection has yet to take
            client = await proxy.connect()
            topics = [{"name": f"t{number}", "num_partitions": 1, "replication_factor": 1} for number in range(101)]
            few = await client.ask(ApiKey.CREATE_TOPICS, 7, {"topics": topics[:1], "timeout_ms": 5_000})
            assert [topic.error_code for topic in few.topics] == [0]
            client.send(ApiKey.CREATE_TOPICS, 7, {"topics": topics[1:], "timeout_ms": 5_000})
            await until_async(lambda: len(proxy.metadata.image.topics) == 101, "the topics")
            await until_async(lambda: bulk.answers.is_waited_for, "what is said of them to wait")
            client.close()
            await until_async(lambda: not endpoint.in_flight, "it to be given up")
            assert bulk._narrow.left == bulk.limits.wide_request_elements
            bulk.answers.release("/127.0.0.1", 4 << 20)

    asyncio.run(main())


def test_who_waits_to_be_told_of_all_topics_has_no_list_of_them() -> None:
    """A request of a few bytes: an unknown tagged field makes each another one."""

    async def main() -> None:
        async with running_proxy(ProxySettings(limits=limits_of({"wide_answer_elements": 10_000}))) as proxy:
            for number in range(300):
                proxy.metadata.add_topic(f"topic-{number:03}", 5)
            calls = list[Any]()
            begin = proxy.role.server.endpoint._begin
            proxy.role.server.endpoint._begin = lambda call, body: (calls.append(call), begin(call, body))[1]  # type: ignore[method-assign]
            first = await proxy.connect()
            all_topics = {"topics": None, "allow_auto_topic_creation": False}
            assert len((await first.ask(3, 9, all_topics)).topics) == 300
            admitted = await proxy.role.proxy.bulk._building.enter(calls[-1], 10_000)
            clients = [await proxy.connect() for _ in range(20)]
            asking = [
                asyncio.ensure_future(
                    client.ask(3, 9, {**all_topics, "include_topic_authorized_operations": bool(number % 2)})
                )
                for number, client in enumerate(clients)
            ]
            assert all([await waits(one) for one in asking[1:4:2]])
            some = next(iter(proxy.metadata.image.topics.values()))
            lists = [one for one in gc.get_referrers(some) if isinstance(one, list) and len(one) == 300]
            assert not lists
            admitted.keep(0)
            assert [len((await one).topics) for one in asking] == [300] * 20

    asyncio.run(main())
