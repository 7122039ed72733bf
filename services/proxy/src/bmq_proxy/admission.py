"""How much wide work is under way, and whose is let in next: by turns of addresses, and of their connections."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from bmq.fairness.turns import Rotation
from bmq_proxy.calls import Call

T = TypeVar("T")


class Admission:
    """So much at a time; what is larger than that alone. Nobody passes who waits, but by its turn."""

    def __init__(self, limit: int) -> None:
        assert limit > 0
        self._limit = limit
        self._held = 0
        self._waiting: Rotation[tuple[int, asyncio.Future[None]]] = Rotation()
        self._next: tuple[int, asyncio.Future[None]] | None = None
        """Whose turn it is, for whom there is no room yet."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way, and nothing waits."""
        return not self._held and self._next is None and not self._waiting

    def has_room(self, size: int) -> bool:
        """Whether who enters with so much does so at once."""
        return self._next is None and not self._waiting and self._fits(size)

    async def enter(self, call: Call, size: int) -> "Admitted":
        """Once there is room for so much of a call's work; who enters says `keep(0)` in the end."""
        await self._enter(call, size)
        return Admitted(self, size)

    @asynccontextmanager
    async def admitted(self, call: Call, size: int) -> AsyncIterator["Admitted"]:
        """While so much of a call's work is done."""
        admitted = await self.enter(call, size)
        try:
            yield admitted
        finally:
            admitted.keep(0)

    def release(self, size: int) -> None:
        """For what was admitted."""
        self._held -= size
        self._let_in()

    async def _enter(self, call: Call, size: int) -> None:
        if self.has_room(size):
            self._held += size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.push((size, turn), party=call.client_host, sender=call.origin)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._held -= size
            else:
                # Whose turn comes late may be many, and all of them gone: nothing is kept of those.
                self._waiting.discard((size, turn), party=call.client_host, sender=call.origin)
            self._let_in()
            raise

    def _fits(self, size: int) -> bool:
        return not self._held or self._held + size <= self._limit

    def _let_in(self) -> None:
        while self._next is not None or self._waiting:
            size, turn = self._next = self._next or self._waiting.pop()
            if not turn.done():
                if not self._fits(size):
                    return
                self._held += size
                turn.set_result(None)
            self._next = None


class ByAddress:
    """So many pieces of work of each address at a time. What waits is let in by turns of connections, and holds up no
    other address.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._admissions: dict[str, Admission] = {}

    async def run(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        """The result of one piece of a call's work. Raises what it raises."""
        address = call.client_host
        admission = self._admissions.get(address)
        if admission is None:
            admission = self._admissions[address] = Admission(self._limit)
        try:
            admitted = await admission.enter(call, 1)
            try:
                return await work()
            finally:
                admitted.keep(0)
        finally:
            if admission.is_idle:
                self._admissions.pop(address, None)


class Admitted:
    """What one piece of work holds."""

    __slots__ = ("_admission", "_size")

    def __init__(self, admission: Admission, size: int) -> None:
        self._admission = admission
        self._size = size

    def keep(self, size: int) -> None:
        """It needs no more than this of what it asked for."""
        if size < self._size:
            before, self._size = self._size, size
            self._admission.release(before - size)
