"""What comes in the same few turns of the loop shares a WAL object, and nobody waits for company that does not come."""

import asyncio

import pytest
from broker_under_test import Cluster

from bmq_broker.wal.commit import GATHERING_TURNS
from bmq_sim.loop import on_virtual_time


async def objects_of(parts: list[int]) -> int:
    """As many WAL objects as there are when so many batches come in each of the next turns."""
    cluster = Cluster()
    await cluster.start()
    [tp] = await cluster.topic("orders")
    await cluster.append(tp, b"first")
    await asyncio.sleep(1)  # nobody was answered a moment ago
    before = cluster.broker._commit.sent_objects
    sent = []
    for count in parts:
        sent += [cluster.append(tp, b"a") for _ in range(count)]
        await asyncio.sleep(0)
    answers = await asyncio.gather(*sent)
    assert [one.base_offset for one in answers] == list(range(1, 1 + len(sent)))
    objects = cluster.broker._commit.sent_objects - before
    await cluster.stop()
    return objects


@pytest.mark.parametrize("parts", [[1], [50], [50, 14], [50, 50, 28]])
def test_a_burst_that_proxies_begin_in_several_turns_of_the_loop_is_one_object(parts: list[int]) -> None:
    @on_virtual_time
    async def main() -> None:
        assert await objects_of(parts) == 1

    main()


@on_virtual_time
async def test_who_comes_later_does_not_keep_what_is_due() -> None:
    assert await objects_of([1, 0, 0, 1]) == 2
    assert await objects_of([1] * (GATHERING_TURNS + 20)) > 1
