"""Values that many ask for at about the same time, read once for all of them.

One read of a value is under way at a time, and what it finds is for all who asked before it began, and for those who
ask soon after. So however many wait, and however long it takes, they wait for two reads at most: one that began too
early for them, and the next. While it is read anew, who may do with what was known before does not wait at all.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from bmq_admin.errors import AdminError

FRESH_S: Final = 5.0
FRESH_S_MAX: Final = 60.0
STALE: Final = 2.0
"""While it is read anew, a value counts for so many times as long as else."""
USED_FOR_READS: Final = 2.0
"""What takes long to read is used for so many times as long, from when the read began: else all would do nothing but
read it."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read(Generic[T]):
    """What a read came to. `forgotten`: how often what was read had been forgotten when it began."""

    at_s: float
    fresh_s: float
    forgotten: int
    value: T | None = None
    failed: Exception | None = None

    def serves(self, *, asked_s: float, since_s: float, forgotten: int, read_anew: bool = False) -> bool:
        """Whether it is an answer for who asked then, and needs one that is at least so new."""
        fresh_s = self.fresh_s * (STALE if read_anew and self.failed is None else 1.0)
        soon = asked_s <= self.at_s or asked_s - self.at_s < fresh_s
        return soon and self.at_s >= since_s and self.forgotten >= forgotten

    def result(self) -> T:
        """The value. Raises what reading it raised."""
        if isinstance(self.failed, AdminError):
            raise self.failed.with_traceback(None)  # else it would keep what each had in hands who asked
        if self.failed is not None:
            raise self.failed
        assert self.value is not None
        return self.value


@dataclass(slots=True)
class _Slot(Generic[T]):
    last: _Read[T] | None = None
    forgotten: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def is_old(self, now_s: float) -> bool:
        return not self.lock.locked() and (self.last is None or now_s - self.last.at_s >= self.last.fresh_s)


class Shared(Generic[T]):
    """Values by key, each read once within `FRESH_S`, failures too; the oldest are forgotten."""

    def __init__(self, *, most: int, waits: bool = False, now_s: Callable[[], float] | None = None) -> None:
        """`waits`: while a value is read anew the one before counts for nobody, as for who writes into it. `now_s`: the
        loop's clock, where no other is given.
        """
        self._slots: OrderedDict[Any, _Slot[T]] = OrderedDict()
        self._most = most
        self._waits = waits
        self._clock_s = now_s

    async def get(self, key: Any, read: Callable[[], Awaitable[T]], *, since_s: float = float("-inf")) -> T:
        """The value, of a read that began at `since_s` or later. Raises what `read` raised, also for another one who
        asked before it began.
        """
        slot = self._slots.setdefault(key, _Slot())
        self._slots.move_to_end(key)
        while len(self._slots) > self._most:
            self._slots.popitem(last=False)
        asked_s, forgotten = self._now_s(), slot.forgotten
        self._forget_old(asked_s)
        before = slot.last if slot.lock.locked() and not self._waits else None
        if before is not None and before.serves(asked_s=asked_s, since_s=since_s, forgotten=forgotten, read_anew=True):
            return before.result()
        async with slot.lock:
            found = slot.last
            if found is None or not found.serves(asked_s=asked_s, since_s=since_s, forgotten=forgotten):
                found = slot.last = await self._read(read, slot.forgotten)
            return found.result()

    async def _read(self, read: Callable[[], Awaitable[T]], forgotten: int) -> _Read[T]:
        begun_s = self._now_s()
        try:
            value = await read()
        except AdminError as error:
            # Who asks soon after is not to wait as long for the same.
            return _Read(at_s=self._now_s(), fresh_s=FRESH_S, forgotten=forgotten, failed=error)
        except Exception as error:  # noqa: BLE001 - it is raised to each who asked for the value
            return _Read(at_s=begun_s, fresh_s=0.0, forgotten=forgotten, failed=error)
        lasted_s = self._now_s() - begun_s
        fresh_s = min(FRESH_S_MAX, max(FRESH_S, USED_FOR_READS * lasted_s))
        return _Read(at_s=begun_s, fresh_s=fresh_s, forgotten=forgotten, value=value)

    def _now_s(self) -> float:
        return (self._clock_s or asyncio.get_running_loop().time)()

    def _forget_old(self, now_s: float) -> None:
        """Nobody is told again what is not fresh, so it need not be in memory either: the one used last is at the
        end.
        """
        while len(self._slots) > 1:
            key, slot = next(iter(self._slots.items()))
            if not slot.is_old(now_s):
                return
            del self._slots[key]

    def forget(self, key: Any) -> None:
        """What was read is old, and so is what a read that is under way will find, for those who ask from now on."""
        if (slot := self._slots.get(key)) is not None:
            slot.last = None
            slot.forgotten += 1
