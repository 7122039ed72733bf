"""A node dies, and before it starts again the store loses or damages one WAL object (a fault that no rule of bmq allows
for, such as a bad disk).

The object is one that the newest one says was durable: the loss of a later one looks like a create that never arrived.
That of the oldest looks like its owner's deletion; where it had the log's end, and all above it were copies of older
records, nothing in the store tells (docs/formats/stream.md). Checked: either nothing was lost by it, or the partition
stops and says so, until the object is restored: then it goes on by itself. What must never be is a log with a hole that
looks whole.
"""

import asyncio
from random import Random

from bmq.storage.wal import WalHeader, decode_head
from bmq_sim.checkers import InvariantViolated, violations
from bmq_sim.client import SimClient
from bmq_sim.consumer import read_final
from bmq_sim.history import Place
from bmq_sim.node import Supervisor
from bmq_sim.process import SimProcess
from bmq_sim.producer import PlainProducer
from bmq_sim.store import StoreFaults
from bmq_sim.world import World

PLACE = Place("orders", 0)
ANSWERED_WITHIN_S = 60.0
RESTORED_WITHIN_S = 120.0
DAMAGED_SHARE = 0.4


async def scenario(world: World) -> None:
    """One run."""
    rng = world.rng("scenario")
    world.store.faults = StoreFaults(latency_s_min=0.001, latency_s_max=0.01)
    supervisor = Supervisor(world)
    supervisor.start()
    admin = SimClient("admin", supervisor.addresses, rng=world.rng("admin"))
    await admin.create_topic(PLACE.topic, partitions=1)
    client = SimClient("plain", supervisor.addresses, rng=world.rng("plain"))
    producer = PlainProducer(client, world.history, PLACE, batches=rng.randint(10, 30), pace_s=0.05)
    await SimProcess("plain", host="plain").start(producer.run())
    supervisor.kill()
    candidates = _candidates(world)
    if not candidates:
        return
    lost = rng.choice(candidates)
    world.note(f"the store loses or damages {lost}")
    before = world.store.objects[lost].data
    is_known_of = lost != min(world.store.keys("wal/"))
    world.store.apply_delete("a bad disk", lost)
    if rng.random() < DAMAGED_SHARE:
        is_known_of = True
        world.store.apply_create("a bad disk", lost, _damaged(before, rng))
    reading = asyncio.get_running_loop().create_task(read_final(admin, world.history, PLACE))
    await asyncio.wait((reading,), timeout=ANSWERED_WITHIN_S)
    if not reading.done():  # it stopped: no answer that could be wrong
        world.store.apply_delete("an operator", lost)
        world.store.apply_create("an operator", lost, before)
        await asyncio.wait((reading,), timeout=RESTORED_WITHIN_S)
        if not reading.done():
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            raise InvariantViolated(f"{lost} was restored, and the partition does not go on")
    await reading
    if (wrong := violations(world.history)) and is_known_of:
        raise InvariantViolated(
            f"{lost} is gone, and the partition went on as if nothing were missing:\n" + "\n".join(wrong)
        )


def _damaged(data: bytes, rng: Random) -> bytes:
    at = rng.randrange(8 * len(data))
    return data[: at // 8] + bytes((data[at // 8] ^ 1 << at % 8,)) + data[at // 8 + 1 :]


def _candidates(world: World) -> list[str]:
    """The stream's data objects below the newest one's `durable_below`."""
    keys = world.store.keys("wal/")
    heads = {key: decode_head(world.store.objects[key].data) for key in keys}
    data = {key: head for key, head in heads.items() if isinstance(head, WalHeader)}
    newest = max(data.values(), key=lambda head: head.number, default=None)
    return [key for key, head in data.items() if newest is not None and head.number < newest.durable_below]
