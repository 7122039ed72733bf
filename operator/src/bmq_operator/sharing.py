"""Values that many ask for at about the same time, read once for all of them."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from bmq_admin.errors import AdminError

FRESH_S: Final = 5.0

T = TypeVar("T")


@dataclass(slots=True)
class _Slot(Generic[T]):
    """A value and since when it is known; who asks while it is being read waits for that one answer."""

    at_s: float = float("-inf")
    value: T | None = None
    failed: AdminError | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Shared(Generic[T]):
    """Values by key, each read once within `FRESH_S`, failures too; the oldest are forgotten."""

    def __init__(self, *, most: int, now_s: Callable[[], float] | None = None) -> None:
        """`now_s`: the loop's clock, where no other is given."""
        self._slots: OrderedDict[Any, _Slot[T]] = OrderedDict()
        self._most = most
        self._clock_s = now_s

    async def get(self, key: Any, read: Callable[[], Awaitable[T]]) -> T:
        """The value. Raises what `read` raised."""
        slot = self._slots.setdefault(key, _Slot())
        self._slots.move_to_end(key)
        while len(self._slots) > self._most:
            self._slots.popitem(last=False)
        now_s = self._clock_s or asyncio.get_running_loop().time
        self._forget_old(now_s())
        async with slot.lock:
            if now_s() - slot.at_s >= FRESH_S:
                begun_s = now_s()
                slot.value, slot.failed, slot.at_s = None, None, float("-inf")
                try:
                    slot.value = await read()
                    slot.at_s = begun_s
                except AdminError as error:
                    # Who waited meanwhile is not to wait as long for the same.
                    slot.failed, slot.at_s = error, now_s()
            if slot.failed is not None:
                raise slot.failed
            assert slot.value is not None
            return slot.value

    def _forget_old(self, now_s: float) -> None:
        """Nobody is told again what is not fresh, so it need not be in memory either: the one used last is at the
        end.
        """
        while len(self._slots) > 1:
            key, slot = next(iter(self._slots.items()))
            if slot.lock.locked() or now_s - slot.at_s < FRESH_S:
                return
            del self._slots[key]

    def forget(self, key: Any) -> None:
        """What was read is old."""
        self._slots.pop(key, None)
