"""Proves, before a job writes to a table, that its store lets one of two creates of a key fail: the table's log rests
on nothing else.

There are gateways that ignore If-None-Match. Over one of them two writers each commit the same version, and the first
one's records are gone.
"""

import asyncio
import secrets
from typing import Final

from bmq.errors import StoreUnusable
from bmq.runtime.open_store import open_store
from bmq.runtime.self_test import PREFIX, prove_store
from bmq.runtime.system import SystemClock, SystemRng
from bmq_spark.locations import Location, passes

PROOF_FOLDER: Final = "_bmq"


def prove(location: Location) -> None:
    """Some dozen requests in a bucket, two files in a folder; what it made is deleted. Raises StoreUnusable (one line,
    with the remedy).
    """
    place = location.child(PROOF_FOLDER)
    if place.folder is None:
        place.patience.ask(lambda: asyncio.run(_prove_bucket(place)), passes)
        return
    key = f"{PREFIX}{secrets.token_hex(16)}"
    try:
        if not place.create(key, b"first") or place.create(key, b"second"):
            raise StoreUnusable(
                f"the folder {place.folder} lets a second create of one file succeed: use a file system with hard links"
            )
    finally:
        place.delete(key)


async def _prove_bucket(place: Location) -> None:
    store = open_store(place.uri)
    try:
        await prove_store(store, SystemClock(), SystemRng())
    finally:
        store.close()
