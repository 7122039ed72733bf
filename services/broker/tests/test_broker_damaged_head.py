"""The header of the newest WAL object of a killed broker is damaged: the node that does not start says which object,
and what helps.
"""

import asyncio

import pytest
from broker_under_test import Cluster
from test_broker_manifest_gone import repaired

from bmq.errors import Corrupt
from bmq.storage.wal import WAL_HEADER_SIZE_BYTES
from bmq_sim.loop import on_virtual_time


@on_virtual_time
async def test_a_node_that_does_not_start_for_a_damaged_header_names_the_object_and_starts_after_a_repair() -> None:
    cluster = Cluster()
    await cluster.start()
    one, two = await cluster.topic("orders", partitions=2)
    await cluster.append(two, b"x")
    await cluster.roll(two)
    await cluster.append(one, b"y")
    await cluster.kill()
    store = cluster.store.for_node("somebody")
    key = max([meta.key async for meta in store.list("wal/") if meta.size_bytes > WAL_HEADER_SIZE_BYTES])
    data = bytearray(await store.get(key))
    data[WAL_HEADER_SIZE_BYTES - 26] ^= 1
    await store.delete(key)
    await store.create(key, [bytes(data)])
    with pytest.raises(Corrupt, match=f"{key}: WAL object header: checksum.*bmq store check --repair"):
        await asyncio.wait_for(cluster.start("again"), 300)
    await cluster.kill()
    assert (await repaired(cluster)).failed == []
    await cluster.start("third")
    assert await cluster.read_all(two) == [(0, b"x")]
    await cluster.append(one, b"z")
    await cluster.stop()
