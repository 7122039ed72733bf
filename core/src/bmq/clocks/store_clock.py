"""The store's clock against this node's, by the modification time of an object just made.

The object is a scratch one (`clock/<node>/<uuid>`): it carries no envelope, nobody reads it, and it is deleted at once.
"""

from typing import Final, NamedTuple

from bmq.ports import Clock, ObjectStore

RESOLUTION_MS: Final = 1000
"""A modification time may be rounded down to a whole second (HTTP's Last-Modified)."""
JUMP_MS_MAX: Final = 1000
"""So far apart wall and elapsed time may be after a comparison: NTP slews a clock by less, and a jump by less decides
nothing."""
CREATE_MS_MAX: Final = 30_000
"""A slower create tells too little: the store may have made the object at any time of it."""


class Comparison(NamedTuple):
    """What comparing the store's clock with this node's came to, which went on evenly meanwhile."""

    skew_ms: int
    """How far the store's clock is ahead of ours; negative: behind; 0 where nothing tells them apart."""
    wall_minus_elapsed_ms: float
    """When it began."""


async def compared(store: ObjectStore, clock: Clock, *, key: str) -> Comparison | None:
    """Makes and deletes the object `key`. Raises StoreError.

    None: the clock jumped meanwhile, so that the object's time may stand between any two of ours, or the create took
    too long.
    """
    before_ms, began_ms = clock.now_ms(), clock.elapsed_ms()
    await store.create(key, [b"bmq compares clocks\n"])
    after_ms, created_ms = clock.now_ms(), clock.elapsed_ms()
    try:
        modified_ms = (await store.head(key)).modified_ms
    finally:
        await store.delete(key)
    jumped_ms = max(
        abs((wall_ms - before_ms) - (at_ms - began_ms))
        for wall_ms, at_ms in ((after_ms, created_ms), (clock.now_ms(), clock.elapsed_ms()))
    )
    if jumped_ms > JUMP_MS_MAX or created_ms - began_ms > CREATE_MS_MAX:
        return None
    return Comparison(skew_of(before_ms=before_ms, after_ms=after_ms, modified_ms=modified_ms), before_ms - began_ms)


def skew_of(*, before_ms: int, after_ms: int, modified_ms: int) -> int:
    """The least skew that explains an object made between `before_ms` and `after_ms` of ours and at `modified_ms` of
    the store's.
    """
    earliest_ms = min(before_ms, after_ms) - RESOLUTION_MS + 1
    latest_ms = max(before_ms, after_ms)
    if modified_ms < earliest_ms:
        return modified_ms - earliest_ms
    return max(0, modified_ms - latest_ms)
