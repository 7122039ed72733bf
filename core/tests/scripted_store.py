"""For tests of the storage protocols: an ObjectStore in memory whose delays and failures a seed or a script decides,
and a seeded Rng.

A create whose reply is lost, or that is cancelled, may still be on its way: it is applied later, even after the key was
deleted.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from typing_extensions import Buffer

from bmq.errors import Conflict, NotApplied, ObjectMissing, StoreUnavailable, UnknownOutcome
from bmq.ports import ObjectMeta
from bmq.values import Nonce
from bmq_sim.loop import VirtualLoop
from bmq_sim.loop import run as run_virtual

T = TypeVar("T")
PAGE = 3


class SeededRng:
    """The same nonces and jitter for the same seed."""

    def __init__(self, seed: int = 0) -> None:
        self.source = random.Random(seed)

    def nonce(self) -> Nonce:
        return Nonce(self.source.randbytes(16))

    def uuid(self) -> UUID:
        return UUID(int=self.source.getrandbits(128), version=4)

    def random(self) -> float:
        return self.source.random()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs it in virtual time: nothing sleeps, and a wait that cannot end raises."""
    return run_virtual(main, loop=VirtualLoop(steps_max=2_000_000))


@dataclass(kw_only=True)
class Faults:
    """Probabilities of one operation, and its longest delay in seconds."""

    delay_s: float = 0.0
    slow: float = 0.0
    """Of a delay ten times as long."""
    not_applied: float = 0.0
    lost_before: float = 0.0
    """A create whose outcome is unknown: it was never applied."""
    lost_after: float = 0.0
    """A create whose outcome is unknown: it was applied, now or later."""
    unavailable: float = 0.0


@dataclass
class ScriptedStore:
    """One store. `script(key)` runs before each create is applied and may wait or raise; `log` tells what was done."""

    faults: Faults = field(default_factory=Faults)
    seed: int = 0
    objects: dict[str, bytes] = field(default_factory=dict)
    log: list[tuple[str, str]] = field(default_factory=list)
    script: Callable[[str], Awaitable[None]] | None = None
    after: Callable[[str], Awaitable[None]] | None = None
    """Runs after a create was applied and may wait or raise: the reply."""

    def __post_init__(self) -> None:
        self.source = random.Random(self.seed)
        self._on_their_way: set[asyncio.Task[Conflict | None]] = set()

    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        data = b"".join(bytes(part) for part in parts)
        self.log.append(("send", key))
        if self.script is not None:
            await self.script(key)
        # The request goes its own way: who sent it may be cancelled.
        task = asyncio.get_running_loop().create_task(self._deliver(key, data))
        self._on_their_way.add(task)
        task.add_done_callback(self._on_their_way.discard)
        chance = self.source.random()
        if chance < self.faults.lost_after:
            await self._delay()
            raise UnknownOutcome(f"{key}: scripted")
        chance -= self.faults.lost_after
        if chance < self.faults.lost_before:
            task.cancel()
            raise UnknownOutcome(f"{key}: scripted")
        chance -= self.faults.lost_before
        if chance < self.faults.not_applied:
            task.cancel()
            raise NotApplied(f"{key}: scripted")
        error = await asyncio.shield(task)
        await self._delay()
        if error is not None:
            raise error
        if self.after is not None:
            await self.after(key)

    async def _deliver(self, key: str, data: bytes) -> Conflict | None:
        await self._delay()
        if key in self.objects:
            self.log.append(("conflict", key))
            return Conflict(key)
        self.log.append(("create", key))
        self.objects[key] = data
        return None

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        await self._attempt(key)
        if key not in self.objects:
            raise ObjectMissing(key)
        data = self.objects[key][start:]
        await self._delay()
        return data if length is None else data[:length]

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        while True:
            await self._attempt(prefix)
            page = sorted(key for key in self.objects if key.startswith(prefix) and key > after)[:PAGE]
            await self._delay()  # names first, sizes later, as MinIO has it; what is gone by then is left out
            metas = [
                ObjectMeta(key=key, size_bytes=len(self.objects[key]), modified_ms=0)
                for key in page
                if key in self.objects
            ]
            for meta in metas:
                yield meta
            if len(page) < PAGE:
                return
            after = page[-1]

    async def delete(self, key: str) -> None:
        await self._attempt(key)
        self.log.append(("delete", key))
        self.objects.pop(key, None)
        await self._delay()

    async def head(self, key: str) -> ObjectMeta:
        await self._attempt(key)
        self.log.append(("head", key))
        if key not in self.objects:
            raise ObjectMissing(key)
        size_bytes = len(self.objects[key])
        await self._delay()
        return ObjectMeta(key=key, size_bytes=size_bytes, modified_ms=0)

    async def _attempt(self, key: str) -> None:
        await self._delay()
        if self.source.random() < self.faults.unavailable:
            raise StoreUnavailable(f"{key}: scripted")

    async def _delay(self) -> None:
        delay_s = self.source.random() * self.faults.delay_s
        if self.source.random() < self.faults.slow:
            delay_s *= 10
        await asyncio.sleep(delay_s)

    def done(self, verb: str) -> "Sequence[str]":
        """The keys of one verb, in order."""
        return [key for what, key in self.log if what == verb]
