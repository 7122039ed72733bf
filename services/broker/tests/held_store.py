"""A simulated store in which a test holds up chosen requests until it lets them go."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from typing_extensions import Buffer

from bmq.errors import UnknownOutcome
from bmq.ports import ObjectMeta
from bmq_sim.store import NodeStore, SimStore

LISTINGS = "every listing"


class HeldStore(SimStore):
    """Creates and gets of keys that contain one of `held` wait; creates of those that contain one of `unknown` get no
    answer.

    `NODE:KEY` in `held` is for what that node sends alone; LISTINGS is for all listings.

    What got no answer is not applied, or only when the test says so: the first try of each key is kept in `late`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held: set[str] = set()
        self.unknown: set[str] = set()
        self.late: dict[str, bytes] = {}
        self._let_go = asyncio.Event()

    def for_node(self, name: str) -> NodeStore:
        return _HeldNodeStore(self, name)

    def let_go(self, part: str) -> None:
        """Nothing that contains `part` waits any more."""
        self.held.discard(part)
        let_go, self._let_go = self._let_go, asyncio.Event()
        let_go.set()

    def land(self) -> None:
        """What was on its way arrives."""
        for key, data in self.late.items():
            self.apply_create("late", key, data)
        self.late.clear()

    async def pass_gate(self, node: str, key: str) -> None:
        while any(part in f"{node}:{key}" for part in self.held):
            await self._let_go.wait()

    async def pass_listing(self) -> None:
        while LISTINGS in self.held:
            await self._let_go.wait()


class _HeldNodeStore(NodeStore):
    def __init__(self, store: HeldStore, node: str) -> None:
        super().__init__(store, node)
        self._held = store

    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        await self._held.pass_gate(self._node, key)
        if any(part in key for part in self._held.unknown):
            self._held.late.setdefault(key, b"".join(parts))
            raise UnknownOutcome(f"create {key}: no answer")
        await super().create(key, parts)

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        await self._held.pass_gate(self._node, key)
        return await super().get(key, start=start, length=length)

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        await self._held.pass_listing()
        async for found in super().list(prefix, after=after):
            yield found
