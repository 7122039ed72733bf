"""How much a lane's clients may write and read in a second: what is over waits, in its order, and nobody else does."""

import asyncio
from typing import Any

from proxy_in_memory import Client, Running, batch
from test_proxy_lane_produce import Gate, codes, in_lane, values
from test_proxy_lane_reads import fetched

from bmq.metadata.image import Lane, Topic
from bmq.metadata.records import LaneQuota
from bmq_proxy import metrics
from bmq_proxy.lanes.quotas import Pace
from bmq_sim.loop import on_virtual_time

RATE = 4_096
LARGE = bytes(RATE + RATE // 2)
"""What takes one and a half seconds of the rate."""


def bound(proxy: Running, **quota: int) -> None:
    """The lane has this quota from now on."""
    proxy.metadata.change(lanes={"dev": Lane(name="dev", number=1, created_ms=0, quota=LaneQuota(**quota))})


def now_s() -> float:
    return asyncio.get_running_loop().time()


def waited() -> dict[str, float]:
    """For how long requests of each lane did, as the metric tells."""
    [metric] = metrics.LANE_THROTTLED.collect()
    return {one.labels["lane"]: one.value for one in metric.samples if one.name.endswith("_total")}


async def written(client: Client, value: bytes, **options: Any) -> tuple[list[int], int]:
    """(codes, for how long the client is told to send nothing)."""
    client.send_produce("orders", {0: batch(value)}, **options)
    _, message = await client.receive()
    return codes(message), message.throttle_time_ms


def test_what_is_written_beyond_the_rate_is_written_and_its_client_is_told_and_not_heard_for_a_while() -> None:
    async def test(proxy: Running, client: Client, gate: Gate, base: Topic) -> None:
        gate.open.set()
        bound(proxy, write_bytes_per_s=RATE)
        other = await proxy.connect()
        began_s = now_s()
        code, throttle_ms = await written(client, LARGE)
        assert (code, now_s() - began_s < 0.4) == ([0], True)
        assert 300 < throttle_ms <= 600
        sent = [client.send_produce("orders", {0: batch(b"%d" % number)}) for number in range(3)]
        assert await written(other, b"the base's") == ([0], 0)
        assert now_s() - began_s < 0.4, "nobody else waits"
        answers = [await client.receive() for _ in sent]
        assert now_s() - began_s > 0.45
        assert [number for number, _ in answers] == sent
        made = proxy.metadata.image.topic("dev:orders")
        assert made is not None
        assert values(proxy, made)[1:] == [b"0", b"1", b"2"]

    in_lane(test)


def test_what_was_read_already_is_written_in_its_order_and_nothing_of_it_is_held_meanwhile() -> None:
    """Requests of an idempotent producer that were held, and given up one by one, let later ones pass them."""

    async def test(proxy: Running, client: Client, gate: Gate, base: Topic) -> None:
        gate.open.set()
        assert (await written(client, b"first"))[0] == [0]
        bound(proxy, write_bytes_per_s=1_024)
        began_s = now_s()
        sent = [client.send_produce("orders", {0: batch(b"%d" % number + bytes(4_000))}) for number in range(4)]
        answers = [await client.receive() for _ in sent]
        assert now_s() - began_s < 2, "they came together"
        assert [number for number, _ in answers] == sent
        assert [codes(message) for _, message in answers] == [[0]] * 4
        assert answers[-1][1].throttle_time_ms > 10_000
        client.send_produce("orders", {0: batch(b"later")})
        late = asyncio.ensure_future(client.receive())
        await asyncio.sleep(0.3)
        assert not late.done(), "it is not heard"
        second = await proxy.connect()
        second.client_id = "lane=dev,second"
        assert (await written(second, b"of another connection"))[0] == [0]
        late.cancel()
        made = proxy.metadata.image.topic("dev:orders")
        assert made is not None
        found = values(proxy, made)
        assert [value.strip(b"\0") for value in found] == [b"first", b"0", b"1", b"2", b"3", b"of another connection"]

    in_lane(test)


def test_a_client_that_asks_for_no_answer_is_not_heard_either_and_may_leave_meanwhile() -> None:
    async def test(proxy: Running, client: Client, gate: Gate, base: Topic) -> None:
        gate.open.set()
        assert (await written(client, b"first"))[0] == [0]
        bound(proxy, write_bytes_per_s=RATE)
        began_s = now_s()
        client.send_produce("orders", {0: batch(LARGE)}, acks=0)
        await asyncio.sleep(0.2)
        assert (await written(client, b"behind"))[0] == [0]
        assert now_s() - began_s > 0.45
        assert (await written(client, bytes(40 * RATE)))[1] > 15_000
        client.close()
        assert await written(await proxy.connect(), b"the base's") == ([0], 0)

    in_lane(test)


@on_virtual_time
async def test_no_more_is_owed_than_a_client_may_be_made_to_wait() -> None:
    pace = Pace("dev", "write", lambda: 1_000, owed_s_max=20)
    pace.take(10_000_000)
    assert pace.throttle_ms() == 20_000
    await asyncio.sleep(15)
    pace.take(1_000)
    assert 5_900 <= pace.throttle_ms() <= 6_100


def test_what_is_read_beyond_the_rate_waits_and_says_where_its_partition_ends_meanwhile() -> None:
    async def test(proxy: Running, client: Client, gate: Gate, base: Topic) -> None:
        gate.open.set()
        for number in range(3):
            assert (await written(client, b"%d" % number + LARGE))[0] == [0]
        bound(proxy, read_bytes_per_s=RATE)
        began_s = now_s()
        assert await fetched(client, 0) == (0, [0], 3), "a first batch comes whole"
        assert await fetched(client, 1, max_wait_ms=100) == (0, [], 3)
        assert now_s() - began_s < 0.45
        assert await fetched(client, 1, max_wait_ms=5_000) == (0, [1], 3)
        assert now_s() - began_s > 0.45
        assert waited().get("dev", 0) > 0.3
        proxy.metadata.change(lanes={"next": Lane(name="next", number=2, created_ms=0)})
        client.client_id = "lane=next,app"
        await fetched(client, 0)
        assert "dev" not in waited(), "of a lane that is gone nothing is told"

    in_lane(test)


@on_virtual_time
async def test_in_the_long_run_a_lane_gets_its_rate_however_many_ask_one_after_the_other() -> None:
    pace, came = Pace("dev", "read", lambda: 1_000, owed_s_max=20), [0] * 20

    async def writer(number: int) -> None:
        while True:
            granted = await pace.grant(700, now_s() + 1_000)
            assert granted
            pace.settle(granted, 700)
            came[number] += 700

    writers = [asyncio.ensure_future(writer(number)) for number in range(len(came))]
    await asyncio.sleep(200)
    for one in writers:
        one.cancel()
    await asyncio.gather(*writers, return_exceptions=True)
    assert 200_000 <= sum(came) <= 202_500
    assert max(came) - min(came) <= 3 * 700, "the first ones found room, and each later one its turn"


@on_virtual_time
async def test_who_waits_notices_a_rate_that_is_raised_and_who_leaves_holds_up_nobody() -> None:
    rate = 1_000
    pace = Pace("dev", "read", lambda: rate, owed_s_max=1_000)
    assert await pace.grant(10, now_s()) == 10
    pace.settle(10, 1_000_000)
    assert not pace.debt_s() < 900
    leaving = asyncio.ensure_future(pace.grant(10, now_s() + 2_000))
    await asyncio.sleep(1)
    behind = asyncio.ensure_future(pace.grant(10, now_s() + 2_000))
    assert not await pace.grant(10, now_s() + 5), "no turn within its time"
    leaving.cancel()
    await asyncio.sleep(1)
    assert not behind.done()
    rate = 0
    await asyncio.sleep(1.1)
    assert behind.done()
    assert behind.result()


def test_who_waited_for_records_waits_for_its_turn_where_others_were_given_what_may_be_read() -> None:
    """However many wait, one batch at most is owed, and the next one waits for no more than that."""

    async def test(proxy: Running, client: Client, gate: Gate, base: Topic) -> None:
        gate.open.set()
        assert (await written(client, b"first"))[0] == [0]
        bound(proxy, read_bytes_per_s=RATE)
        others = [await proxy.connect() for _ in range(20)]
        waiting = []
        for number, other in enumerate(others):
            other.client_id = f"lane=dev,{number}"
            waiting.append(asyncio.ensure_future(fetched(other, 1, max_wait_ms=30_000)))
        await asyncio.sleep(0.3)
        began_s = now_s()
        assert (await written(client, LARGE))[0] == [0]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0.2)
        assert sum(one.done() for one in waiting) <= 2, "what one was given is owed before the next one is"
        for one in waiting:
            one.cancel()
        for other in others:
            other.close()
        assert await fetched(client, 1, max_wait_ms=10_000) == (0, [1], 2)
        assert now_s() - began_s < 5

    in_lane(test)


@on_virtual_time
async def test_a_batch_that_is_larger_than_its_rate_holds_others_up_for_a_bounded_time() -> None:
    pace = Pace("dev", "read", lambda: 1_000, owed_s_max=20)
    granted = await pace.grant(1 << 20, now_s())
    pace.settle(granted, 64 << 20)
    assert pace.debt_s() <= 20
    assert await pace.grant(1 << 20, now_s() + 21)
