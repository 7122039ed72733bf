"""Objects that this broker gave up: deleted once no reader can still want them. What it does not know it never deletes.

Before it deletes anything it makes sure that nobody had replaced it: what it gave up, believing to be the owner, an
heir may still name.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

import structlog

from bmq.errors import StoreError
from bmq.ports import ObjectStore
from bmq.storage.keys import SHARED_PREFIX
from bmq_broker.metrics import DELETED_SEGMENTS

log = structlog.get_logger()

DELETES_PER_SWEEP_MAX = 1_000
DELETES_AT_ONCE = 8


class Garbage:
    """Keys with the loop time from which on they may go, in order of that time."""

    def __init__(self, store: ObjectStore, *, linger_ms: int, verify_not_sealed: Callable[[], Awaitable[None]]) -> None:
        """`verify_not_sealed` returns if nobody had replaced this broker when it was called."""
        self._store = store
        self._verify_not_sealed = verify_not_sealed
        self._linger_ms = linger_ms
        self._keys: deque[tuple[float, str]] = deque()
        self._shared: set[str] = set()

    def give_up(self, keys: Iterable[str]) -> None:
        """A partition's manifest names these no more. Of shared segments that says nothing: other partitions may still
        name them.
        """
        self._put(key for key in keys if not key.startswith(SHARED_PREFIX))

    def give_up_shared(self, key: str) -> None:
        """No partition names this shared segment, and none ever will."""
        self._shared.add(key)
        self._put((key,))

    def holds(self, key: str) -> bool:
        """Whether this shared segment was given up and is not deleted yet."""
        return key in self._shared

    def _put(self, keys: Iterable[str]) -> None:
        due_s = asyncio.get_running_loop().time() + self._linger_ms / 1000
        self._keys.extend((due_s, key) for key in keys)

    async def sweep(self) -> None:
        """Deletes what is due; what the store refuses now is tried again at the next sweep. Raises Fenced, NotReady."""
        now_s = asyncio.get_running_loop().time()
        if not self._keys or self._keys[0][0] > now_s:
            return
        await self._verify_not_sealed()  # asked after everything that is due was given up
        due: list[tuple[float, str]] = []
        while self._keys and self._keys[0][0] <= now_s and len(due) < DELETES_PER_SWEEP_MAX:
            due.append(self._keys.popleft())
        for at in range(0, len(due), DELETES_AT_ONCE):
            await asyncio.gather(*(self._delete(key) for _, key in due[at : at + DELETES_AT_ONCE]))

    async def _delete(self, key: str) -> None:
        try:
            await self._store.delete(key)
            self._shared.discard(key)
            DELETED_SEGMENTS.inc()
        except StoreError as error:
            log.info("object not deleted, tried again later", key=key, error=str(error))
            self._keys.appendleft((asyncio.get_running_loop().time(), key))
