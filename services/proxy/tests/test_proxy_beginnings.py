"""A Produce request of many partitions is begun in turns of the loop, and what its connection sends behind it keeps its
order.
"""

import asyncio
from random import Random

import pytest
from one_connection import codes, run
from proxy_in_memory import Client, Running, batch, running_proxy
from tests.waiting import until_async

from bmq.config.limits import Limits
from bmq.errors import NotReady
from bmq.wire.batches import iterate_records, read_header
from bmq_proxy.beginnings import Beginnings, Place
from bmq_proxy.settings import ProxySettings

PARTITIONS = 12


def settings(turn_partitions: int) -> ProxySettings:
    return ProxySettings(limits=Limits(produce_turn_partitions=turn_partitions))


def values(proxy: Running, topic: str, partition: int) -> list[bytes]:
    """What a partition has, in its order."""
    found = proxy.metadata.image.topic(topic)
    assert found is not None
    logs = {tp.partition: log for tp, log in proxy.owner.logs.items() if tp.topic_id == found.topic_id}
    batches = [data for _, _, data in logs[partition].batches] if partition in logs else []
    return [record.value or b"" for data in batches for record in iterate_records(data, read_header(data))]


@pytest.mark.parametrize("seed", range(8))
def test_what_each_connection_writes_to_a_partition_keeps_its_order_however_it_is_begun(seed: int) -> None:
    async def main() -> None:
        rng = Random(seed)
        async with running_proxy(settings(rng.choice((1, 2, 5)))) as proxy:
            proxy.metadata.add_topic("wide", PARTITIONS)
            clients = [await proxy.connect() for _ in range(3)]
            sent = {number: [0] * PARTITIONS for number in range(len(clients))}
            asked = [0] * len(clients)
            for request in range(40):
                number = rng.randrange(len(clients))
                partitions = rng.sample(range(PARTITIONS), rng.choice((1, 1, 2, PARTITIONS)))
                batches = {index: batch(f"{number}.{sent[number][index]}".encode()) for index in partitions}
                for index in partitions:
                    sent[number][index] += 1
                clients[number].send_produce("wide", batches)
                asked[number] += 1
                if request % 7 == 3:
                    proxy.owner.refuse += [NotReady("opening")] * rng.choice((1, 3))
                if rng.random() < 0.3:
                    await asyncio.sleep(0)
            for number, client in enumerate(clients):
                for _ in range(asked[number]):
                    assert not any(codes((await asyncio.wait_for(client.receive(), 10))[1]))
            for index in range(PARTITIONS):
                found = [value.decode().split(".") for value in values(proxy, "wide", index)]
                for number in sent:
                    assert [int(at) for who, at in found if int(who) == number] == list(range(sent[number][index]))

    asyncio.run(main())


def test_a_client_that_goes_at_once_has_written_all_that_it_sent_without_asking_for_an_answer() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.metadata.add_topic("wide", PARTITIONS)
        for number in range(3):
            client.send_produce("wide", {index: batch(b"%d" % number) for index in range(PARTITIONS)}, acks=0)
        await client.writer.drain()
        client.close()
        await until_async(lambda: len(proxy.owner.appended) == 3 * PARTITIONS, "all appends of three requests")
        assert all(values(proxy, "wide", index) == [b"0", b"1", b"2"] for index in range(PARTITIONS))
        endpoint = proxy.role.server.endpoint
        await until_async(
            lambda: not endpoint.connections and not endpoint.in_flight, "all connections and requests to end"
        )
        assert endpoint.request_memory.held_bytes == 0

    run(test, settings(1))


def test_others_are_served_between_two_turns_of_a_wide_request() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.metadata.add_topic("wide", 1_000)
        other = await proxy.connect()
        client.send_produce("wide", {index: batch(b"x") for index in range(1_000)})
        await until_async(lambda: len(proxy.owner.appended) > 0, "the first append")
        await asyncio.wait_for(other.ask(0, 9, _one("orders")), 10)
        assert len(proxy.owner.appended) < 1_000, "it was answered while the wide one was being begun"
        await client.receive()

    run(test, settings(1))


def test_one_that_cannot_be_read_ends_the_connection_once_what_came_before_it_is_answered() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.metadata.add_topic("wide", PARTITIONS)
        client.send_produce("wide", {index: batch(b"x") for index in range(PARTITIONS)})
        client.send(0, 9, raw=b"\x00\xff\xff\x00\x00\x10\x00\xff\xff\xff\xff\x0f" + bytes(20))
        assert codes((await client.receive())[1]) == [0] * PARTITIONS
        assert await client.closed()

    run(test, settings(1))


def test_who_gives_up_its_place_lets_nobody_pass_what_was_before_it() -> None:
    async def main() -> None:
        beginnings, reached = Beginnings(), []
        first, second, third = (beginnings.enter("c") for _ in range(3))

        async def reach(name: str, place: Place) -> None:
            try:
                await place.reached()
                reached.append(name)
            finally:
                place.over()

        waiting = [asyncio.create_task(reach("second", second)), asyncio.create_task(reach("third", third))]
        await asyncio.sleep(0)
        waiting[0].cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert reached == []
        first.over()
        await asyncio.wait(waiting)
        assert reached == ["third"]
        assert not beginnings.is_open("c")

    asyncio.run(main())


def _one(topic: str) -> dict[str, object]:
    data = [{"name": topic, "partition_data": [{"index": 0, "records": batch(b"x")}]}]
    return {"transactional_id": None, "acks": -1, "timeout_ms": 5_000, "topic_data": data}
