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

    def __init__(self, *, most: int) -> None:
        self._slots: OrderedDict[Any, _Slot[T]] = OrderedDict()
        self._most = most

    async def get(self, key: Any, read: Callable[[], Awaitable[T]]) -> T:
        """The value. Raises what `read` raised."""
        slot = self._slots.setdefault(key, _Slot())
        self._slots.move_to_end(key)
        while len(self._slots) > self._most:
            self._slots.popitem(last=False)
        loop = asyncio.get_running_loop()
        async with slot.lock:
            if loop.time() - slot.at_s >= FRESH_S:
                begun_s = loop.time()
                slot.value, slot.failed, slot.at_s = None, None, float("-inf")
                try:
                    slot.value = await read()
                except AdminError as error:
                    slot.failed = error
                slot.at_s = begun_s
            if slot.failed is not None:
                raise slot.failed
            assert slot.value is not None
            return slot.value

    def forget(self, key: Any) -> None:
        """What was read is old."""
        self._slots.pop(key, None)
