"""A whole bmq in a thread of the test, whose loop says how long it was held: in seconds of the processor, which no
neighbour stretches.

Everybody else's wait is the longest turn of the loop: between two turns the loop reads what others sent.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import UUID

from bmq.config.limits import Limits
from bmq.roles.controller import NewTopic
from bmq.runtime.folder_store import FolderStore
from bmq.runtime.system import SystemClock, SystemRng
from bmq_broker.settings import BrokerSettings
from bmq_node.admin.server import AdminServer
from bmq_node.configuration.node_settings import NodeSettings
from bmq_node.node import Node
from bmq_proxy.settings import ProxySettings

T = TypeVar("T")
MIB = 1 << 20
_START_S = 60


def may_hold_s(limit_s: float) -> float:
    """The limit for a turn, stretched by how much slower this processor is now than one for which limits are what they
    say: there are slower ones, and neighbours take caches and clock from it.
    """
    return limit_s * max(1.0, min(_spent_s() for _ in range(3)) / _SPENT_S)


def _spent_s() -> float:
    before_s = time.thread_time()
    sum(len({"a": n, "b": str(n)}) for n in range(20_000))
    return time.thread_time() - before_s


_SPENT_S: Final = 0.004
"""Takes it where limits are what they say."""


class WatchedLoop(asyncio.SelectorEventLoop):
    """Notes its longest turn."""

    def __init__(self) -> None:
        super().__init__()
        self.longest_s = 0.0

    def _run_once(self) -> None:
        before_s = time.thread_time()
        super()._run_once()  # type: ignore[misc]
        self.longest_s = max(self.longest_s, time.thread_time() - before_s)


@dataclass
class AbusedNode:
    """Where it listens, and its loop."""

    loop: WatchedLoop
    kafka: tuple[str, int] = ("", 0)
    admin: tuple[str, int] = ("", 0)
    node: Node = field(init=False)
    _over: asyncio.Event = field(init=False)

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float = 120) -> T:
        """Its result, from within the node's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout_s)

    def ask(self, function: Callable[[], T]) -> T:
        """What a function gives within the loop."""

        async def asked() -> T:
            return function()

        return self.run(asked())

    def longest_turn_s(self) -> float:
        """Since this was asked last."""

        def take() -> float:
            found, self.loop.longest_s = self.loop.longest_s, 0.0
            return found

        return self.ask(take)

    def have_topics(self, topics: dict[str, int]) -> dict[str, UUID]:
        """Makes those that are not there. The ids of all."""
        image = self.node.image
        missing = [NewTopic(name=name, partitions=count) for name, count in topics.items() if image.topic(name) is None]
        leading = self.node.leading
        assert leading is not None
        for first in range(0, len(missing), 100):
            for result in self.run(leading.create_topics(missing[first : first + 100])):
                assert result.error is None, result.error
        return dict(self.node.image.topic_ids)

    async def _main(self, folder: Path, limits: Limits, started: threading.Event) -> None:
        clock, rng = SystemClock(), SystemRng()
        self._over = asyncio.Event()
        store = FolderStore.open(folder, fsync=False)
        proxy = ProxySettings(request_memory_bytes=64 * MIB, fetch_memory_bytes=64 * MIB, limits=limits)
        settings = NodeSettings(
            listen="127.0.0.1:0",
            proxy=proxy,
            broker=BrokerSettings(eager=True),
            cluster_configs={"group.initial.rebalance.delay.ms": "0"},
        )
        self.node = Node(store, clock=clock, rng=rng, settings=settings)
        server = AdminServer(self.node.admin.front, host="127.0.0.1", port=0, limits=limits)
        await server.start()
        await self.node.start()
        server.serve(ended=self.node.ended)
        assert self.node.proxy is not None
        self.kafka = self.node.proxy.host, self.node.proxy.port
        self.admin = server.host, server.port
        started.set()
        await self._over.wait()
        await self.node.stop()
        await server.stop()
        store.close()


@contextlib.contextmanager
def abused_node(folder: Path, limits: Limits | None = None) -> Iterator[AbusedNode]:
    """Starts one over `folder`, and stops it."""
    abused = AbusedNode(WatchedLoop())
    started = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        asyncio.set_event_loop(abused.loop)
        try:
            abused.loop.run_until_complete(abused._main(folder, limits or Limits(), started))
        except Exception as error:  # noqa: BLE001 - the test fails with it
            failures.append(error)
        finally:
            started.set()
            abused.loop.close()

    thread = threading.Thread(target=run, name="abused node")
    thread.start()
    assert started.wait(_START_S)
    assert not failures, failures
    try:
        yield abused
    finally:
        abused.loop.call_soon_threadsafe(abused._over.set)
        thread.join(_START_S)
        assert not failures, failures
