"""A stream of one broker over a scripted store: what the tests of writing, sealing and reading it share."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

from scripted_store import ScriptedStore, SeededRng, run
from tests.waiting import until_async

from bmq.errors import BmqError
from bmq.storage.durable import LatencyWindow
from bmq.storage.numbered import wal_key
from bmq.storage.stream import StreamWriter, seal_stream
from bmq.storage.wal import Seal, WalRun, encode_seal
from bmq.values import (
    BrokerEpoch,
    LeaderEpoch,
    ManifestVersion,
    NodeId,
    Nonce,
    Offset,
    StreamId,
    TopicId,
    TopicPartition,
)

STREAM = StreamId(NodeId(7), BrokerEpoch(3))
TP = TopicPartition(TopicId(UUID(int=1)), 0)
CLUSTER = "some-cluster"


def runs(payload: bytes = b"a batch") -> list[WalRun]:
    return [WalRun(TP, LeaderEpoch(1), ManifestVersion(0), Offset(0), Offset(0), 0, [payload])]


def key(number: int) -> str:
    return wal_key(STREAM, number)


def put_seal(store: ScriptedStore, number: int) -> None:
    seal = Seal(
        cluster_id=CLUSTER,
        node_id=STREAM.node_id,
        broker_epoch=STREAM.broker_epoch,
        number=number,
        nonce=Nonce(b"sealer".ljust(16)),
    )
    assert key(number) not in store.objects
    store.objects[key(number)] = b"".join(bytes(part) for part in encode_seal(seal))


class Gate:
    """Holds each create back until its number is let through."""

    def __init__(self, store: ScriptedStore) -> None:
        self.waiting: dict[str, asyncio.Event] = {}
        store.script = self._wait

    async def _wait(self, object_key: str) -> None:
        await self.waiting.setdefault(object_key, asyncio.Event()).wait()

    async def open(self, *numbers: int) -> None:
        for number in numbers:
            self.waiting.setdefault(key(number), asyncio.Event()).set()
        await asyncio.sleep(0.001)


class Broker:
    """A writer and what it was told."""

    def __init__(self, store: ScriptedStore, *, seed: int = 1, latency: LatencyWindow | None = None) -> None:
        self.durable: list[int] = []
        self.fenced: list[BmqError] = []
        self.created: list[tuple[int, float]] = []
        self.writer = StreamWriter(
            store,
            STREAM,
            cluster_id=CLUSTER,
            rng=SeededRng(seed),
            on_durable=self.durable.append,
            on_fenced=self.fenced.append,
            on_created=lambda size_bytes, seconds: self.created.append((size_bytes, seconds)),
            latency=latency,
        )

    def submit(self, count: int) -> None:
        for _ in range(count):
            self.writer.submit(runs())

    async def write(self, count: int) -> None:
        """One after the other."""
        for _ in range(count):
            self.submit(1)
            await until_async(lambda: not self.writer.in_flight, "nothing to be in flight")


def playing(scene: Callable[[ScriptedStore, Broker], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Runs a scene with a store and a broker, and closes the broker."""

    async def main() -> None:
        store = ScriptedStore(log=[])
        broker = Broker(store)
        await scene(store, broker)
        await broker.writer.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    def test() -> None:
        run(main())

    test.__name__ = scene.__name__
    test.__doc__ = scene.__doc__
    return test


async def seal(store: ScriptedStore, *, seed: int = 5) -> int:
    """The number where it ends."""
    return await seal_stream(store, STREAM, cluster_id=CLUSTER, rng=SeededRng(seed))
