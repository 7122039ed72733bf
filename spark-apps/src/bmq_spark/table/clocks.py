"""This machine's clock against that of the table's store, before anything goes because of its age.

A clock that is a year ahead would take every folder for older than its retention. Nothing else of a table is judged by
a clock.
"""

import asyncio
import secrets
from typing import Final

from bmq.clocks.store_clock import compared, skew_of
from bmq.ports import Clock
from bmq.runtime.open_store import open_store
from bmq.runtime.self_test import PREFIX
from bmq.runtime.system import SystemClock
from bmq_spark.locations import Location, passes
from bmq_spark.table.proof import PROOF_FOLDER

SKEW_MS_MAX: Final = 60_000
"""As much as a broker trusts."""


def why_not_by_age(location: Location, clock: Clock | None = None) -> str | None:
    """Why nothing is to go because of its age, in one line; None where the clocks agree. Three requests. Raises
    StoreError.

    Over a folder of this machine's own both clocks are one.
    """
    skew_ms = _skew_ms(location.child(PROOF_FOLDER), clock or SystemClock())
    if skew_ms is None:
        return (
            f"{location.hadoop()}: this machine's clock jumped: nothing leaves the table because of its age in this run"
        )
    if abs(skew_ms) <= SKEW_MS_MAX:
        return None
    which = "behind" if skew_ms > 0 else "ahead of"
    return (
        f"{location.hadoop()}: this machine's clock is {abs(skew_ms) // 1000} s {which} the store's: nothing "
        "leaves the table because of its age until they agree: set the clock"
    )


def _skew_ms(place: Location, clock: Clock) -> int | None:
    if place.folder is None:
        return place.patience.ask(lambda: asyncio.run(_in_bucket(place, clock, _new_key())), passes)
    key = _new_key()
    before_ms = clock.now_ms()
    try:
        place.create(key, b"bmq compares clocks\n")
        after_ms, modified_ms = clock.now_ms(), (place.folder / key).stat().st_mtime_ns // 1_000_000
    finally:
        place.delete(key)
    return skew_of(before_ms=before_ms, after_ms=after_ms, modified_ms=modified_ms)


def _new_key() -> str:
    return f"{PREFIX}{secrets.token_hex(16)}"


async def _in_bucket(place: Location, clock: Clock, key: str) -> int | None:
    store = open_store(place.uri)
    try:
        comparison = await compared(store, clock, key=key)
        return None if comparison is None else comparison.skew_ms
    finally:
        store.close()
