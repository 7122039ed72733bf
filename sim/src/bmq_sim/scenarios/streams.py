"""A WAL stream: its writer against heirs that seal it, killed, paused and slow, over a store that loses replies.

Checked: what was completed before the seal is read back by every heir, unchanged; sealers agree; nothing completes at
or above the seal.
"""

import asyncio
from uuid import UUID

from bmq.errors import BmqError, Fenced, NotReady
from bmq.storage.durable import LatencyWindow
from bmq.storage.stream import StreamWriter, WalObjectMissing, kept_of, read_stream, seal_stream
from bmq.storage.wal import WalRun
from bmq.values import BrokerEpoch, LeaderEpoch, ManifestVersion, NodeId, Offset, StreamId, TopicId, TopicPartition
from bmq_sim.checkers import InvariantViolated
from bmq_sim.clock import SimRng
from bmq_sim.process import SimProcess
from bmq_sim.world import World, ordinary_store_faults

STREAM = StreamId(NodeId(1), BrokerEpoch(1))
PARTITION = TopicPartition(TopicId(UUID(int=1)), 0)
CLUSTER = "simulated"


class _Writer:
    """The owner: submits numbered payloads, completes them, gives some of them up to deletion."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._rng = world.rng(name)
        self._name = name
        self.completed: dict[int, bytes] = {}
        self.checkpoint = 0
        self.fenced: BmqError | None = None
        self._sent: dict[int, bytes] = {}

    async def run(self, objects: int) -> None:
        """Returns when it is fenced, or everything is durable."""
        world, rng = self._world, self._rng
        writer = StreamWriter(
            world.store.for_node(self._name),
            STREAM,
            cluster_id=CLUSTER,
            rng=SimRng(rng),
            on_durable=self._on_durable,
            on_fenced=self._on_fenced,
            latency=LatencyWindow() if rng.random() < 0.5 else None,
        )
        made = 0
        while self.fenced is None and (made < objects or writer.in_flight):
            if made < objects and writer.has_room and rng.random() < 0.7:
                payload = f"{self._name}:{made}".encode()
                try:
                    number = writer.submit([_run(made, payload)])
                except (Fenced, NotReady):
                    break
                self._sent[number] = payload
                made += 1
                continue
            if self.completed and rng.random() < 0.2:
                self.checkpoint = max(self.checkpoint, rng.randrange(max(self.completed) + 2))
                writer.checkpoint(self.checkpoint)
            if rng.random() < 0.1:
                try:
                    await writer.verify_not_sealed()
                except (Fenced, NotReady):
                    break
            await asyncio.sleep(rng.random() * 0.1)
        await writer.close()

    def _on_durable(self, number: int) -> None:
        assert self.fenced is None, f"{number} completed after the end"
        self.completed[number] = self._sent[number]
        self._world.note(f"completed {number}")

    def _on_fenced(self, error: BmqError) -> None:
        self.fenced = error


def _run(number: int, payload: bytes) -> WalRun:
    return WalRun(PARTITION, LeaderEpoch(1), ManifestVersion(0), Offset(number), Offset(number), 0, [payload])


async def scenario(world: World) -> None:
    """One stream, one writer, two heirs."""
    rng = world.rng("scenario")
    world.store.faults = ordinary_store_faults(rng)
    writer = _Writer(world, "owner")
    process = SimProcess("owner", host="owner")
    writing = process.start(writer.run(rng.choice((0, 5, 40))))
    await asyncio.sleep(rng.random() * rng.choice((0.1, 1, 10)))
    accident = rng.choice(("kill", "pause", "cut off", "none"))
    world.note(f"accident {accident}")
    match accident:
        case "kill":
            world.kill_within(process, steps=200, rng=rng)
        case "pause":
            world.loop.pause(process)
        case "cut off":
            world.store.cut_off("owner", rng.random() * 60)
    ends: list[int] = []
    reads = [
        SimProcess(f"heir-{index}", host=f"heir-{index}").start(_inherit(world, f"heir-{index}", writer, ends))
        for index in range(2)
    ]
    await asyncio.sleep(rng.random() * 20)
    world.loop.resume(process)
    await asyncio.gather(*reads)
    world.store.heal()
    await asyncio.sleep(100)
    if accident != "kill":
        await writing
    if len(set(ends)) != 1:
        raise InvariantViolated(f"sealers do not agree: {ends}")
    beyond = [number for number in writer.completed if number >= ends[0]]
    if beyond:
        raise InvariantViolated(f"sealed at {ends[0]} and completed {beyond}")
    await _inherit(world, "late-heir", writer, ends)
    if len(set(ends)) != 1:
        raise InvariantViolated(f"sealers do not agree: {ends}")


async def _inherit(world: World, name: str, writer: _Writer, ends: list[int]) -> None:
    """Seals, reads everything below the seal, and compares it with what the owner had completed."""
    rng = world.rng(name)
    store, ids = world.store.for_node(name), SimRng(rng)
    await asyncio.sleep(rng.random() * 3)
    end = await seal_stream(store, STREAM, cluster_id=CLUSTER, rng=ids)
    ends.append(end)
    world.note(f"{name} sealed at {end}")
    found: dict[int, bytes] = {}
    for _ in range(50):
        start = (await kept_of(store, STREAM, rng=ids)).first
        try:
            async for wal in read_stream(store, STREAM, start=start, end=end, rng=ids):
                found[wal.header.number] = bytes(wal.run(wal.entries[0]))
        except WalObjectMissing:
            continue
        break
    else:
        raise InvariantViolated(f"{name} cannot read the stream from {start} to {end}")
    for number, payload in writer.completed.items():
        if number >= end or (number >= writer.checkpoint and found.get(number) != payload):
            raise InvariantViolated(
                f"{name}: {number} was completed as {payload!r}, sealed at {end}, checkpoint {writer.checkpoint}, "
                f"read {found!r}"
            )
