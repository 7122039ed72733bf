"""The store's clock against this node's, by the modification time of an object just made.

The object is a scratch one (`clock/<node>/<uuid>`): it carries no envelope, nobody reads it, and it is deleted at once.
"""

from typing import Final

from bmq.ports import Clock, ObjectStore

RESOLUTION_MS: Final = 1000
"""A modification time may be rounded down to a whole second (HTTP's Last-Modified)."""


async def measure_skew_ms(store: ObjectStore, clock: Clock, *, key: str) -> int:
    """How far the store's clock is ahead of ours, in milliseconds; negative: behind; 0 where nothing tells them apart.

    Makes and deletes the object `key`. Raises StoreError.
    """
    before_ms = clock.now_ms()
    await store.create(key, [b"bmq compares clocks\n"])
    after_ms = clock.now_ms()
    try:
        modified_ms = (await store.head(key)).modified_ms
    finally:
        await store.delete(key)
    return skew_of(before_ms=before_ms, after_ms=after_ms, modified_ms=modified_ms)


def skew_of(*, before_ms: int, after_ms: int, modified_ms: int) -> int:
    """The least skew that explains an object made between `before_ms` and `after_ms` of ours and at `modified_ms` of the store's."""
    earliest_ms = min(before_ms, after_ms) - RESOLUTION_MS + 1
    latest_ms = max(before_ms, after_ms)
    if modified_ms < earliest_ms:
        return modified_ms - earliest_ms
    return max(0, modified_ms - latest_ms)
