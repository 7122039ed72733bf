"""Whether a store without metadata is a new one. One that holds a cluster's objects is not: nobody may begin another
cluster among them.
"""

from typing import Final

from bmq.errors import StoreUnusable
from bmq.ports import ObjectStore, Rng
from bmq.storage.durable import TroubleLog, when_available
from bmq.storage.keys import SHARED_PREFIX, TOPICS_PREFIX

_PREFIXES: Final = ("wal/", TOPICS_PREFIX, SHARED_PREFIX)
"""What is made only after the first metadata entry is durable."""


async def object_of_a_cluster(store: ObjectStore, *, rng: Rng) -> str | None:
    """The key of one; None where there is none. Waits out a store that is down."""
    for prefix in _PREFIXES:

        async def first(prefix: str = prefix) -> str | None:
            async for meta in store.list(prefix):
                return meta.key
            return None

        found = await when_available(first, rng=rng, trouble=TroubleLog("look at the store"))
        if found is not None:
            return found
    return None


def without_metadata(key: str) -> StoreUnusable:
    """What to tell whoever would begin a cluster there."""
    return StoreUnusable(
        f"the store has objects of a cluster ({key}) and no metadata log: if a copy was interrupted here, run bmq "
        "store copy again until it is whole; if the metadata was lost, restore it from a backup; else name an "
        "empty folder, bucket or prefix"
    )
